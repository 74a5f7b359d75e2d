# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which schedule is fastest, by trying: candidates, trial runs, timing, and what was found before.

`Tuner` puts them together; the pass ``autotune-cpu`` runs it on the kernels of a module.
"""
