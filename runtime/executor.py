# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a plan on PyTorch tensors."""

import ctypes
import dataclasses
import importlib
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch

from kiln.errors import KilnError
from kiln.runtime.accesses import WORDS, launch_error
from kiln.runtime.aten_call import decode_call
from kiln.runtime.binding import Binder, Binding, Segment, StateLayout, check_key, segments
from kiln.runtime.heap import use_large_pages
from kiln.runtime.loader import load
from kiln.runtime.owned_inputs import OwnedInputs
from kiln.runtime.packing import packed
from kiln.runtime.plan import AtenStep, Buffer, Operand, Plan
from kiln.runtime.program import derived_values, write_program
from kiln.runtime.threads import max_threads

__all__ = ["Checker", "Executor", "InputError"]

_MAX_BINDINGS = 256
"""Sizes of which bindings are kept; beyond, the oldest is dropped."""


class Checker(Protocol):
    """What looks at each step of a plan; see `kiln.runtime.checked`."""

    def before(
        self, part: int, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor], symbols: Sequence[int]
    ) -> Any:
        """Called before a step: with what it reads, the memory that it writes to if that is there, and its sizes."""
        ...

    def after(self, seen: Any, results: Sequence[torch.Tensor]) -> None:
        """Called behind it, with what `before` returned."""
        ...


class InputError(KilnError):
    """An argument is not what the graph was compiled for."""


