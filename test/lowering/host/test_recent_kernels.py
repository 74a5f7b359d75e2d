# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels are compiled once a process: by name, for one CPU, within a bound."""

import torch

from kiln.frontend.report import collect
from kiln.lowering.cpu import codegen, isa
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.lowering.host.recent_kernels import RecentKernels, recent_kernels
from kiln.passes import assemble


def kernel(name, size):
    return KernelObject(name, bytes(size), 1, 0)


def test_bound():
    recent = RecentKernels(max_bytes=100)
    for name in "abc":
        recent[name] = kernel(name, 30)
    assert recent["a"].name == "a"  # now the last used
    recent["d"] = kernel("d", 30)
    assert list(recent) == ["c", "a", "d"]
    recent["d"] = kernel("d", 40)
    assert recent.bytes == 100
    recent["large"] = kernel("large", 500)
    assert list(recent) == ["large"]
    del recent["large"]
    assert (len(recent), recent.bytes) == (0, 0)


def test_each_cpu_has_its_own():
    with isa.compiling_for(isa.named("x86-64")) if isa.host().has("sse2") else isa.compiling_for(isa.Isa("x", 16, 16)):
        other = recent_kernels()
    assert other is not recent_kernels()
    assert recent_kernels() is recent_kernels()


def test_equal_kernels_of_two_graphs_are_compiled_once(monkeypatch):
    compiled = []

    def counting(module, described, **settings):
        compiled.append(described.name)
        return codegen.start_kernel(module, described, **settings)

    monkeypatch.setattr(assemble, "start_kernel", counting)
    x = torch.randn(3, 1237)
    names = []
    for _ in range(2):
        torch._dynamo.reset()
        with collect() as reports:
            result = torch.compile(lambda x: torch.sigmoid(x) * 1.2345, backend="kiln")(x)
        torch.testing.assert_close(result, torch.sigmoid(x) * 1.2345)
        names += [k.name for report in reports for k in report.kernels]
    assert names[0] == names[1]
    assert compiled == [names[0]]
