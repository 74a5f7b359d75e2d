# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A compiled graph as data: what to launch, in which order, on which buffers.

A `Plan` is what `kiln.lowering.host.plan.build_plan` returns and what `kiln.runtime.executor.Executor` runs. It holds
numbers, strings and machine code only, so it can be stored (`Plan.to_bytes`) and run in a process without MLIR.

Sizes that depend on symbols are *expressions*: an int, or affine text over the plan's symbols ``s0, s1, ...``
(``"s0 * 4 + s1 floordiv 2"``, as MLIR prints it).
"""

import dataclasses
import json
import struct
from dataclasses import dataclass, field
from typing import Any

from kiln.errors import KilnError
from kiln.runtime.records import decode, encode

__all__ = [
    "AtenStep",
    "Buffer",
    "Check",
    "Convolution",
    "Descriptor",
    "Expr",
    "Kernel",
    "Launch",
    "Operand",
    "Output",
    "Plan",
    "Pointer",
    "Product",
    "Site",
    "Step",
    "Symbol",
    "TensorMap",
]

Expr = int | str
"""A number, or affine text over the symbols s0, s1, ... by position in `Plan.symbols`."""

_MAGIC = b"KILNPLAN"
_VERSION = 12


@dataclass(frozen=True)
class Symbol:
    """A size known only at run time.

    source: "input" (an int argument), "size" or "stride" (of tensor argument `input` along `dim`), "derived" (Python
    expression `expr` over the names of other symbols), "constant" (the integer `expr`) or "aten" (an integer result of
    step `input`, known once that has run).
    """

    name: str
    source: str
    input: int = -1
    dim: int = -1
    expr: str = ""


@dataclass(frozen=True)
class Buffer:
    """One piece of memory.

    kind: "input" (argument `index`), "constant" (`Plan.constants[index]`), "aten" (made by an ATen step), "tensor" (a
    torch tensor of its own: an output, or an operand of an ATen step) or "workspace" (a range of the shared workspace).
    shape, strides: elements; strides are those that generated code assumes.
    bytes: extent from the first to the last element. first, last: indices of the first and last step that use it.
    epoch: 0, or the number of ATen steps with integer results that its sizes wait for.
    """

    kind: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    bytes: Expr
    index: int = -1
    first: int = -1
    last: int = -1
    epoch: int = 0


@dataclass(frozen=True)
class TensorMap:
    """How a kernel wants one tensor descriptor (CUtensorMap) encoded: see `cuTensorMapEncodeTiled`.

    block: elements per dim of the block that it moves, outermost first. type, swizzle: the driver's enumerations.
    """

    block: tuple[int, ...]
    type: int
    item_bytes: int
    swizzle: int


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: function `entry` of `Plan.objects[object]`, or with kind "library" one that a library has.

    On a GPU: threads of a program, bytes of dynamic shared memory, bytes of global memory that each program needs for
    itself, and the formats of its tensor descriptors in the order of its arguments.
    """

    name: str
    entry: str
    object: int
    kind: str
    pointers: int
    symbols: int
    threads: int = 0
    shared: int = 0
    program_scratch: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class Pointer:
    """The address `bytes` past the start of a buffer. `size`: bytes of the distinct elements of the tensor there.

    within: from where to where the memory lies in the buffer that the tensor is a view of; () stands for all of it.
    """

    buffer: int
    bytes: Expr = 0
    size: Expr = 0
    within: tuple[int, ...] = ()


@dataclass(frozen=True)
class Descriptor:
    """Pointer number `pointer` of a launch goes to the kernel as a tensor descriptor (sizes, strides in elements)."""

    pointer: int
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class Product:
    """A product that the GPU's library does: result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], plus bias[n],
    and behind it the activation: "", or "gelu" (GELU through tanh).

    The launch's pointers are lhs, rhs, the bias if there is one, and the result, all of `dtype`. sizes: (b, m, n, k).
    lhs, rhs, result: strides in elements, (batch, row, column); in each one of the last two is 1, in `result` the last.
    candidate: which algorithm, by its place in the library's own ranking. reason: why it is not a kernel of its own.
    """

    dtype: str
    sizes: tuple[Expr, ...]
    lhs: tuple[Expr, ...]
    rhs: tuple[Expr, ...]
    result: tuple[Expr, ...]
    reason: str = ""
    candidate: int = 0
    activation: str = ""


