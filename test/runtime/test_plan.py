# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import pytest

from kiln.errors import KilnError
from kiln.runtime.expressions import affine_evaluator, derived_evaluator
from kiln.runtime.plan import AtenStep, Buffer, Constant, Launch, Operand, Output, Plan, Pointer, Symbol


def sample() -> Plan:
    return Plan(
        "sample",
        3,
        symbols=[Symbol("s27", "size", 0, 1), Symbol("Max(1, s27)", "derived", expr="Max(1, s27)")],
        buffers=[Buffer("input", "float32", (4, "s0"), ("s0", 1), "s0 * 16", index=0, first=0, last=1)],
        constants=[Constant("w"), Constant("", "bool", (2,), 0)],
        steps=[
            Launch(0, (Pointer(0), Pointer(1, "s0 * 4")), ("s0", 3), "s0 * 8", "s0", name="f"),
            AtenStep("aten.x.default", "[]", "{}", (Operand(0),), ("s0",), (1, -1), ((2, 0, 1),), reason="why"),
        ],
        outputs=[Output(Operand(0, (1, "s0"), ("s0", 1), "s0")), Output(value="s0 + 1"), Output(value=3)],
        offsets={3: 0, 1: 64},
        text="// text",
        launcher=b"run",
        objects=[b"one", b""],
        blobs=[b"\1\0"],
    )


def test_round_trip():
    plan = sample()
    data = plan.to_bytes()
    assert Plan.from_bytes(data) == plan
    assert Plan.from_bytes(data).to_bytes() == data


def test_broken_data():
    data = sample().to_bytes()
    with pytest.raises(KilnError, match="not a Kiln plan"):
        Plan.from_bytes(b"something else entirely")
    with pytest.raises(KilnError, match="cut off"):
        Plan.from_bytes(data[:-1])
    with pytest.raises(KilnError, match="broken plan"):
        Plan.from_bytes(data[:40])
    with pytest.raises(KilnError, match="plan version 99"):
        Plan.from_bytes(data[:8] + bytes([99, 0, 0, 0]) + data[12:])


def test_affine_expressions():
    texts = [7, "s0", "s0 * 4 + s1 floordiv 2", "(s0 + 1) mod 3", "s1 ceildiv 2", "-s0 + 9", "s0 * s1"]
    values = affine_evaluator(texts)([5, 7])
    assert [values[t] for t in texts] == [7, 5, 23, 0, 4, 4, 35]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Max(1, s0)", 6),
        ("Min(4, s0) + FloorDiv(s0, 4)", 5),
        ("ModularIndexing(s0, 2, 2)", 1),
        ("s0**2 // 5", 7),
        ("Piecewise((1, s0 < 3), (2, True))", 2),
        ("CeilToInt(IntTrueDiv(s0, 4))", 2),
        ("(s0*u0)//2", 27),
    ],
)
def test_derived_expressions(text, value):
    assert derived_evaluator(text, ["s0", "u0"])(6, 9) == value


@pytest.mark.parametrize("text", ["__import__('os')", "s9 + 1", "s0.real", "(", "[s0]", "f(s0)", "lambda: 1"])
def test_derived_expressions_are_arithmetic_only(text):
    with pytest.raises(KilnError, match="size expression"):
        derived_evaluator(text, ["s0"])
