# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What AOTAutograd made of a Dynamo graph, kept in PyTorch's own cache: a graph that is there is not traced again.

PyTorch keeps AOTAutograd's results (metadata, wrappers, where forward ends and backward begins) for compilers that
return an ``OutputCode``, and with them the keys of the code in Inductor's cache. Here these are keys of Kiln's cache,
and an entry whose graphs have gone from there is a miss, and is made again. The entry's own key has the graph, its
inputs and PyTorch's settings as PyTorch takes them down, which inputs share memory, and Kiln's options and versions
(``frontend/graph_key.py``) where PyTorch's has Inductor's. What PyTorch finds unsafe to keep (calls of Python
functions, some higher-order ops) is traced each time.

Sources: torch/_functorch/_aot_autograd/{autograd_cache,aot_autograd_result}.py, torch/_inductor/output_code.py.
"""

import base64
import contextlib
import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch import config
from torch._functorch._aot_autograd import autograd_cache
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler  # pyright: ignore[reportPrivateImportUsage]
from torch._guards import TracingContext
from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from kiln.frontend.cached import load_graph
from kiln.frontend.graph_key import Uncacheable, settings_text
from kiln.frontend.options import Options
from kiln.frontend.output_strides import Strides, output_strides
from kiln.frontend.report import CompileReport, collect, publish
from kiln.frontend.standing_in import standing_in

__all__ = ["keeping_traces", "serializable"]

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]

_MAX_CONSTANT_BYTES = 1 << 16
"""Lifted tensors that an entry may hold."""


# All that is private to PyTorch is asked for when this file is imported: see frontend/traces.py.
for _owner, _name in (
    (autograd_cache, "AOTAutogradCacheDetails"),
    (autograd_cache.AOTAutogradCacheDetails, "_init_fx_graph_hash_details"),
    (FxGraphCache, "_check_can_cache"),
    (FxGraphCache, "load_with_key"),
    (config, "bundled_autograd_cache"),
    (config, "enable_autograd_cache"),
):
    if not hasattr(_owner, _name):
        raise ImportError(f"this PyTorch has no {_owner.__name__}.{_name}")


class _Current(threading.local):
    options: Options | None = None
    salt = ""


_current = _Current()


class _Details(autograd_cache.AOTAutogradCacheDetails):
    """What an entry's key is the digest of: Kiln's settings in place of Inductor's, and of digests of all source files
    of PyTorch and Triton, which take half a second to compute."""

    def _init_fx_graph_hash_details(self, gm: Any, example_inputs: Any, fx_config: Any) -> None:
        try:
            FxGraphCache._check_can_cache(gm, example_inputs, fx_config)
        except BypassFxGraphCache as error:
            raise autograd_cache.BypassAOTAutogradCache(str(error)) from error
        if not all(isinstance(value, (torch.Tensor, torch.SymInt, int, float)) for value in example_inputs):
            raise autograd_cache.BypassAOTAutogradCache("an input is neither a tensor nor a number")
        constants = [_lifted(module) for module in gm.modules() if isinstance(module, GraphModule)]
        if None in constants:
            raise autograd_cache.BypassAOTAutogradCache("a tensor lifted into the graph is large, or no plain one")
        # The pickled graph has such tensors without their elements.
        self.gm, self.example_inputs, self.constants, self.kiln = gm, list(example_inputs), constants, _current.salt


@dataclasses.dataclass
class _KeptCode(OutputCode):
    """A compiled graph as AOTAutograd gets it.

    `_fx_graph_cache_key`, which is what an entry keeps of it, is the text of a `_Reference`; None: no entry.
    """

    run: Callable[[list[Any]], list[Any]] | None

    def __post_init__(self) -> None:
        self._boxed_call = True
        self._time_taken_ns = 0

    def __call__(self, inputs: list[Any]) -> list[Any]:  # type: ignore[override]
        return self.run(inputs)  # type: ignore[misc]

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class _Reference:
    """Where Kiln's cache has a graph, and what is needed to load it from there.

    graph, nodes: as in its CompileReport. key: that of Kiln's cache. strides: those of a forward graph's outputs.
    constants: the tensors lifted into it.
    """

    graph: str
    nodes: int
    key: str
    strides: Strides | None
    constants: "list[_Constant]"

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "_Reference":
        fields = json.loads(text)
        fields["constants"] = [_Constant(**constant) for constant in fields["constants"]]
        return cls(**fields)

    def load(self, options: Options) -> _KeptCode | None:
        """The code, with a report of it published; None where it is gone."""
        report = CompileReport(self.graph, self.nodes)
        with unset_fake_temporarily():
            tensors = {constant.name: constant.tensor() for constant in self.constants}
            run = load_graph(self.key, tensors, options, report)
        if run is None:
            return None
        context = TracingContext.try_get()
        if self.strides is not None and context is not None and context.output_strides is not None:
            context.output_strides.clear()
            context.output_strides.extend(None if found is None else tuple(found) for found in self.strides)
        publish(report)
        return _KeptCode(run)


def _load_with_key(key: str, *_: Any, **__: Any) -> tuple[_KeptCode | None, dict[str, Any]]:
    """In place of ``FxGraphCache.load_with_key``, which loads Inductor's code."""
    assert _current.options is not None
    return _Reference.of_text(key).load(_current.options), {}


