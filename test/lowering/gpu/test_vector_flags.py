# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""LLVM IR of kernels keeps no `nuw` and `nsw` on vectors, and machine code is made of what is left."""

import re
from pathlib import Path

import pytest
import torch

import kiln.lowering.gpu.compile as compile_module
from kiln.lowering.gpu.compile import compile_ttir, triton_problem
from kiln.lowering.gpu.vector_flags import without_vector_flags

needs_triton = pytest.mark.skipif(triton_problem() is not None, reason="needs Triton")


def test_scalars_and_other_ops_keep_theirs() -> None:
    text = """
  %1 = shl nuw nsw <2 x i32> %0, <i32 31, i32 3>
  %2 = add nsw <4 x i32> %3, %4
  %5 = shl nuw nsw i32 %6, 3
  %7 = or disjoint <4 x i32> %8, %9
"""
    assert without_vector_flags(text) == text.replace("shl nuw nsw <", "shl <").replace("add nsw <", "add <")
    assert without_vector_flags(text[text.index("  %5") :]) == text[text.index("  %5") :]


def softmax_gradient(gradient: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of a causal softmax in bf16: its sum over rows, and itself, scaled."""
    product = gradient.float() * p
    found = (product - p * product.sum(-1, keepdim=True)).bfloat16()
    found = found.masked_fill(torch.ones(32, 32, dtype=torch.bool).triu(1), 0)
    return found.float().sum(0), found * 0.125


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Triton IR of the gradient's kernels, for rows of unknown number."""
    folder = tmp_path_factory.mktemp("dump")
    torch.manual_seed(0)
    given = torch.randn(5, 4, 32, 32).bfloat16(), torch.rand(5, 4, 32, 32)
    for x in given:
        torch._dynamo.mark_dynamic(x, 0)
    options = {"target": "tt-cpu", "fallback": False, "debug_dir": str(folder)}
    torch._dynamo.reset()
    found = torch.compile(softmax_gradient, backend="kiln", options=options)(*given)
    for ours, exact in zip(found, softmax_gradient(*given), strict=True):
        torch.testing.assert_close(ours, exact)
    texts = [path.read_text() for path in sorted(Path(folder).rglob("*.ttir"))]
    assert texts
    return texts


@needs_triton
def test_no_program_number_gets_into_a_lane(kernels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's LLVM compares the number of a column with that of the row, or'ed with half of the program's."""

    def is_wrong(text: str) -> bool:
        return "2147483648" in compile_ttir(text, "sm_90").ptx  # a 64-bit number: the program's << 31

    assert not any(map(is_wrong, kernels))
    monkeypatch.setattr(compile_module, "without_vector_flags", lambda text: text)
    if not any(map(is_wrong, kernels)):
        pytest.skip("this Triton's LLVM keeps lanes apart")


@needs_triton
def test_machine_code_is_made_of_what_is_left(kernels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever LLVM this Triton has: one op is put on vectors."""
    import triton

    compiled = triton.compile

    def on_vectors(*args: object, **options: object) -> object:
        kernel = compiled(*args, **options)
        kernel.asm["llir"] = re.sub(
            r"^(define .*\{)$",
            r"\1\n  %kiln = shl nuw nsw <2 x i32> <i32 1, i32 1>, <i32 31, i32 3>",
            kernel.asm["llir"],
            flags=re.MULTILINE,
        )
        kernel.asm["ptx"] += "\n// of the op"
        return kernel

    monkeypatch.setattr(triton, "compile", on_vectors)
    made = compile_ttir(kernels[0], "sm_90")
    assert "%kiln = shl <2 x i32>" in made.llir
    assert "// of the op" not in made.ptx and made.binary is not None
