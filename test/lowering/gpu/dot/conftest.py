# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes this folder's helpers importable: pytest's importlib mode puts no test folder on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
