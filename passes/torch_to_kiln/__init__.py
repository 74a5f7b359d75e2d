# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rules that turn one torch op into kiln and linalg ops; one op family a file.

A rule is a function with the :func:`~kiln.passes.torch_to_kiln.registry.lowers` decorator that gets a
:class:`~kiln.passes.torch_to_kiln.context.LoweringContext`. Every module of this folder is imported when the rules are
first needed: a new family is a new file, there is no list to edit.
"""
