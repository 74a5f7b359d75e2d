# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import os
import subprocess
import sys

import torch

from kiln.runtime.executor import Executor
from kiln.runtime.plan import Operand, Output
from kiln.runtime.threads import max_threads


def test_max_threads_is_torchs():
    assert max_threads() == torch.get_num_threads()


def test_kernels_share_torchs_pool(chain_plan):
    """Parallel launches add no operating-system thread beside those of PyTorch's operators."""
    x = [torch.randn(1000, 1000) for _ in range(2)]
    torch.mul(x[0], 1.5)
    before = len(os.listdir("/proc/self/task"))
    executor = Executor(chain_plan(1000, 1000, outputs=[Output(Operand(3))]))
    for _ in range(3):
        executor(x)
    torch.mul(x[0], 1.5)
    assert len(os.listdir("/proc/self/task")) <= before


def test_library_is_found_without_importing_torch():
    code = (
        "import sys\n"
        "from kiln.runtime.threads import symbol_address\n"
        "assert symbol_address('GOMP_parallel') and 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def test_results_of_one_element_are_stored_once():
    """Of several results in place, two have a single element: no second thread computes them once more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        count, one, many = torch.tensor(0), torch.tensor([2.0]), torch.ones(300_000)
        step = torch.compile(
            lambda n, x, y: (n.add_(1), x.mul_(1.5), y.mul_(1.5)),
            backend="kiln",
            options={"fallback": False, "cache": False},
        )
        for call in range(1, 11):
            step(count, one, many)
            assert (count.item(), one.item()) == (call, 2 * 1.5**call)
    finally:
        torch.set_num_threads(threads)


def test_results_within_the_loop_that_threads_share_are_stored_by_the_one_with_the_first_block():
    """Exponentials of a single row, of elements that lie turned and interleaved: the loop that threads share is that of
    the one row, and its only block is the second thread's.
    """

    def weights(a, b):
        return torch.cumsum(torch.softmax(torch.stack([a, b], 2).flatten(1).flip(1), 1), 1)

    a, b = torch.randn(1, 5000), torch.randn(1, 5000)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for dynamic in (False, True):
            torch._dynamo.reset()
            found = torch.compile(weights, backend="kiln", dynamic=dynamic, options={"fallback": False})(a, b)
            torch.testing.assert_close(found, weights(a, b), rtol=1e-4, atol=1e-6)
    finally:
        torch.set_num_threads(threads)
