# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Object files -> callable code in this process, without a linker and without MLIR.

One LLVM ORC engine (llvmlite's) serves the process. Each `load` links a set of objects into a library of its own, so
that equal symbol names of different plans never meet; the library is unloaded when its `LoadedCode` is collected.
"""

import functools
import itertools
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from kiln.errors import KilnError
from kiln.runtime.amx import tiles_permitted
from kiln.runtime.threads import symbol_address

__all__ = ["LoadedCode", "load"]

_lock = threading.Lock()
_serial = itertools.count()


class LoadedCode:
    """Addresses of loaded entry points. Keep it alive for as long as any of them may be called."""

    def __init__(self, tracker: Any, symbols: Sequence[str]) -> None:
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in symbols}

    def __getitem__(self, symbol: str) -> int:
        return self.addresses[symbol]


@functools.cache
def _engine() -> Any:
    """The process's ORC engine; never disposed of, since code may run until the process ends."""
    import llvmlite.binding as llvm

    tiles_permitted()  # before code that may use them runs, whatever process it was made in
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


def load(objects: Iterable[bytes], symbols: Sequence[str]) -> LoadedCode:
    """Links objects into memory and returns the addresses of `symbols`. Thread-safe.

    Args:
      objects: ELF relocatable objects; together they define `symbols`, each name once.
      symbols: exported names to look up.

    Raises KilnError for an external symbol that neither torch's libraries nor the process define, or a broken object.
    """
    import llvmlite.binding as llvm

    images = list(objects)
    builder = llvm.JITLibraryBuilder()
    defined: set[str] = set()
    needed: set[str] = set()
    for image in images:
        builder.add_object_img(image)
        inside, outside = _symbols(image)
        defined |= inside
        needed |= outside
    for name in sorted(needed - defined):
        address = symbol_address(name)
        if not address:
            raise KilnError(
                f"generated code calls {name!r}, which this PyTorch build and the process lack; "
                "recompile for this machine (the plan comes from a machine with another build?)"
            )
        builder.import_symbol(name, address)
    missing = [name for name in symbols if name not in defined]
    if missing:
        raise KilnError(f"no object defines {', '.join(missing)}; found {', '.join(sorted(defined)) or 'nothing'}")
    for name in symbols:
        builder.export_symbol(name)
    with _lock:
        tracker = builder.link(_engine(), f"kiln{next(_serial)}")
    return LoadedCode(tracker, symbols)


def _symbols(image: bytes) -> tuple[set[str], set[str]]:
    """(defined global, undefined) symbol names of an ELF64 little-endian relocatable object.

    Source: System V ABI, "Object Files": section headers of type SHT_SYMTAB (2) hold 24-byte symbol entries.
    """
    if len(image) < 64 or image[:6] != b"\x7fELF\x02\x01":
        raise KilnError(f"not an ELF64 object ({len(image)} bytes)")
    offset, count = struct.unpack_from("<Q", image, 40)[0], struct.unpack_from("<H", image, 60)[0]
    try:
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + 64 * i) for i in range(count)]
        defined: set[str] = set()
        undefined: set[str] = set()
        for _, kind, _, _, start, size, link, _, _, _ in headers:
            if kind != 2:
                continue
            strings = headers[link][4]
            for at in range(start, start + size, 24):
                name, info, _, section = struct.unpack_from("<IBBH", image, at)
                if not name or info >> 4 == 0:  # unnamed or local
                    continue
                end = image.index(b"\0", strings + name)
                (defined if section else undefined).add(image[strings + name : end].decode())
    except (struct.error, ValueError, IndexError) as error:
        raise KilnError(f"truncated ELF64 object ({len(image)} bytes): {error}") from error
    return defined, undefined
