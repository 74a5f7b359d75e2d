# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The FX graph and the model's files, as data."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from kiln.frontend.report.trace.records import Node

__all__ = ["nodes_of", "read_lines"]

_FRAME = re.compile(r'File "([^"]+)", line ([0-9]+)')
_TORCH_ROOT = str(Path(torch.__file__).parent)
_MOST_LINES = 20_000


def nodes_of(gm: GraphModule) -> list[Node]:
    """The nodes of a graph, in order."""
    return [_node(node) for node in gm.graph.nodes]


def read_lines(file: str) -> list[str]:
    """The lines of a source file; none where it cannot be read (code that was made at run time)."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[:_MOST_LINES]
    except OSError:
        return []


def _node(node: FxNode) -> Node:
    stack = node.meta.get("stack_trace")
    arguments = ", ".join([*map(_shown, node.args), *(f"{k}={_shown(v)}" for k, v in node.kwargs.items())])
    op = node.op if node.op in ("placeholder", "output", "get_attr") else str(node.target)
    return Node(node.name, op, arguments, _type(node.meta.get("val")), _frames(stack) if isinstance(stack, str) else ())


@lru_cache(maxsize=4096)
def _frames(stack: str) -> tuple[tuple[str, int], ...]:
    """The frames outside of PyTorch, outermost first; all of them where there is no other."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(stack)]
    mine = [frame for frame in frames if not frame[0].startswith(_TORCH_ROOT)]
    return tuple(mine or frames)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(map(str, value.shape))}".replace("'", "")
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(_type(item) for item in cast(Iterable[Any], value))
    return "" if value is None else type(value).__name__
