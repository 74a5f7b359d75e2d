# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which schedule of a CPU kernel is fastest, by trying: candidates and trial runs.

What decides and remembers is in lowering/tune; the pass ``autotune-cpu`` runs it on the kernels of a module.
"""
