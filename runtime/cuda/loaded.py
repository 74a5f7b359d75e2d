# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Libraries that PyTorch has loaded."""

import re

__all__ = ["loaded_library"]


def loaded_library(name: str) -> str:
    """The path of a library ("libcudnn") in this process; empty where it is not loaded, or the system does not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            found = re.search(rf"/\S*/{re.escape(name)}\.so\S*", maps.read())
    except OSError:
        return ""
    return found[0] if found else ""