class Executor:
    """A callable that runs one plan.

    Args:
      plan: from `kiln.lowering.host.plan.build_plan`, or `Plan.from_bytes`.
      constants: tensors by name for the plan's named constants. Kept alive; their memory must not move.
      check: verify dtype, device, sizes and strides of the arguments at every call, not only at the first one with
        given sizes (0.4 us an argument). Dynamo's guards check the same.
      checker: launches run one by one, and what each of them leaves is compared with what it should be.

    ``executor(inputs)`` takes the graph's inputs (tensors, ints, and whatever the graph ignores) and returns a list of
    fresh output tensors and ints; it may empty an `OwnedInputs`. It may be called from several threads at once and
    re-entrantly: each running call has a state and a workspace of its own, which later calls reuse.

    Raises KilnError when a constant is missing or the code needs a symbol that this PyTorch lacks; at a call,
    IndexError for an index out of range, InputError for an argument of another dtype, device, size or stride than
    compiled for, and whatever an ATen operator raises.
    """

    has_regions = False
    """Whether it tells of each launch itself, and need not ask for PyTorch's profiler."""

    def __init__(
        self,
        plan: Plan,
        constants: Mapping[str, torch.Tensor] | None = None,
        *,
        check: bool = False,
        checker: Checker | None = None,
    ) -> None:
        if checker is not None:  # launches are alone, between which one workspace is there
            plan = dataclasses.replace(plan, cuts=None)
        self.plan = plan
        self._regions: Executor | None = None
        self.constants = self._loaded_constants(constants or {})
        parts = segments(plan, alone=checker is not None)
        self._zones = _zones(plan) if checker is not None and plan.device == "cpu" else None
        self._launched = {p.buffer for part in parts for launch in part.launches for p in launch.pointers}
        self._layout = self._state_layout(parts)
        self._binder, launch = self._load(parts)
        self._bound: dict[tuple[int, ...], Binding] = {}
        self._lock = threading.Lock()
        self._free: list[_State] = []
        self._check = check
        self._parts = parts
        is_split = self.has_regions or checker is not None or plan.device != "cpu"
        regions = not is_split and hasattr(torch.autograd.profiler, "_is_profiler_enabled")
        program = write_program(plan, parts, self._layout, is_checked=checker is not None, asks_profiler=regions)
        self.source = program.source
        namespace = {name: self._resolve(name, value) for name, value in program.namespace.items()}
        namespace |= {
            "bound": _Unbound() if check else self._bound,
            "bind": self._bind,
            "free": self._free,
            "make_state": self._make_state,
            "bad_index": self._bad_index,
            "bad_access": self._bad_access,
            "as_planned": _as_planned,
            "view": _view,
            "within": _within,
            "constants": self.constants,
            "owned": OwnedInputs,
            "launch": launch,
            "profiler": torch.autograd.profiler,
            "profiled": self._profiled,
            **self._device_functions(),
            **({} if checker is None else {"before": checker.before, "after": checker.after, "memory": _memory}),
        }
        exec(compile(program.source, f"<kiln plan {plan.name}>", "exec"), namespace)
        self.run: Callable[[Sequence[Any]], list[Any]] = cast(Any, namespace["run"])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The plan's outputs for these inputs: see `run`."""
        return self.run(inputs)

    def workspace_bytes(self) -> int:
        """Bytes of workspace held between calls (one per call that ever ran at the same time as others)."""
        return sum(sum(state.sizes) for state in self._free)

    def _loaded_constants(self, constants: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return [_constant(self.plan, i, constants) for i in range(len(self.plan.constants))]

    def _profiled(self, inputs: Sequence[Any]) -> list[Any]:
        """A call while PyTorch's profiler runs: launches are regions of it."""
        if self._regions is None:
            from kiln.runtime.split import RegionExecutor

            self._regions = RegionExecutor(self)
        return self._regions.run(inputs)

    # -- what depends on the device ------------------------------------------------------------------

    def _state_layout(self, parts: Sequence[Segment]) -> StateLayout:
        return StateLayout(self.plan, parts)

    def _load(self, parts: Sequence[Segment]) -> tuple[Binder, Callable[[int], Any] | None]:
        """Loads the plan's code: what binds its launches, and the function that runs those of one segment."""
        plan = self.plan
        if not any(part.launches for part in parts):
            return Binder(plan, parts, self._layout, [], zone=self._zone()), None
        entries = [kernel.entry for kernel in plan.kernels]
        self._code = load([plan.launcher, *plan.objects], ["kiln_run", *entries])
        launch = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code["kiln_run"])
        addresses = [self._code[entry] for entry in entries]
        return Binder(plan, parts, self._layout, addresses, zone=self._zone()), launch

    def _zone(self) -> int:
        """Bytes of a guard zone; 0 without checks."""
        return 0 if self._zones is None else self._zones.zone

    def _device_functions(self) -> dict[str, Any]:
        """`empty` and `empty_large`, which allocate a tensor, and `threads`, how many a launch may use now."""
        found: dict[str, Any] = {"empty": _empty, "empty_large": _empty_large, "threads": max_threads}
        zones = self._zones
        if zones is not None:
            found |= {"empty": zones.empty, "empty_large": zones.empty}
            found |= {"fill_zones": zones.before, "look_at_zones": zones.after}
        return found

    # -- parts of the program ------------------------------------------------------------------------

    def _resolve(self, name: str, value: object) -> object:
        kind = name.partition("_")[0]
        if kind == "dtype":
            return getattr(torch, str(value))
        if kind == "pack":
            return struct.Struct(str(value)).pack_into
        assert isinstance(value, AtenStep)
        last_read = max((i for i, buffer in enumerate(value.results) if buffer >= 0), default=-1)
        return decode_call(value.op, value.args, value.kwargs, last_read)

    def _make_state(self) -> "_State":
        state = _State(self._layout)
        struct.pack_into("q", state.words, 8 * self._layout.flag_address, state.address + 8 * self._layout.flag)
        for buffer in self._layout.constants:
            address = self.constants[self.plan.buffers[buffer].index].data_ptr()
            struct.pack_into("q", state.words, 8 * self._layout.slots[buffer], address)
        return state

    def _bad_index(self, state: "_State", ops: str) -> None:
        """Raises what a kernel reported; the state can be used again."""
        state.words[8 * self._layout.flag] = 0
        self._free.append(state)
        raise IndexError(f"index out of range in {ops}")

    def _bad_access(self, state: "_State") -> None:
        """Raises what a kernel of the target "tt-cpu" reported; the state can be used again."""
        words = struct.unpack_from(f"{WORDS}q", state.words, 8 * self._layout.flag)
        struct.pack_into("q", state.words, 8 * self._layout.flag, 0)
        self._free.append(state)
        raise launch_error(self.plan, words)

    def _bind(
        self, epoch: int, key: tuple[int, ...], previous: Binding | None, inputs: Sequence[Any] | None
    ) -> Binding:
        """The binding for a key (symbol values, thread count), made and remembered; checks the arguments."""
        plan = self.plan
        known = [i for i, s in enumerate(plan.symbols) if s.source not in ("derived", "constant")]
        values: list[int | None] = [None] * len(plan.symbols)
        given = key[1:-1] if epoch else key[:-1]
        ready = [i for i in known if plan.symbols[i].source != "aten" or self._epoch_of(i) <= epoch]
        for i, value in zip(ready, given, strict=True):
            values[i] = int(value)
        derived_values(plan, values)
        binding = self._bound.get(key)
        if binding is None:
            binding = self._binder.bind(epoch, values, key[-1], previous)
            _add_sizes(binding, plan, self._parts, epoch, self._layout.epochs)
        if inputs is not None:
            for i, buffer in enumerate(plan.buffers):
                if buffer.kind == "input":
                    # What ATen calls alone read may be elsewhere: a random generator's state is on the CPU.
                    _check_input(buffer, binding, inputs, plan.device if i in self._launched else "")
        with self._lock:
            while len(self._bound) >= _MAX_BINDINGS:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = binding
        return binding

    def _epoch_of(self, symbol: int) -> int:
        return self.plan.steps[self.plan.symbols[symbol].input].epoch + 1


