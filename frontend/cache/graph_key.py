# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compiled graph depends on, as one text and its digest: the key of the persistent cache.

The text holds the graph (ops, arguments; for every value its dtype, sizes, strides, offset, device and storage), the
options, the settings of PyTorch that change code, the versions of all that generates code, Kiln's own source, and the
processor. Names of nodes are in it too: reports and kernels carry them. Lines of the model's source are not: a report
from the cache shows those of the process that compiled.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import operator
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from kiln.entry_points import LOWERINGS, PATTERNS, is_named
from kiln.frontend.cache.source_key import Uncacheable, pass_text, pattern_text, rule_text, source_text
from kiln.frontend.distances import DISTANCE
from kiln.frontend.donated import DONATED
from kiln.frontend.import_.hints import size_hints
from kiln.frontend.import_.limits import LIMITS
from kiln.frontend.import_.signs import NEGATIVE
from kiln.frontend.options import Options, matmul_precision
from kiln.frontend.recomputed import ROUNDED
from kiln.lowering.target import is_built_in

__all__ = ["Uncacheable", "code_settings", "graph_key", "graph_text", "settings_text", "version_text"]

_PACKAGES = ("torch-mlir", "llvmlite", "triton", "kiln-mlir")
_FUNCTIONS = ("_operator", "math", "torch")
"""Modules whose functions (getitem, arithmetic on sizes, torch.sym_max) mean the same in every process."""
_NOT_KEYS = ("debug_dir", "override", "trace", "trace_html", "cache", "passes", "schedules")
"""Options that change no code, or have a text of their own."""


def graph_key(gm: GraphModule, kind: str, options: Options) -> str:
    """SHA-256 digest, hexadecimal, of everything that the code for ``gm`` depends on.

    Raises:
        Uncacheable: part of that exists in this process only.
    """
    text = "\n".join([settings_text(options), kind, graph_text(gm)])
    return hashlib.sha256(text.encode()).hexdigest()


def settings_text(options: Options) -> str:
    """All that the code of every graph depends on: versions, the processor, settings, options.

    Raises:
        Uncacheable: part of that exists in this process only.
    """
    _check_settings(options)
    return "\n".join([version_text(), _torch_settings(), _options_text(options)])


def code_settings(options: Options) -> list[str]:
    """Those settings that Dynamo's guards do not check before each call: where they are others, code is made anew.

    (The guards check the number of threads, the default dtype and deterministic algorithms.)

    Raises:
        Uncacheable: part of that exists in this process only.
    """
    _check_settings(options)
    precision = f"matmul precision {matmul_precision()}"
    return [*version_text().split("; "), precision, f"GPUs {_gpus()}", _options_text(options)]


def _check_settings(options: Options) -> None:
    if options.target and not is_built_in(options.target):
        raise Uncacheable(f"target {options.target!r} is code from outside")
    if options.pipeline:
        raise Uncacheable("a pipeline of one's own may hold passes of this process")


def _options_text(options: Options) -> str:
    text = repr(sorted((f.name, getattr(options, f.name)) for f in fields(options) if f.name not in _NOT_KEYS))
    rules = [rule_text(rule) for rule in options.schedule_rules]
    own = (pass_text(options.inserts) if options.inserts else "") + (repr(rules) if rules else "")
    return text + own + _patterns_text() + _rules_text()


def graph_text(gm: GraphModule) -> str:
    """The graph as text that is equal for graphs with equal code."""
    writer = _Writer(gm)
    meta = gm.meta
    settings = f"limits {meta.get(LIMITS, [])}", f"negative {meta.get(NEGATIVE, [])}", f"hints {size_hints(gm)}"
    return "\n".join([*(writer.node(node) for node in gm.graph.nodes), *settings])


