# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Type stubs of MLIR's bindings: what nanobind prints, corrected (`native`), and signatures of sources (`sources`)."""
