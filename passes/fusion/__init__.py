# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Grouping of ops into kernels: the dataflow graph, the groups, and their outlining as `kiln.fusion`."""
