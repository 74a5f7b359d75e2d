# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What `kiln-tune --machine` measures: the rates of a CPU's core (`cpu.py`) and of a GPU (`gpu.py`), as a file."""
