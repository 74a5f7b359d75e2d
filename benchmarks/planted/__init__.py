# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bugs planted in a copy of the compiler, and what finds them: see `__main__.py`."""
