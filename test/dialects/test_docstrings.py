# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every op's docstring holds an example, which parses, verifies and holds that op."""

import re

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, kiln


@pytest.mark.parametrize("op", kiln.OPS, ids=lambda op: op.OPERATION_NAME)
def test_docstring_example(op: type) -> None:
    examples = re.findall(r"```mlir\n(.*?)```", op.__doc__ or "", flags=re.DOTALL)
    assert examples, f"{op.OPERATION_NAME} has no example"
    outside: list[tuple[ir.Module, str]] = []
    with create_context(), ir.Location.unknown():
        for text in examples:
            module = kiln.parse(text)
            assert module.operation.verify()
            assert f'"{op.OPERATION_NAME}"(' in kiln.to_text(module)
            again = kiln.parse(kiln.to_text(module))
            assert str(again) == str(module)

            outside.append((module, kiln.to_text(module)))
    for module, expected in outside:  # printing verifies: a verifier makes types in the op's context
        assert kiln.to_text(module) == expected


def test_a_recurrence_of_bf16_is_printed_without_a_current_context() -> None:
    (text,) = re.findall(r"```mlir\n(.*?)```", kiln.RecurrenceOp.__doc__ or "", flags=re.DOTALL)
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text.replace("xf32", "xbf16"))
    assert "tensor<64x512xbf16>" in kiln.to_text(module)
