# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running plans on NVIDIA GPUs: the driver API, launches, tensor descriptors, CUDA graphs."""
