# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln's passes: one pass a file, found by the registry without a list to edit."""

from kiln.passes.core import Pass, register_pass

__all__ = ["Pass", "register_pass"]
