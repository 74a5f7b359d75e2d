# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What AOTAutograd made of a Dynamo graph, kept in PyTorch's own cache: a graph that is there is not traced again.

PyTorch keeps AOTAutograd's results (metadata, wrappers, where forward ends and backward begins) for compilers that
return an ``OutputCode``, and with them the keys of the code in Inductor's cache. Here these are keys of Kiln's cache,
and an entry whose graphs have gone from there is a miss, and is made again. The entry's own key has the graph, its
inputs and PyTorch's settings as PyTorch takes them down, which inputs share memory, and Kiln's options and versions
(``frontend/cache/graph_key.py``) where PyTorch's has Inductor's. What PyTorch finds unsafe to keep (calls of Python
functions, some higher-order ops) is traced each time.

Sources: torch/_functorch/_aot_autograd/{autograd_cache,aot_autograd_result}.py, torch/_inductor/output_code.py.
"""

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
import torch._inductor.async_compile  # PyTorch refers to it when it loads an entry, and does not import it
from torch._dynamo import config as dynamo_config
from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
from torch._functorch import config
from torch._functorch._aot_autograd import autograd_cache
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler  # pyright: ignore[reportPrivateImportUsage] - it has no public name
from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache, FxGraphHashDetails
from torch._inductor.output_code import OutputCode
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from kiln.errors import CompileError
from kiln.frontend.cache.autograd_cache_failures import guards
from kiln.frontend.cache.graph_key import Uncacheable, settings_text
from kiln.frontend.cache.serialized_artifact import Constant, Reference, SerializedArtifact
from kiln.frontend.calls.output_strides import output_strides
from kiln.frontend.import_.hints import hints_of
from kiln.frontend.options import Options
from kiln.frontend.patched_attributes import patched_attributes
from kiln.frontend.report import collect
from kiln.frontend.report.log_topics import is_logged

__all__ = ["keeping_traces", "savable", "serializable"]

log = logging.getLogger("kiln")
_told: set[str] = set()

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]

_MAY_HOLD_KERNELS = (OpOverload, OpOverloadPacket, HigherOrderOperator)

_MAX_CONSTANT_BYTES = 1 << 16
"""Lifted tensors that an entry may hold."""


# All that is private to PyTorch is asked for when this file is imported: see frontend/cache/autograd_cache.py.
for _owner, _name in (
    (autograd_cache, "AOTAutogradCacheDetails"),
    (FxGraphCache, "load_with_key"),
    (config, "bundled_autograd_cache"),
    (config, "enable_autograd_cache"),
    (config, "strict_autograd_cache"),
):
    if not hasattr(_owner, _name):
        raise ImportError(f"this PyTorch has no {_owner.__name__}.{_name}")
if not issubclass(autograd_cache.AOTAutogradCacheDetails, FxGraphHashDetails):
    raise ImportError("the keys of this PyTorch have no part that is Inductor's")


class _Current(threading.local):
    options: Options | None = None
    salt = ""


_current = _Current()


class _Settings(FxGraphHashDetails):
    """Kiln's settings in place of Inductor's, and of digests of all source files of PyTorch and Triton, which take half
    a second to compute.
    """

    def __init__(self, gm: Any, example_inputs: Sequence[Any], *_: Any) -> None:
        if not all(isinstance(value, (torch.Tensor, torch.SymInt, int, float)) for value in example_inputs):
            raise BypassFxGraphCache("an input is neither a tensor nor a number")
        constants = [_lifted(module) for module in gm.modules() if isinstance(module, GraphModule)]
        if None in constants:
            raise BypassFxGraphCache("a tensor lifted into the graph is large, or no plain one")
        # The pickled graph has such tensors without their elements.
        self.gm, self.example_inputs, self.constants, self.kiln = gm, list(example_inputs), constants, _current.salt
        # PyTorch 2.11 takes down whether there is any.
        devices = filter(torch.is_autocast_enabled, torch._C._autocast_supported_devices())
        self.autocast = {device: torch.get_autocast_dtype(device) for device in devices}


class _Details(autograd_cache.AOTAutogradCacheDetails, _Settings):
    """What an entry's key is the digest of. PyTorch's class asks the next one, by ``super()``, for Inductor's part:
    here ``_Settings``.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if not hasattr(self, "kiln"):
            raise autograd_cache.BypassAOTAutogradCache("this PyTorch makes keys in another way")

    def get_triton_source_codes_from_gm(self, gm: GraphModule) -> list[str]:
        """Sources of the Triton kernels in a graph. PyTorch's method imports Inductor's code generator even if no node
        can have one: neither an op of a library (Dynamo's graphs have functions) nor a higher-order op.
        """
        graphs = (module.graph for module in gm.modules() if isinstance(module, GraphModule))
        targets = (node.target for graph in graphs for node in graph.nodes)
        if not any(isinstance(target, _MAY_HOLD_KERNELS) for target in targets):
            return []
        return super().get_triton_source_codes_from_gm(gm)