class _Writer:
    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.storages: dict[int, int] = {}

    def node(self, node: Node) -> str:
        if node.op == "output":
            return f"output {self.argument(node.args)}"
        value = self.value(node.meta.get("val"))
        if node.op == "placeholder":
            return f"{node.name} = input : {value}{f' {DONATED}' if DONATED in node.meta else ''}"
        if node.op == "get_attr":
            return f"{node.name} = constant {node.target} {self.constant(str(node.target))} : {value}"
        if node.op != "call_function":
            raise Uncacheable(f"node {node.name} is a {node.op}")
        marks = "".join(f" {mark}" for mark in (ROUNDED, DISTANCE) if mark in node.meta)
        return f"{node.name} = {_target(node)} {self.argument(node.args)} {self.argument(node.kwargs)} : {value}{marks}"

    def argument(self, value: Any) -> str:
        """Arguments with nodes by name; anything without a fixed text is refused."""

        def check(leaf: Any) -> Any:
            if isinstance(leaf, (Node, bool, int, float, complex, str, type(None), slice, range)):
                return cast(Any, leaf)
            if isinstance(leaf, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
                return leaf
            raise Uncacheable(f"an argument is a {type(leaf).__name__}")

        return repr(map_aggregate(value, check))

    def constant(self, target: str) -> str:
        """Elements of a lifted tensor: small ones are folded into the code, so all are part of the key."""
        tensor: Any = functools.reduce(getattr, target.split("."), self.gm)
        if not isinstance(tensor, torch.Tensor):
            raise Uncacheable(f"attribute {target} is a {type(tensor).__name__}")
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
            raise Uncacheable(f"attribute {target} is no plain tensor in main memory")
        data = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
        return hashlib.sha256(data.data).hexdigest()

    def value(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            sizes = f"{_texts(value.size())} {_texts(value.stride())} {value.storage_offset()}"
            storage = self.storages.setdefault(value.untyped_storage()._cdata, len(self.storages))
            flags = f"{int(value.is_conj())}{int(value.is_neg())}"
            return f"{value.dtype} {value.device} {sizes} {flags} {type(value).__name__} @{storage}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(self.value(item) for item in cast(Sequence[Any], value))})"
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return f"{type(value).__name__} {value.node.expr}"
        if isinstance(value, (bool, int, float, str, type(None))):
            return repr(value)
        raise Uncacheable(f"a value is a {type(value).__name__}")


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _texts(sizes: Iterable[Any]) -> str:
    return f"[{', '.join(str(size) for size in sizes)}]"


def _target(node: Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(cast(Any, target))
    module = getattr(target, "__module__", "")
    if target is operator.getitem or module in _FUNCTIONS:
        return f"{module}.{getattr(target, '__name__', target)}"
    raise Uncacheable(f"{node.name} calls {getattr(target, '__name__', target)}, which is no ATen op")


def _patterns_text() -> str:
    """The patterns in force, in their order, where some are from outside (their registry has been imported then)."""
    registry = _registry("kiln.passes.patterns.registry", PATTERNS)
    if registry is None or not registry.has_outside_patterns():
        return ""
    outside, has_builtin = registry.outside_patterns()
    return repr([[pattern_text(entry) for entry in outside], has_builtin])


def _rules_text() -> str:
    """The conversions of ops from outside, if there are any."""
    registry = _registry("kiln.passes.torch_to_kiln.registry", LOWERINGS)
    rules: list[tuple[str, Any]] = registry.outside_rules() if registry is not None else []
    return repr([(name, source_text(rule)) for name, rule in rules]) if rules else ""


def _registry(name: str, group: str) -> Any:
    """A registry that somebody may have added to: one that is imported, or that installed packages have entries of."""
    return importlib.import_module(name) if is_named(group) else sys.modules.get(name)


def _torch_settings() -> str:
    settings = [
        torch.get_num_threads(),
        matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    ]
    return repr(settings + _gpus())


def _gpus() -> list[str]:
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


@functools.cache
def version_text() -> str:
    """Versions of PyTorch and of everything that generates code, a digest of Kiln's source, and the processor."""
    from kiln.lowering.cpu.isa import host
    from kiln.lowering.machine_files import digest

    versions = [f"torch {torch.__version__}"]
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} none")
    if path := os.environ.get("TRITON_PTXAS_PATH"):  # the user's choice (lowering/gpu/assembler.py)
        versions.append(f"ptxas {path}")
    return "; ".join([*versions, f"source {_source_digest()}", repr(host()), f"machine {digest()}"])


def _source_digest() -> str:
    """Digest of Kiln's Python files and tables: a checkout that is being worked on never runs code of another state."""
    import kiln

    digest = hashlib.sha256()
    root = Path(kiln.__file__).resolve().parent
    for folder in sorted(entry.resolve() for entry in root.iterdir() if entry.is_dir()):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]):
            digest.update(f"{folder.name}/{path.relative_to(folder)}\0".encode())
            digest.update(path.read_bytes())
    for path in sorted(root.glob("*.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