@dataclass(frozen=True)
class Convolution:
    """A convolution without a bias that the GPU's library does; all sizes are [batch, channels, spatial dims...].

    The launch's pointers are image, weight and result, all of `dtype` and dense: channels last, or planar.
    reason: why it is not a kernel of its own.
    """

    dtype: str
    image: tuple[Expr, ...]
    weight: tuple[Expr, ...]
    result: tuple[Expr, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool
    reason: str = ""


@dataclass(frozen=True)
class Site:
    """A place of a kernel of the target "tt-cpu" that may report something (runtime/accesses.py).

    kind: "kernel" (the first one, which says that there is a record), "load", "store", "atomic" (accesses),
    "descriptor", "alignment" (of tensor maps) or "assert". op: its name, and which of that name it is in the kernel.
    source: where the op comes from. detail: what was asserted, or is wrong.
    """

    kind: str
    op: str
    source: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Operand:
    """A tensor made of a buffer: the buffer's own tensor, or (with `shape`) a strided view of it.

    offset: elements past the buffer's first element. dtype: only if it is not the buffer's.
    """

    buffer: int
    shape: tuple[Expr, ...] | None = None
    strides: tuple[Expr, ...] | None = None
    offset: Expr = 0
    dtype: str = ""


@dataclass(frozen=True)
class Check:
    """What a step computes, for checked execution: `Plan.references[reference]` has a function @main in Kiln's IR that
    takes the tensors `operands`, then `symbols`, and returns what the step leaves in `results`. Strides of operands may
    be negative.
    """

    reference: int
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    symbols: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel launch: a pointer per tensor operand, then per result; one value per kernel symbol.

    scratch: bytes per thread. work: elementary operations, which decide how many threads pay; -1 if unknown.
    results: how many of the pointers, the last ones, are written; the others are read.
    checks: the ops that report an index out of range; the kernel takes the address to do so at as its last symbol.
    sites: what may report something; the kernel takes the address to do so at and the step's number, last.
    On a GPU: `scratch` is bytes for the whole launch and has_scratch tells that the kernel takes their address last;
    grid: programs per axis; clear: (pointer number, bytes) to set to zero before; descriptors; product,
    convolution: what a kernel of kind "library" computes. source: the line of the model that it comes from
    ("model.py:12:5"), for error messages. check: in plans for checked execution.
    """

    kernel: int
    pointers: tuple[Pointer, ...]
    symbols: tuple[Expr, ...]
    scratch: Expr = 0
    work: Expr = -1
    results: int = 1
    name: str = ""
    epoch: int = 0
    step: str = "launch"
    has_scratch: bool = False
    grid: tuple[Expr, ...] = ()
    clear: tuple[tuple[int, Expr], ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    checks: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    product: Product | None = None
    convolution: Convolution | None = None
    source: str = ""
    check: Check | None = None

    @property
    def title(self) -> str:
        """The name and the line that it comes from."""
        return f"{self.name} ({self.source})" if self.source else self.name


@dataclass(frozen=True)
class AtenStep:
    """A call through PyTorch's dispatcher; see runtime/aten_call.py for `op`, `args` and `kwargs`.

    results: per tensor result the buffer that it is, -1 for one that nothing reads.
    sizes: (symbol, tensor result, dim) for each symbol that the call makes known; dim -1: the number among its results,
      of which integers follow tensors.
    elsewhere: it reads or makes tensors on another device than the plan's, which a recording of the calls would not.
    """

    op: str
    args: str
    kwargs: str
    operands: tuple[Operand, ...]
    symbols: tuple[Expr, ...]
    results: tuple[int, ...]
    sizes: tuple[tuple[int, int, int], ...] = ()
    name: str = ""
    reason: str = ""
    epoch: int = 0
    step: str = "aten"
    elsewhere: bool = False
    check: Check | None = None


Step = Launch | AtenStep


@dataclass(frozen=True)
class Output:
    """A value that the graph returns: a tensor, or an integer expression."""

    tensor: Operand | None = None
    value: Expr | None = None


@dataclass(frozen=True)
class Constant:
    """A tensor known when the plan is made: `name` if the executor is given it, else `data` (raw bytes in a blob).

    layout: empty, or the offset of element (s0, s1, ...) in memory of `elements` elements, to which it is copied.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    data: int = -1
    layout: str = ""
    elements: int = 0


@dataclass
class Plan:
    """Everything needed to run a compiled graph on `device`: "cpu", or "cuda:0" (objects are then cubins)."""

    name: str
    num_inputs: int
    device: str = "cpu"
    symbols: list[Symbol] = field(default_factory=list[Symbol])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    constants: list[Constant] = field(default_factory=list[Constant])
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    steps: list[Step] = field(default_factory=list[Step])
    outputs: list[Output] = field(default_factory=list[Output])
    references: list[str] = field(default_factory=list[str])  # IR of what steps compute, for checked execution
    offsets: dict[int, int] | None = None  # workspace buffer -> byte offset, when all sizes are static
    cuts: list[int] | None = None  # launches in front of which a run ends; each run then has a workspace of its own
    text: str = ""  # the .plan.mlir dump
    launcher: bytes = b""
    objects: list[bytes] = field(default_factory=list[bytes])
    blobs: list[bytes] = field(default_factory=list[bytes])

    def to_bytes(self) -> bytes:
        """Serialises the plan: a JSON header, then the raw objects. Same plan, same bytes."""
        binary = [self.launcher, *self.objects, *self.blobs]
        header = {f.name: encode(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in _BINARY}
        header["sizes"] = [len(b) for b in binary]
        header["counts"] = [len(self.objects), len(self.blobs)]
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        return _MAGIC + struct.pack("<IQ", _VERSION, len(text)) + text + b"".join(binary)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Plan":
        """Inverse of `to_bytes`. Raises KilnError for data that is no plan of this version."""
        try:
            if data[:8] != _MAGIC:
                raise KilnError("not a Kiln plan")
            version, length = struct.unpack_from("<IQ", data, 8)
            if version != _VERSION:
                raise KilnError(f"plan version {version}, expected {_VERSION}; compile the graph again")
            header = json.loads(data[20 : 20 + length])
            binary: list[bytes] = []
            at = 20 + length
            for size in header.pop("sizes"):
                if at + size > len(data):
                    raise KilnError(f"plan cut off after {len(data)} bytes")
                binary.append(data[at : at + size])
                at += size
            objects, _ = header.pop("counts")
            values: dict[str, Any] = {
                f.name: decode(f.type, header[f.name]) for f in dataclasses.fields(cls) if f.name not in _BINARY
            }
        except (struct.error, KeyError, TypeError, ValueError) as error:
            raise KilnError(f"broken plan: {error}") from error
        return cls(**values, launcher=binary[0], objects=binary[1 : 1 + objects], blobs=binary[1 + objects :])


_BINARY = {"launcher", "objects", "blobs"}
