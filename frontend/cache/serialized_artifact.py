# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A compiled graph as PyTorch's caches keep it: by its key in Kiln's cache, or whole.

AOTAutograd's cache keeps the key (a ``Reference``). Where PyTorch bundles code and metadata (``caching_precompile``,
``aot_compile``), it pickles the ``SerializedArtifact``, whose state is plain bytes: a JSON header, and the stored graph
of ``stored_graph.py`` behind a digest of both. What was changed on the way, or made by other versions, with other
settings, or for another processor, raises when it is unpickled, which PyTorch takes for an entry that is not there.

Source: torch/_inductor/output_code.py, torch/_functorch/_aot_autograd/aot_autograd_result.py.
"""

import base64
import dataclasses
import hashlib
import itertools
import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import torch
from torch._guards import TracingContext
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from typing_extensions import override

from kiln.errors import KilnError
from kiln.frontend.cache.compiled_graphs import graph_cache, load_graph, load_stored
from kiln.frontend.cache.graph_key import Uncacheable, code_settings
from kiln.frontend.calls.output_strides import Strides
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.frontend.report.announce import announce

__all__ = ["Constant", "SerializedArtifact", "Reference", "unpickled"]

_MAGIC = b"KILNCODE"
_HEADER = struct.Struct("<8sI32s")


@dataclasses.dataclass(frozen=True)
class Constant:
    """A tensor lifted into a graph: its dtype's name, its elements as base64."""

    name: str
    dtype: str
    shape: list[int]
    data: str

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> "Constant":
        """``tensor`` is contiguous and in main memory."""
        data = base64.b64encode(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()).decode()
        return cls(name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data)

    def tensor(self) -> torch.Tensor:
        """The tensor in main memory, with the kept shape and dtype."""
        dtype, data = getattr(torch, self.dtype), bytearray(base64.b64decode(self.data))
        return torch.frombuffer(data, dtype=dtype).reshape(self.shape) if data else torch.empty(self.shape, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Reference:
    """Where Kiln's cache has a graph, and what is needed to load it from there.

    graph, nodes: as in its CompileReport. key: that of Kiln's cache. strides: those of a forward graph's outputs; None
    for other graphs, and where they are known at run time only (``has_sizes``). constants: the tensors lifted into it.
    """

    graph: str
    nodes: int
    key: str
    strides: Strides | None
    has_sizes: bool
    constants: list[Constant]

    def text(self) -> str:
        """The reference as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "Reference":
        """The inverse of `text`. Raises KeyError, TypeError or ValueError for other JSON."""
        fields = json.loads(text)
        fields["constants"] = [Constant(**constant) for constant in fields["constants"]]
        return cls(**fields)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The constants by name."""
        return {constant.name: constant.tensor() for constant in self.constants}

    def load(self, options: Options) -> "SerializedArtifact | None":
        """The code; None where it is gone, or the strides of its outputs are asked for and not known."""
        context = TracingContext.try_get()
        asked = None if context is None else context.output_strides
        if asked is not None and self.has_sizes:
            return None
        report = CompileReport(self.graph, self.nodes)
        with unset_fake_temporarily():
            run = load_graph(self.key, self.tensors(), options, report)
        if run is None:
            return None
        if asked is not None and self.strides is not None:
            asked.clear()
            asked.extend(None if found is None else tuple(found) for found in self.strides)
        return SerializedArtifact(run, self, options, loaded=report)


class _OnlyOfInstances:
    """A class attribute that is missing unless an instance has set it, whatever base classes say."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        raise AttributeError(self.name)


@dataclasses.dataclass(eq=False)
class SerializedArtifact(OutputCode):
    """A compiled graph as AOTAutograd gets it.

    ``_fx_graph_cache_key``, which is what an entry of AOTAutograd's cache keeps of it, is the text of ``reference``;
    where there is none, ``reason`` tells why. ``stored`` is the stored graph, as far as it was asked for. ``loaded``:
    the report of a graph that was not compiled now.
    """

    # PyTorch 2.11 and 2.12 keep every result that has the attribute, and assert that it is not None; OutputCode gives
    # it to all, as None.
    _fx_graph_cache_key = _OnlyOfInstances()  # type: ignore[assignment] - a property of instances alone

    run: Callable[[list[Any]], list[Any]]
    reference: Reference | None
    options: Options
    reason: str = ""
    stored: bytes | None = None
    loaded: CompileReport | None = None

    def __post_init__(self) -> None:
        self._boxed_call = True
        self._time_taken_ns = 0
        if self.reference is not None:
            self._fx_graph_cache_key = self.reference.text()

    @override
    def __call__(self, inputs: list[Any]) -> list[Any]:  # type: ignore[override] - a graph takes one list
        return self.run(inputs)

    def prepare_for_serialization(self) -> None:
        """Nothing: the code of this process is not part of the state."""

    @override
    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        if self.loaded is not None:
            announce(self.loaded, self.options)

    def __copy__(self) -> "SerializedArtifact":
        return self

    def __deepcopy__(self, memo: Any) -> "SerializedArtifact":
        return self

    def __reduce__(self) -> tuple[Callable[[bytes], "SerializedArtifact"], tuple[bytes]]:
        return unpickled, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """The graph with its code. Raises PicklingError, with the reason, for one that cannot leave the process."""
        if self.reference is None:
            raise pickle.PicklingError(f"a graph that Kiln compiled cannot be kept: {self.reason}")
        self.stored = self.stored or graph_cache().get(self.reference.key)
        if self.stored is None:
            raise pickle.PicklingError("a graph that Kiln compiled cannot be kept: Kiln's cache has lost its code")
        if self.options.passes:
            raise pickle.PicklingError(
                "a graph that Kiln compiled cannot be kept: own passes are objects of this process"
            )
        try:
            settings = code_settings(self.options)
        except Uncacheable as reason:
            raise pickle.PicklingError(f"a graph that Kiln compiled cannot be kept: {reason}") from reason
        fields = {"reference": self.reference.text(), "options": dataclasses.asdict(self.options), "settings": settings}
        header = json.dumps(fields).encode()
        digest = hashlib.sha256(header + b"\0" + self.stored).digest()
        return _HEADER.pack(_MAGIC, len(header), digest) + header + self.stored


def unpickled(state: bytes) -> SerializedArtifact:
    """Inverse of ``SerializedArtifact.to_bytes``. Raises KilnError where the code must not, or cannot, be used here."""
    fields, stored = _parts(state)
    options, reference = Options(**fields["options"]), Reference.of_text(fields["reference"])
    try:
        here = code_settings(options)
    except Uncacheable as reason:
        raise KilnError(f"a kept graph is compiled again: {reason}") from reason
    for was, found in itertools.zip_longest(fields["settings"], here):
        if was != found:
            raise KilnError(f"a kept graph is compiled again: it was made with {was}, and here is {found}")
    report = CompileReport(reference.graph, reference.nodes)
    with unset_fake_temporarily(), report.stage("cache"):
        tensors = reference.tensors()
        run = load_stored(stored, lambda names: {name: tensors[name] for name in names}, options, report)
    report.key = reference.key
    return SerializedArtifact(run, reference, options, stored=stored, loaded=report)


def _parts(state: bytes) -> tuple[dict[str, Any], bytes]:
    if len(state) < _HEADER.size:
        raise KilnError("a kept graph is cut off")
    magic, length, digest = _HEADER.unpack_from(state)
    header, stored = state[_HEADER.size : _HEADER.size + length], state[_HEADER.size + length :]
    if magic != _MAGIC or digest != hashlib.sha256(header + b"\0" + stored).digest():
        raise KilnError("a kept graph is damaged, or of another format")
    fields = json.loads(header)
    if set(fields["options"]) != {field.name for field in dataclasses.fields(Options)}:
        raise KilnError("a kept graph is compiled again: it was made by another version of Kiln")
    return fields, stored
