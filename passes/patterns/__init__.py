# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pattern rewrites: subgraphs written as PyTorch functions, found in the torch dialect and replaced."""
