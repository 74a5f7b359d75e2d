# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rewriting of ``kiln.view`` chains: reading views as index expressions, composing, emitting, lifting flat dims."""
