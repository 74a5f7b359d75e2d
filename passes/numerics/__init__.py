# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether two modules compute the same numbers: samples of inputs, evaluation, and comparison with an error model."""
