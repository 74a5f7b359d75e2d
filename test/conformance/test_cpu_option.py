# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``options={"cpu": ...}``: code for a lesser processor than this one computes the same, with its instructions only."""

import shutil
import subprocess
import tempfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.dialects.kiln import name_of, parse
from kiln.errors import BackendOptionError
from kiln.frontend.options import Options
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.emit import emit_kernel
from kiln.passes import PassManager, parse_pipeline

HOST = isa.host()
LEVELS = [name for name, (_, _, features) in isa.LEVELS.items() if all(HOST.has(f) for f in features)]


class Block(nn.Module):
    """A little of everything: product, norm, softmax, exponential, column sum, convolution, integers."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.conv = nn.Linear(24, 37), nn.LayerNorm(37), nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x, q, image, index):
        y = self.norm(F.gelu(self.up(x)))
        z = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        i = F.relu(self.conv(image))
        return torch.softmax(y, -1), y.sum(0), z, i, torch.tanh(x[index]), (index * 3 // 2).cumsum(0)


def inputs():
    return torch.randn(9, 24), torch.randn(2, 2, 17, 16), torch.randn(1, 3, 9, 11), torch.randint(0, 9, (13,))


PAIRS = ["x86-64-v4+avx512bf16"] if HOST.has("avx512bf16") else []


@pytest.mark.parametrize("name", ["native", *LEVELS, *PAIRS])
def test_numbers(name):
    model = Block().eval()
    args = inputs()
    with torch.no_grad():
        expected = model.double()(*(a.double() if a.is_floating_point() else a for a in args))
        model.float()
        compiled = torch.compile(model, backend="kiln", options={"cpu": name, "fallback": False}, fullgraph=True)
        for ours, exact in zip(compiled(*args), expected, strict=True):
            if exact.is_floating_point():
                assert (ours.double() - exact).norm() <= 3e-6 * exact.norm()
            else:
                assert torch.equal(ours, exact)


def test_instruction_sets_behind_a_level():
    found = isa.named("x86-64-v3+fma")
    assert (found.name, found.vector_bytes, found.has("fma"), found.has("avx512f")) == ("x86-64-v3", 32, True, False)
    with pytest.raises(BackendOptionError, match=r"cpu 'x86-64-v2\+sve': this machine .* lacks sve"):
        isa.named("x86-64-v2+sve")


@pytest.mark.skipif(HOST.vector_bytes < 64, reason="this processor has no wider vectors than the levels")
def test_vector_width():
    """Registers of 512 bits are in the code of v4 only, of 256 bits in that of v3 only."""
    found = {}
    for name in ("x86-64", "x86-64-v3", "x86-64-v4"):
        with isa.compiling_for(isa.named(name)):
            found[name] = disassembled(kernel_object())
    assert "zmm" in found["x86-64-v4"]
    assert "zmm" not in found["x86-64-v3"] and "ymm" in found["x86-64-v3"]
    assert "ymm" not in found["x86-64"] and "xmm" in found["x86-64"]
    assert "vfmadd" not in found["x86-64"]


def kernel_object():
    """Object code of x * y + 1 over 1000 elements, through the pipeline."""
    text = """
    #map = affine_map<(d0) -> (d0)>
    func.func @main(%x: tensor<1000xf32>, %y: tensor<1000xf32>) -> tensor<1000xf32> {
      %e = tensor.empty() : tensor<1000xf32>
      %0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
          ins(%x, %y : tensor<1000xf32>, tensor<1000xf32>) outs(%e : tensor<1000xf32>) {
      ^bb0(%a: f32, %b: f32, %c: f32):
        %m = math.fma %a, %b, %a : f32
        linalg.yield %m : f32
      } -> tensor<1000xf32>
      return %0 : tensor<1000xf32>
    }
    """
    with create_context() as context, ir.Location.unknown():
        module = parse(text, context)
        PassManager(parse_pipeline("fuse,assign-layouts,schedule-cpu")).run(module)
        function = next(op for op in module.body if op.operation.name == "func.func")
        fusion = next(op for op in function.regions[0].blocks[0] if name_of(op.operation) == "kiln.fusion")
        return compile_kernel(emit_kernel(fusion, "kernel"), "kernel").object_bytes


def disassembled(code):
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("no objdump")
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(code)
        file.flush()
        return subprocess.run([objdump, "-d", file.name], capture_output=True, text=True, check=True).stdout


def test_unknown_names_are_refused():
    with pytest.raises(BackendOptionError, match="unknown cpu 'x86-64-v33'.*x86-64-v3"):
        Options.build(options={"cpu": "x86-64-v33"})


def test_what_the_machine_lacks_is_named(monkeypatch):
    monkeypatch.setattr(isa, "host", lambda: isa.Isa("small", 16, 16, ("sse2",)))
    with pytest.raises(BackendOptionError, match="lacks .*avx2"):
        Options.build(options={"cpu": "x86-64-v3"})
