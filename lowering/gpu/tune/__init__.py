# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which schedule of a GPU kernel is fastest, by trying: candidates, trial runs, timing by replays of CUDA graphs.

What decides and remembers is in lowering/tune; the pass ``autotune-gpu`` runs it on a module's kernels.
"""
