# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln's entries among the artifacts of ``torch.compiler.save_cache_artifacts`` and ``load_cache_artifacts``.

Each graph that is stored or loaded is recorded, as PyTorch's caches record theirs; what is loaded from artifacts goes
to Kiln's cache, from where compilations take it. Importing this file registers the type, which PyTorch must know before
it reads artifacts that hold one.

Source: torch/compiler/_cache.py.
"""

import logging
import re

from torch.compiler import _cache as torch_cache
from typing_extensions import override

__all__ = ["KilnArtifact", "record"]

log = logging.getLogger("kiln")

_KEY = re.compile(r"[0-9a-f]{64}")


@torch_cache.CacheArtifactFactory.register
class KilnArtifact(torch_cache.CacheArtifact):
    """A stored graph: ``key`` as in Kiln's cache, ``content`` as ``runtime.disk_cache.seal`` makes it."""

    def populate_cache(self) -> None:
        """Put the entry into Kiln's cache; one that is damaged, or of another format, is left out with a note."""
        from kiln.frontend import knobs
        from kiln.frontend.cache.compiled_graphs import graph_cache
        from kiln.runtime.disk_cache import IMPORTED, unseal

        payload = unseal(self.key, self.content) if _KEY.fullmatch(self.key) else None
        if payload is None:
            log.warning("kiln: cache artifact %.16s is left out: it is damaged or of another version", self.key)
        elif knobs.cache() and not graph_cache().has(self.key):
            graph_cache().put(self.key, payload, IMPORTED)

    @staticmethod
    @override
    def type() -> str:
        return "kiln"


def record(key: str, payload: bytes) -> None:
    """Have ``save_cache_artifacts`` include an entry."""
    from kiln.runtime.disk_cache import seal

    torch_cache.CacheArtifactManager.record_artifact(KilnArtifact.type(), key, seal(key, payload))
