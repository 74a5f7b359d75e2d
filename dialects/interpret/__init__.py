# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""An interpreter of Kiln's IR on torch tensors: every stage from `torch` to `sched`, on any device, by ATen's ops."""

from kiln.dialects.interpret.interpreter import Interpreter, evaluate

__all__ = ["Interpreter", "evaluate"]