class _Unbound(dict[Any, Any]):
    """A dictionary that finds nothing, so that every call binds, and checks, again."""


class _State:
    """The words and the workspaces of one running call."""

    __slots__ = ("address", "bases", "sizes", "tensors", "words")

    def __init__(self, layout: StateLayout) -> None:
        self.words: bytearray | memoryview = bytearray(8 * layout.words)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.words))
        if self.address % layout.alignment:
            memory = bytearray(8 * layout.words + layout.alignment)
            start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % layout.alignment
            self.words = memoryview(memory)[start : start + 8 * layout.words]
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.words))
        self.sizes = [0] * layout.epochs
        self.bases = [0] * layout.epochs
        self.tensors: list[torch.Tensor | None] = [None] * layout.epochs

    def grow(self, epoch: int, size: int) -> None:
        """Replaces the workspace of an epoch by one of `size` bytes (64-byte aligned, as PyTorch allocates)."""
        self.tensors[epoch] = None
        tensor = use_large_pages(torch.empty(size, dtype=torch.uint8))
        self.tensors[epoch], self.sizes[epoch], self.bases[epoch] = tensor, size, tensor.data_ptr()


def _add_sizes(binding: Binding, plan: Plan, parts: Sequence[Any], epoch: int, epochs: int) -> None:
    """Evaluates the sizes that the program asks for: allocations and views."""
    binding.tensors = {
        i: (binding.shape(b), binding.strides(b))
        for i, b in enumerate(plan.buffers)
        if b.epoch <= epoch and b.kind in ("tensor", "aten")
    }
    binding.views = {
        k: [_view_of(plan, binding, o) for o in part.aten.operands]
        for k, part in enumerate(parts)
        if part.aten is not None and part.epoch == epoch
    }
    for k, part in enumerate(parts):
        if part.epoch == epoch and part.check is not None:
            tensors = (*part.check.operands, *part.check.results)
            binding.views[check_key(k)] = [_view_of(plan, binding, o) for o in tensors]
    if epoch == epochs - 1:
        binding.views[-1] = [binding.view(o.tensor) if o.tensor else None for o in plan.outputs]


