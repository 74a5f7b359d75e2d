# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps: forward and backward, and a whole step with AdamW, on a CPU or a GPU."""
