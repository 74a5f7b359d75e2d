# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Code from outside of Kiln (own passes, patterns) as text that is equal in processes that would compile the same.

The text has digests of source files: that of the code, and those beside it that are loaded. A file that changed since
this process began may be another one than what was loaded, so nothing that depends on it is kept.
"""

import functools
import hashlib
import inspect
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import torch
import torch.utils._pytree as pytree

from kiln.inserts import Insert

__all__ = ["Uncacheable", "pass_text", "pattern_text", "rule_text", "source_text"]

_STARTED = time.time()
_INSTALLED = ("site-packages", "dist-packages")
_VERSIONED = ("kiln", "builtins", "torch", "torch_mlir", "abc", "typing")
"""Packages whose versions are part of every key."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Uncacheable(Exception):
    """The graph holds what has no meaning outside of this process; the text says what."""


def pass_text(inserts: Iterable[Insert]) -> str:
    """What own passes add to the code of a graph.

    Raises:
        Uncacheable: the source of one is not known, or an option has a value without a text.
    """
    return repr([(insert.place, _pass(insert)) for insert in inserts])


def _pass(insert: Insert) -> str:
    if isinstance(insert.passes, str):
        from kiln.dialects import create_context
        from kiln.passes import parse_pipeline

        with create_context():
            steps = parse_pipeline(insert.passes)
        return f"{insert.passes} {[source_text(type(step.pass_)) for step in steps]}"
    values = {name: value for name, value in vars(insert.passes).items() if not name.startswith("_")}
    return f"{insert.passes.name} {_Writer().value(values)} {source_text(type(insert.passes))}"


def pattern_text(entry: Any) -> str:
    """What a pattern from outside (`RewritePattern`) adds to the code of a graph. Raises as ``pass_text``."""
    functions = [source_text(f) for f in (entry.pattern, entry.replacement, entry.condition) if f is not None]
    return f"{entry.name} {functions} {_Writer().value(entry.example_inputs())} {entry.tolerance} {entry.whole}"


def rule_text(rule: Any) -> str:
    """What a rule that chooses schedules adds: a function, or an object and its attributes. Raises as `pass_text`."""
    if isinstance(rule, FunctionType | type | functools.partial):
        return source_text(cast(Any, rule))
    if isinstance(rule, MethodType):
        return f"{_Writer().value(vars(rule.__self__))} {source_text(rule.__func__)}"
    return f"{_Writer().value(vars(rule))} {source_text(type(rule))}"


def source_text(code: Any) -> str:
    """A function or a class: its name, a digest of its source, and the values that it closes over.

    Raises:
        Uncacheable: there is no source, or it changed, or a value has no text.
    """
    return _Writer().code(code)


class _Writer:
    """``seen``: functions and classes that are being written, which may refer to themselves."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def code(self, code: Any) -> str:
        """See ``source_text``."""
        if isinstance(code, functools.partial):
            inner = cast("functools.partial[Any]", code)
            return f"{self.code(inner.func)} {self.value([inner.args, inner.keywords])}"
        module = str(getattr(code, "__module__", ""))
        name = f"{module}.{getattr(code, '__qualname__', code)}"
        if module.partition(".")[0] in _VERSIONED or id(code) in self.seen:
            return name
        if not isinstance(code, FunctionType | type):
            raise Uncacheable(f"the source of {name} is not known")
        self.seen.add(id(code))
        if isinstance(code, FunctionType):
            return f"{name} {_source(code, name)} {self.function(code)}"
        own = [f for n, f in vars(code).items() if isinstance(f, FunctionType) and not n.startswith("__")]
        methods = [self.function(f) for f in own]  # not what makes a class a dataclass
        return f"{name} {_source(code, name)} {methods} {[self.code(base) for base in code.__bases__]}"

    def function(self, code: FunctionType) -> str:
        """What the source file does not say: which function of that name it is, and what it closes over."""
        cells = [cell.cell_contents for cell in code.__closure__ or ()]
        return f"{_code_text(code.__code__)} {self.value([cells, code.__defaults__, code.__kwdefaults__])}"

    def value(self, value: Any) -> str:
        """Numbers, texts, containers of them, tensors without their elements, and functions."""
        leaves, spec = pytree.tree_flatten(value)
        return f"{[self.leaf(leaf) for leaf in leaves]} {spec}"

    def leaf(self, leaf: Any) -> str:
        """One value that is no container."""
        if isinstance(leaf, torch.Tensor):
            return f"{leaf.dtype} {list(leaf.shape)} {list(leaf.stride())} {leaf.device}"
        if isinstance(leaf, _PLAIN):
            return repr(leaf)
        if callable(leaf):
            return self.code(leaf)
        raise Uncacheable(f"a {type(leaf).__name__} in code from outside has no text")


def _code_text(code: CodeType) -> str:
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_firstlineno} {code.co_code.hex()} {code.co_names} {constants}"


def _source(code: "Callable[..., Any] | type", name: str) -> str:
    try:
        file = Path(inspect.getsourcefile(code) or "")
        texts = [path.read_bytes() for path in _beside(file)] if file.is_file() else [inspect.getsource(code).encode()]
    except (OSError, TypeError) as error:
        raise Uncacheable(f"the source of {name} is not known") from error
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()


def _beside(file: Path) -> list[Path]:
    """A file, and the loaded ones in its folder and below. Raises Uncacheable where one changed since it was loaded."""
    folder = file.parent
    files = {file}
    if folder.name not in _INSTALLED:
        files |= {
            path for path in map(_file_of, list(sys.modules.values())) if path is not None and folder in path.parents
        }
    own = sorted(path for path in files if not any(part in _INSTALLED for part in path.relative_to(folder).parts))
    for path in own:
        if path.stat().st_mtime > _STARTED:
            raise Uncacheable(f"{path} changed while this process was running")
    return own


def _file_of(module: ModuleType | None) -> Path | None:
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    is_source = isinstance(file, str) and file.endswith(".py") and not name.startswith("kiln.")
    return Path(str(file)) if is_source and Path(str(file)).is_file() else None
