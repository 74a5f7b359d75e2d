# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which schedule is fastest, by trying: what decides, times and remembers, for all targets.

A target's folder ``tune`` has what is tried, and how it is run; a pass ``autotune-TARGET`` does so for a module.
"""
