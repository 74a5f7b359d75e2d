# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The topic `kiln_code` of TORCH_LOGS: the code of each kernel; see `kiln.frontend.report.log_topics`."""
