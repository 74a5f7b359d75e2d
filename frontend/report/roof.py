# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The least time that a launch could take on this processor, by the rates in a machine's file (docs/machines.md)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kiln.dialects.kiln import opdef_of_kind
from kiln.lowering.cpu.rates import CpuRates, generic, known, measured
from kiln.lowering.machine_files import user_file
from kiln.runtime.profile import LaunchTimes

if TYPE_CHECKING:
    from kiln.lowering.gpu.dot.machine import Machine

__all__ = ["GpuRoof", "Roof", "gpu_roof", "host_roof"]


_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int8": "i8", "uint8": "i8"}
"""Element types as machines' files name them."""


@dataclass(frozen=True)
class Roof:
    """A processor's rates, and whether they are those of the one at hand."""

    rates: CpuRates
    is_host: bool

    @property
    def name(self) -> str:
        """The machine, for a title."""
        return self.rates.name if self.is_host else f"{self.rates.name}, no rates of this one (kiln-tune --machine)"

    def seconds(self, launch: LaunchTimes) -> float:
        """What memory and arithmetic take at least, the longer of the two; 0 where neither is known.

        Tensors that fit into a core's cache are taken to be there.
        """
        rates, threads = self.rates, max(1, launch.threads)
        rate = rates.cache_rate if launch.moved <= rates.cache_bytes * threads else rates.memory_rate
        known = {"bfloat16": rates.bf16_rate, "int8": rates.int8_rate, "uint8": rates.int8_rate}
        product_rate = known.get(launch.dtype, 0.0) or rates.product_rate
        operations = 2 * launch.work / product_rate if _is_product(launch) else launch.work / rates.vector_rate
        return 1e-9 * max(launch.moved / rate, operations, 0.0) / threads


@dataclass(frozen=True)
class GpuRoof:
    """A GPU's memory, and its tensor cores.

    tf32: whether products of f32 may use them. device: the GPU at hand; another one of its architecture was measured.
    """

    machine: "Machine"
    tf32: bool
    device: str = ""

    @property
    def name(self) -> str:
        """The machine, for a title."""
        measured = self.machine.name
        return (
            measured
            if self.device.startswith(measured) or not self.device
            else f"{self.device}, by the rates of {measured}"
        )

    def seconds(self, launch: LaunchTimes) -> float:
        """As `Roof.seconds`; small tensors may come from the second-level cache faster than this says."""
        dtype = _SHORT.get(launch.dtype, "bf16")
        rate = self.machine.rate_of("tf32" if dtype == "f32" and self.tf32 else dtype) * self.machine.sms
        products = max(0, launch.work) / rate if _is_product(launch) else 0.0
        return 1e-9 * max(launch.moved / self.machine.memory_rate, products, 0.0)


def _is_product(launch: LaunchTimes) -> bool:
    return launch.kind == "library" or opdef_of_kind(launch.kind).flops is not None


def gpu_roof(*, tf32: bool) -> GpuRoof:
    """That of the current GPU, by its architecture."""
    from kiln.lowering.gpu.dot.machine import machine

    major, minor = torch.cuda.get_device_capability()
    return GpuRoof(machine(f"sm_{major}{minor}"), tf32, torch.cuda.get_device_name())


def host_roof() -> Roof:
    """The rates of the user's file, of the file that Kiln has of this processor, or round numbers."""
    import llvmlite.binding as llvm

    if user_file("cpu") is not None:
        return Roof(measured(), True)
    host = llvm.get_host_cpu_name()
    same = [rates for rates in known() if rates.arch == host]
    return Roof(same[0], True) if same else Roof(generic(), False)
