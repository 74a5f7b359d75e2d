# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A schedule depends on the problem and the CPU that it is asked for, not on the one that code is made for now."""

from collections.abc import Callable
from typing import Any

import pytest
from conv_support import image_problem

from benchmarks.stages import CPUS
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention.problem import AttentionProblem, choose_attention_schedule
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.schedule import choose_conv_schedule
from kiln.lowering.cpu.matmul import choose_packed_schedule, choose_schedule
from kiln.lowering.cpu.matmul.problem import MatmulProblem


def product(dtype: str, m: int = 256) -> MatmulProblem:
    return MatmulProblem((), m, 768, 768, (768, 1), (1, 768), dtype)


def attention(dtype: str) -> AttentionProblem:
    strides = (512 * 768, 64, 768, 1)
    return AttentionProblem((2,), 12, 12, 512, 512, 64, 64, strides, strides, strides, 0.125, dtype=dtype)


def convolution(dtype: str) -> ConvProblem:
    last, weight = (64 * 56 * 56, 1, 64 * 56, 64), (64 * 9, 9, 3, 1)
    return image_problem(1, 1, 64, 64, 56, 56, 56, 56, (3, 3), (1, 1), (1, 1), (1, 1), last, weight, dtype)


ASKED: dict[str, Callable[[isa.Isa], Any]] = {
    **{f"product of {t}": lambda cpu, t=t: choose_schedule(product(t), cpu) for t in ("f32", "bf16", "i8")},
    **{f"packed product of {t}": lambda cpu, t=t: choose_packed_schedule(product(t), cpu) for t in ("f32", "bf16")},
    "packed product of i8": lambda cpu: choose_packed_schedule(product("i8"), cpu),
    **{f"attention in {t}": lambda cpu, t=t: choose_attention_schedule(attention(t), cpu) for t in ("f32", "bf16")},
    **{f"convolution of {t}": lambda cpu, t=t: choose_conv_schedule(convolution(t), cpu) for t in ("f32", "bf16")},
}


@pytest.mark.parametrize("what", ASKED)
def test_as_asked_wherever_it_is_asked(what: str) -> None:
    found: dict[str, Any] = {}
    for name, cpu in CPUS.items():
        for other in CPUS.values():
            with isa.compiling_for(other):
                schedule = ASKED[what](cpu)
            assert found.setdefault(name, schedule) == schedule, f"{name} gets another schedule under {other.name}"


def test_the_cpus_differ() -> None:
    """So the test above says something: AMX has schedules of its own."""
    for what in ("product of bf16", "product of i8", "attention in bf16", "convolution of bf16"):
        assert ASKED[what](CPUS["cpu-amx"]) != ASKED[what](CPUS["cpu"]), what
