# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What ``kiln-bisect``, ``kiln-reduce`` and ``kiln-debug`` share: attempts in child processes, bisection, reduction."""
