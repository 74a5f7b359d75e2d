# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The least time that a launch could take on this processor, by the rates in a machine's file (docs/machines.md)."""

from dataclasses import dataclass

from kiln.dialects.kiln import opdef_of_kind
from kiln.lowering.cpu.rates import CpuRates, generic, known, measured
from kiln.lowering.machine_files import user_file
from kiln.runtime.profile import LaunchTimes

__all__ = ["Roof", "host_roof"]


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

        Tensors that fit into a core's cache are taken to be there. A product's rate is that of f32.
        """
        threads = max(1, launch.threads)
        rate = self.rates.cache_rate if launch.moved <= self.rates.cache_bytes * threads else self.rates.memory_rate
        is_product = opdef_of_kind(launch.kind).flops is not None
        operations = 2 * launch.work / self.rates.product_rate if is_product else launch.work / self.rates.vector_rate
        return 1e-9 * max(launch.moved / rate, operations, 0.0) / threads


def host_roof() -> Roof:
    """The rates of the user's file, of the file that Kiln has of this processor, or round numbers."""
    import llvmlite.binding as llvm

    if user_file("cpu") is not None:
        return Roof(measured(), True)
    host = llvm.get_host_cpu_name()
    same = [rates for rates in known() if rates.arch == host]
    return Roof(same[0], True) if same else Roof(generic(), False)
