# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Triton IR on a CPU: a ``tt.func`` becomes loops of the vector stage, so that GPU numerics run without a GPU."""
