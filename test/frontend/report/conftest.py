# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Makes this folder's helpers importable (pytest's importlib mode puts no test folder on the path); a fixture."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def fresh_compiler():
    """Nothing is compiled before or kept behind, and gradients are asked for by the tests that want them."""
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()
