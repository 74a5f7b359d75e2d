# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The trace of a compilation: what each graph was at every stage, with the way from the model's lines to instructions.

``session`` says who wants traces, ``recorder`` fills ``records`` while passes run, ``graph_data`` and ``page`` make the
HTML file of them, and ``notebook`` is ``kiln.trace``.
"""
