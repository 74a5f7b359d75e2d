# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Catching what native code writes to file descriptor 2. For tools only: the descriptor belongs to the process."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator

__all__ = ["captured_stderr"]


@contextlib.contextmanager
def captured_stderr() -> Generator[None, None, None]:
    """Discard writes to file descriptor 2 if the block raises (its error says it better); pass them on otherwise."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        os.write(2, file.read())
