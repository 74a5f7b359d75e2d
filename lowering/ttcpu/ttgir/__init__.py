# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels in TTGIR, with warps that have different jobs, interpreted op by op: the very text that is shipped."""
