# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A test of a user's: status 1 where the module of the file given holds a division."""

import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
sys.exit("arith.divf" in text or "llvm.fdiv" in text)
