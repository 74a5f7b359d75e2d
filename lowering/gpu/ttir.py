# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel as the text that Triton parses.  The one place that knows what differs between Triton's versions.

Text is generic MLIR without locations, so that it is deterministic: Triton's own cache of compiled kernels hashes it.
"""

import contextlib
import functools
import importlib
import os
import re
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.dialects import kiln, tt
from kiln.dialects.schedules.base import from_plain_attribute
from kiln.errors import InvalidIRError
from kiln.lowering.gpu.dot.specialized import Specialized
from kiln.lowering.gpu.dot.specialized_ttgir import specialized_ttgir

__all__ = ["Spelling", "from_ttir", "installed_spelling", "to_ttir"]

_LAUNCH_ATTRIBUTES = ("num_warps", "num_stages")
_CACHE = {value: name for name, value in tt.CACHE.items()}
_EVICT = {1: "evict_normal", 2: "evict_first", 3: "evict_last"}
_REDIRECTING = threading.Lock()
_HINTED = re.compile(r'"tt\.(?:load|store|descriptor_load|descriptor_store)"\(.*')
_POLICY = re.compile(r"cachePolicy = #tt\.cache_policy<cache_modifier = (\w+), eviction_policy = (evict_\w+)>")
_HINT = re.compile(r"\b(cache|evict) = (\d+) : i32(?:, )?")


@dataclass(frozen=True)
class Spelling:
    """What one version of Triton writes differently.

    `nested_descriptors`: `!tt.tensordesc<tensor<4x4xf32>>` (3.6) instead of `!tt.tensordesc<4x4xf32>` (3.9).
    `cache_policy`: one attribute `cachePolicy` (3.9, which silently ignores the others) instead of `cache` and
    `evict` (3.6).
    """

    nested_descriptors: bool = False
    cache_policy: bool = True


def to_ttir(func: ir.OpView, spelling: Spelling | None = None, *, debug_info: bool = False) -> str:
    """The kernel as a module in Triton's text form, without what describes its launch; TTGIR for one with the attribute
    `kiln.specialized`.

    `spelling` is that of the installed Triton unless given. `debug_info`: with locations, for people.
    """
    if func.operation.name != "tt.func":
        raise InvalidIRError(f"expected a tt.func, found {func.operation.name}", func.operation.location)
    if "kiln.specialized" in func.operation.attributes:
        problem = Specialized.from_dict(from_plain_attribute(func.operation.attributes["kiln.specialized"]))
        scheduled = specialized_ttgir(problem, ir.StringAttr(func.operation.attributes["sym_name"]).value)
        return _spelled(scheduled, spelling or installed_spelling())
    with func.operation.context, ir.Location.unknown():
        module = ir.Module.create()
        copy = func.operation.clone(ir.InsertionPoint(module.body))
        for name in list(copy.attributes):
            if name.startswith("kiln.") or name in _LAUNCH_ATTRIBUTES:
                del copy.attributes[name]
        _multiply_for_negations(copy)
        text = kiln.to_text(module.operation, print_generic_op_form=True, enable_debug_info=debug_info)
    if "!tt.tensordesc" not in text and not _HINT.search(text):
        return text
    spelling = spelling or installed_spelling()
    text = _spelled(text, spelling)
    return _HINTED.sub(_with_policy, text) if spelling.cache_policy else text


def from_ttir(text: str) -> str:
    """Text that `to_ttir` made, for any version of Triton, as Kiln's dialect spells it."""
    text = re.sub(r"!tt\.tensordesc<(?!tensor<)([^<>]*)>", r"!tt.tensordesc<tensor<\1>>", text)
    return _POLICY.sub(_without_policy, text)


def _without_policy(found: re.Match[str]) -> str:
    cache = next(value for value, name in _CACHE.items() if name == found[1])
    evict = next(value for value, name in _EVICT.items() if name == found[2])
    return f"cache = {cache} : i32, evict = {evict} : i32"


def _spelled(text: str, spelling: Spelling) -> str:
    """With the types of descriptors as this version writes them."""
    if spelling.nested_descriptors:
        return text
    return re.sub(r"!tt\.tensordesc<tensor<([^<>]*)>>", r"!tt.tensordesc<\1>", text)


def _multiply_for_negations(op: ir.Operation) -> None:
    """x * -1 for arith.negf, which MLIR's canonicalizer also makes of -0 - x: Triton 3.6 has none on blocks."""
    for region in op.regions:
        for block in region:
            for view in list(block.operations):
                inner = view.operation
                _multiply_for_negations(inner)
                if inner.name != "arith.negf":
                    continue
                type_ = inner.operands[0].type
                one = ir.FloatAttr.get(tt.element_of(type_), -1.0)
                value = ir.DenseElementsAttr.get_splat(type_, one) if tt.is_block(type_) else one
                with ir.InsertionPoint(inner):
                    minus = ir.Operation.create("arith.constant", results=[type_], attributes={"value": value}).result
                    product = ir.Operation.create("arith.mulf", results=[type_], operands=[inner.operands[0], minus])
                inner.results[0].replace_all_uses_with(product.result)
                inner.erase()


def _with_policy(line: re.Match[str]) -> str:
    """The line with `cache` and `evict` as one `cachePolicy`."""
    found = {key: int(value) for key, value in _HINT.findall(line[0])}
    if not found:
        return line[0]
    cache, evict = _CACHE[found.get("cache", 1)], _EVICT[found.get("evict", 1)]
    policy = f"cachePolicy = #tt.cache_policy<cache_modifier = {cache}, eviction_policy = {evict}>"
    rest = _HINT.sub("", line[0]).replace(", }", "}")
    if "{}" in rest:
        return rest.replace("{}", f"{{{policy}}}", 1)
    return rest.replace("{", f"{{{policy}, ", 1)


@functools.cache
def installed_spelling() -> Spelling:
    """What the installed Triton parses: asked of its parser, so that no version number need be known.

    Raises ImportError where there is no Triton.
    """
    parses = _parser()
    func = (
        '"builtin.module"() ({{ "tt.func"() ({{ ^bb0(%x: {type}): {body} "tt.return"() : () -> () }}) '
        '{{sym_name = "k", function_type = ({type}) -> (), sym_visibility = "public"}} : () -> () }}) : () -> ()'
    )
    flat = func.format(type="!tt.tensordesc<16x16xf32>", body="")
    hinted = (
        '%0 = "tt.load"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>, cachePolicy = '
        "#tt.cache_policy<cache_modifier = none, eviction_policy = evict_first>} : (!tt.ptr<f32>) -> f32"
    )
    return Spelling(
        nested_descriptors=not parses(flat), cache_policy=parses(func.format(type="!tt.ptr<f32>", body=hinted))
    )


def _parser() -> Callable[[str], bool]:
    """Whether Triton parses a text; its complaints, which it writes to the file of standard error, are dropped."""
    import tempfile
    from pathlib import Path

    triton_ir: Any = importlib.import_module("triton._C.libtriton").ir

    def parses(text: str) -> bool:
        context = triton_ir.context()
        triton_ir.load_dialects(context)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "probe.ttir"
            path.write_text(text)
            try:
                with _no_standard_error():
                    triton_ir.parse_mlir_module(str(path), context)
            except RuntimeError:
                return False
        return True

    return parses


@contextlib.contextmanager
def _no_standard_error() -> Generator[None, None, None]:
    """What anybody writes to the file of standard error is dropped; one thread at a time."""
    with _REDIRECTING:
        kept = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(nowhere)
            os.close(kept)