def serializable(compiler: Compiler, options: Options) -> Compiler:
    """A compiler whose results may be kept, from one that publishes a report of what it compiles."""
    if not _is_on(options):
        return compiler

    def compiled(gm: GraphModule, inputs: Sequence[Any]) -> OutputCode:
        with collect() as reports:
            run = compiler(gm, inputs)
        report = reports[-1]
        strides = output_strides(gm) if report.graph == "forward" else None
        constants = _lifted(gm)
        code = _KeptCode(run)
        if report.key and constants is not None and not any(map(_is_symbolic, strides or [])):
            code._fx_graph_cache_key = _Reference(report.graph, report.nodes, report.key, strides, constants).text()
        return code

    return SerializableAOTDispatchCompiler(_KeptCode, compiled)  # type: ignore[return-value]


@contextlib.contextmanager
def keeping_traces(inputs: Sequence[Any], options: Options) -> Iterator[None]:
    """While AOTAutograd runs in the block with compilers of ``serializable``, it looks its result up and keeps it."""
    if not _is_on(options):
        yield
        return
    try:
        salt = f"{settings_text(options)}\n{_sharing(inputs)}"
    except Uncacheable:
        with config.patch(enable_autograd_cache=False):
            yield
        return

    before = _current.options, _current.salt
    _current.options, _current.salt = options, salt
    try:
        # Dynamo compiles under a lock of the process.
        ours = (
            (autograd_cache, "AOTAutogradCacheDetails", _Details),
            (FxGraphCache, "load_with_key", staticmethod(_load_with_key)),
        )
        with standing_in(*ours), config.patch(bundled_autograd_cache=False):
            yield
    finally:
        _current.options, _current.salt = before


def _is_on(options: Options) -> bool:
    """Whether graphs go to the persistent cache; frozen ones depend on the elements of parameters."""
    return options.cache and not options.debug_dir and not options.freezing


def _is_symbolic(strides: tuple[int, ...] | None) -> bool:
    return strides is not None and any(isinstance(step, torch.SymInt) for step in strides)


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A tensor lifted into a graph: its dtype's name, its elements as base64."""

    name: str
    dtype: str
    shape: list[int]
    data: str

    def tensor(self) -> torch.Tensor:
        dtype, data = getattr(torch, self.dtype), bytearray(base64.b64decode(self.data))
        return torch.frombuffer(data, dtype=dtype).reshape(self.shape) if data else torch.empty(self.shape, dtype=dtype)


def _lifted(gm: GraphModule) -> list[_Constant] | None:
    """The tensors lifted into a graph; None if they are too large, or no plain ones in main memory."""
    found: list[_Constant] = []
    with unset_fake_temporarily():
        for name in {str(node.target): None for node in gm.graph.nodes if node.op == "get_attr"}:
            value: Any = functools.reduce(getattr, name.split("."), gm)
            if isinstance(value, torch.nn.Module):
                continue  # the body of a higher-order op
            if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
                return None
            if not value.is_contiguous() or value.is_conj() or value.is_neg() or value.nbytes > _MAX_CONSTANT_BYTES:
                return None
            data = base64.b64encode(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes()).decode()
            found.append(_Constant(name, str(value.dtype).removeprefix("torch."), list(value.shape), data))
    return found if sum(len(constant.data) for constant in found) <= _MAX_CONSTANT_BYTES else None


def _sharing(inputs: Sequence[Any]) -> str:
    """Which inputs lie in the same memory: AOTAutograd makes other code for those that are written to."""
    numbers: dict[int, int] = {}
    found: list[int] = []
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            found.append(numbers.setdefault(value.untyped_storage()._cdata, len(numbers)))
    return repr(found) if len(numbers) < len(found) else ""
