# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Configuration of lit: `lit test` from the root, in a checkout or with an installed kiln-mlir.

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # a checkout is tested as it stands

from kiln.tools.lit_config import configure  # noqa: E402

configure(config, __file__, name="Kiln")  # noqa: F821 - lit's
