# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Modules with one fusion each, scheduled, for tests of tuning."""

from kernel_harness import find_fusion
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.dialects import kiln as dialect
from kiln.passes import run_pipeline

CONV = """dilation = array<i64: 1, 1>, groups = {groups} : i64, output_padding = array<i64: 0, 0>,
    padding = array<i64: 1, 1>, stride = array<i64: {stride}, {stride}>, transposed = false"""


def product(m, n, k, transposed=True, constant=False, dtype="f32"):
    rhs = f"tensor<{n}x{k}x{dtype}>" if transposed else f"tensor<{k}x{n}x{dtype}>"
    lhs, result = f"tensor<{m}x{k}x{dtype}>", f"tensor<{m}x{n}x{dtype}>"
    mark = ' {kiln.constant = "w"}' if constant else ""
    flags = f"{{transpose_lhs = false, transpose_rhs = {str(transposed).lower()}}}"
    return f"""func.func @main(%x: {lhs}, %w: {rhs}{mark}) -> {result} {{
      %0 = "kiln.fusion"(%x, %w) ({{
      ^bb0(%a: {lhs}, %b: {rhs}):
        %r = "kiln.matmul"(%a, %b) {flags} : ({lhs}, {rhs}) -> {result}
        "kiln.yield"(%r) : ({result}) -> ()
      }}) {{kind = "matmul", name = "f"}} : ({lhs}, {rhs}) -> {result}
      return %0 : {result}
    }}"""


def conv(channels, outputs, size, groups=1, stride=1):
    x, w = f"tensor<2x{channels}x{size}x{size}xf32>", f"tensor<{outputs}x{channels // groups}x3x3xf32>"
    out = (size - 1) // stride + 1
    y = f"tensor<2x{outputs}x{out}x{out}xf32>"
    return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %0 = "kiln.fusion"(%x, %w) ({{
      ^bb0(%a: {x}, %b: {w}):
        %r = "kiln.conv"(%a, %b) {{{CONV.format(groups=groups, stride=stride)}}} : ({x}, {w}) -> {y}
        "kiln.yield"(%r) : ({y}) -> ()
      }}) {{kind = "conv", name = "c"}} : ({x}, {w}) -> {y}
      return %0 : {y}
    }}"""


def attention(queries, keys, causal):
    q, k = f"tensor<2x3x{queries}x40xf32>", f"tensor<2x3x{keys}x40xf32>"
    return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
      %0 = "kiln.fusion"(%q, %k, %v) ({{
      ^bb0(%a: {q}, %b: {k}, %c: {k}):
        %r = "kiln.attention"(%a, %b, %c) {{scale = 0.25 : f64, causal = {str(causal).lower()}}} : ({q}, {k}, {k}) -> {q}
        "kiln.yield"(%r) : ({q}) -> ()
      }}) {{kind = "attention", name = "a"}} : ({q}, {k}, {k}) -> {q}
      return %0 : {q}
    }}"""


class Scheduled:
    """The first fusion of a module, with layouts and schedule."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        self.context = create_context()
        self.context.__enter__()
        self.location = ir.Location.unknown()
        self.location.__enter__()
        self.module = dialect.parse(self.text)
        run_pipeline(self.module, "assign-layouts,schedule-cpu")
        return find_fusion(self.module)

    def __exit__(self, *error):
        self.location.__exit__(*error)
        self.context.__exit__(*error)


def error(value, exact):
    """The largest difference over the largest number."""
    return float((value.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30))
