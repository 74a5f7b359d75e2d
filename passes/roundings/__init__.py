# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Roundings to 16 bits inside of fusions: which have to stay, and the body without the others."""
