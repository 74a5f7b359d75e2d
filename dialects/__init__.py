# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dialect definitions, verifiers and reference lowerings: what the IR means.  Knows nothing of passes."""

from kiln.dialects.context import create_context
from kiln.dialects.kiln.family import parse, to_text

__all__ = ["create_context", "parse", "to_text"]