def _load_with_key(key: str, *_: Any, **__: Any) -> tuple[SerializedArtifact | None, dict[str, Any]]:
    """In place of ``FxGraphCache.load_with_key``, which loads Inductor's code."""
    assert _current.options is not None
    return Reference.of_text(key).load(_current.options), {}


def serializable(compiler: Compiler, options: Options) -> Compiler:
    """A compiler whose results may be kept, from one that publishes a report of what it compiles."""
    if _why_off(options):
        return compiler

    def compiled(gm: GraphModule, inputs: Sequence[Any]) -> OutputCode:
        with collect() as reports:
            run = compiler(gm, inputs)
        report = reports[-1]
        constants = _lifted(gm)
        if not report.key:
            return SerializedArtifact(run, None, options, reason=report.fallback_reason or report.cache)
        if constants is None:
            reason = "a tensor lifted into it is large, or no plain one"
            report.trace = f"not kept: {reason}"
            return SerializedArtifact(run, None, options, reason=reason)
        strides = output_strides(gm) if report.graph == "forward" else None
        has_sizes = any(map(_is_symbolic, strides or []))
        known = None if has_sizes else strides
        return SerializedArtifact(
            run, Reference(report.graph, report.nodes, report.key, known, has_sizes, constants), options
        )

    return SerializableAOTDispatchCompiler(SerializedArtifact, compiled)


@contextlib.contextmanager
def keeping_traces(inputs: Sequence[Any], options: Options) -> Generator[None, None, None]:
    """While AOTAutograd runs in the block with compilers of ``serializable``, it looks its result up and keeps it.

    Raises:
        CompileError: ``aot_compile`` asks for code that can be saved, and there can be none; the text says why.
    """
    reason, settings = _why_off(options), ""
    if not reason:
        try:
            settings = settings_text(options)
        except Uncacheable as error:
            reason = str(error)
    if reason:
        _tell(reason)
        with config.patch(enable_autograd_cache=False):
            yield
        return

    before = _current.options, _current.salt
    # An entry that holds the code is another one than that which holds its key.
    _current.options, _current.salt = options, f"{settings}\n{_sharing(inputs)}\n{hints_of(inputs)}\n{_is_bundled()}"
    try:
        # Dynamo compiles under a lock of the process.
        ours = (
            (autograd_cache, "AOTAutogradCacheDetails", _Details),
            (FxGraphCache, "load_with_key", staticmethod(_load_with_key)),
        )
        with collect() as reports, patched_attributes(*ours, *guards(reports)):
            yield
    finally:
        _current.options, _current.salt = before


def savable(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """AOTAutograd's result as ``aot_compile`` of PyTorch 2.11 takes it; later ones wrap it themselves if it is not."""
    if config.bundled_autograd_cache and getattr(compiled, "serialize", None) is not None:
        return BundledAOTAutogradSerializableCallable(compiled)
    return compiled


def _why_off(options: Options) -> str:
    """Why graphs are not kept for other processes; empty: they are."""
    if options.freezing:
        return "code with frozen weights is for these weights only"
    if options.debug_dir:
        return "the stages are to be dumped"
    if options.override:
        return "edited stages are compiled"
    if is_logged():
        return "schedules or code are to be logged"
    return "" if options.cache else "Kiln's cache is off"


def _is_bundled() -> bool:
    """Whether PyTorch wants entries with the code in them: for ``aot_compile`` and ``caching_precompile``."""
    return config.bundled_autograd_cache or _is_precompiling()


def _is_precompiling() -> bool:
    return getattr(dynamo_config, "caching_precompile", False)


def _tell(reason: str) -> None:
    """That a graph is not kept where the user has asked for it."""
    if config.bundled_autograd_cache and config.strict_autograd_cache:
        raise CompileError(f"the compiled function cannot be saved: {reason}")
    if _is_precompiling() and reason not in _told:
        _told.add(reason)
        log.warning("kiln: caching_precompile keeps no graphs: %s", reason)


def _is_symbolic(strides: tuple[int, ...] | None) -> bool:
    return strides is not None and any(isinstance(step, torch.SymInt) for step in strides)


def _lifted(gm: GraphModule) -> list[Constant] | None:
    """The tensors lifted into a graph; None if they are too large, or no plain ones in main memory."""
    found: list[Constant] = []
    with unset_fake_temporarily():
        for name in {str(node.target): None for node in gm.graph.nodes if node.op == "get_attr"}:
            value: Any = functools.reduce(getattr, name.split("."), gm)
            if isinstance(value, torch.nn.Module):
                continue  # the body of a higher-order op
            if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
                return None
            if not value.is_contiguous() or value.is_conj() or value.is_neg() or value.nbytes > _MAX_CONSTANT_BYTES:
                return None
            found.append(Constant.of(name, value))
    return found if sum(len(constant.data) for constant in found) <= _MAX_CONSTANT_BYTES else None


def _sharing(inputs: Sequence[Any]) -> str:
    """Which inputs lie in the same memory: AOTAutograd makes other code for those that are written to."""
    numbers: dict[int, int] = {}
    found: list[int] = []
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            found.append(numbers.setdefault(value.untyped_storage()._cdata, len(numbers)))
    return repr(found) if len(numbers) < len(found) else ""
