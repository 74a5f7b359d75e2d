# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random graphs at the sizes of networks, compiled and compared with float64; see docs/fuzzing.md."""
