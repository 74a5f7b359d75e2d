# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is kept of compiled graphs: Kiln's persistent cache, and Kiln's part in PyTorch's caches."""
