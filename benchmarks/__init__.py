# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln's benchmarks: ``python -m benchmarks`` (see docs/performance.md)."""

import os

# Kiln asks the system for large pages below tensors of 32 MiB or more. With this, which PyTorch reads when it allocates
# for the first time, eager and Inductor get them too: kernels are compared, not page faults.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