def _view_of(plan: Plan, binding: Binding, operand: Operand) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(shape, strides, offset) of an operand; for one in the workspace the offset is in bytes, from its start."""
    shape, strides, offset = binding.view(operand)
    if plan.buffers[operand.buffer].kind == "workspace":
        item = getattr(torch, operand.dtype or plan.buffers[operand.buffer].dtype).itemsize
        offset = binding.offset(operand.buffer) + item * offset
    return shape, strides, offset


def _within(
    workspace: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], start: int
) -> torch.Tensor:
    """A tensor in the workspace, `start` bytes past its beginning."""
    return workspace[start:].view(dtype).as_strided(shape, strides)


def _memory(
    tensor: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int, unit: int = 0
) -> torch.Tensor:
    """A tensor in the memory of another one, `offset` times `unit` bytes (0: elements) past its first.

    With negative strides, which tensors cannot have, a copy.
    """
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=tensor.device)
    start = int(tensor.storage_offset()) * tensor.element_size() // dtype.itemsize
    start += offset * unit // dtype.itemsize if unit else offset
    made = torch.empty(0, dtype=dtype, device=tensor.device)
    backwards = [d for d, s in enumerate(strides) if s < 0]
    start += sum((shape[d] - 1) * strides[d] for d in backwards)
    made.set_(tensor.untyped_storage(), start, shape, [abs(s) for s in strides])
    return made.flip(backwards) if backwards else made


def _constant(plan: Plan, index: int, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    constant = plan.constants[index]
    if constant.data >= 0:
        dtype = getattr(torch, constant.dtype)
        data = bytearray(plan.blobs[constant.data])
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(constant.shape).to(plan.device)
    if constant.name not in given:
        raise KilnError(f"plan {plan.name!r} needs the constant {constant.name!r}; given: {', '.join(given) or 'none'}")
    tensor = given[constant.name].detach()
    return packed(tensor, constant.layout, constant.elements) if constant.layout else tensor


def _check_input(buffer: Buffer, binding: Binding, inputs: Sequence[Any], device: str) -> None:
    tensor = inputs[buffer.index]
    where = f"argument {buffer.index}"
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"{where}: expected a tensor, found {type(tensor).__name__}")
    if device and tensor.device != torch.device(device):
        raise InputError(f"{where}: expected a tensor on {device}, found one on {tensor.device}")
    if not _same_bits(tensor.dtype, getattr(torch, buffer.dtype)):
        raise InputError(f"{where}: expected {buffer.dtype}, found {tensor.dtype}")
    if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
        raise InputError(f"{where}: expected plain strided memory, found layout {tensor.layout} or a lazy conj/neg bit")
    shape, strides = binding.shape(buffer), binding.strides(buffer)
    if tuple(tensor.shape) != shape:
        raise InputError(f"{where}: compiled for shape {shape}, found {tuple(tensor.shape)}")
    found = tensor.stride()
    wrong = [d for d, size in enumerate(shape) if size > 1 and found[d] != strides[d]]
    if wrong and 0 not in shape:
        raise InputError(f"{where}: compiled for strides {strides}, found {found}; make it contiguous or recompile")


def _same_bits(found: torch.dtype, expected: torch.dtype) -> bool:
    """Whether code compiled for one type can take the other: MLIR's integers carry no sign, so it is not recorded."""
    if found is expected:
        return True
    integers = not any(t.is_floating_point or t.is_complex or t is torch.bool for t in (found, expected))
    return integers and found.itemsize == expected.itemsize


def _view(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    # Where a view begins in an empty tensor may be in front of it: the last element of a line of none.
    return tensor.as_strided(shape, strides, tensor.storage_offset() + (0 if 0 in shape else offset))


def _as_planned(tensor: torch.Tensor, strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """The tensor with the strides and the type that generated code assumes; itself if they differ only where they do
    not matter.
    """
    if not _same_bits(tensor.dtype, dtype):
        return torch.empty_strided(tensor.shape, strides, dtype=dtype, device=tensor.device).copy_(tensor)
    shape = tensor.shape
    if tensor.numel() == 0 or all(a == b or n == 1 for a, b, n in zip(tensor.stride(), strides, shape, strict=True)):
        return tensor
    copy = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _zones(plan: Plan) -> Any:
    from kiln.runtime.checked.zones import Zones

    return Zones(plan)


def _empty_general(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


try:  # half the cost of torch.empty_strided; what Inductor's wrappers call
    _guards: Any = importlib.import_module("torch._C._dynamo.guards")
    _empty: Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor] = _guards._empty_strided_cpu
except (ImportError, AttributeError):
    _empty = _empty_general


def _empty_large(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """`_empty` for a tensor that is large, or of a size not known before."""
    return use_large_pages(_empty(shape, strides, dtype))
