# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""placeholder"""

from kiln.errors import UnsupportedError


def convert_with_torch_mlir(cx):
    raise UnsupportedError(cx.name, str(cx.op.location), "not yet")
