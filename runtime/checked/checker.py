# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at each step of a plan: snapshots of what it overwrites, its reference, the verdict."""

import logging
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kiln.dialects.interpret.bounds import Bounded
from kiln.errors import CheckError, KilnError, UnsupportedError
from kiln.runtime.binding import segments
from kiln.runtime.checked.comparison import Difference, compare
from kiln.runtime.checked.reference import Reference
from kiln.runtime.packing import unpacked
from kiln.runtime.plan import Check, Launch, Plan

__all__ = ["LaunchChecker"]

log = logging.getLogger("kiln")
Tensor = torch.Tensor


@dataclass(frozen=True)
class _Seen:
    """What a step was about to read."""

    part: int
    operands: list[Tensor]
    symbols: tuple[int, ...]


@dataclass
class LaunchChecker:
    """Compares what each step of a plan leaves with its reference; see `kiln.runtime.executor.Checker`.

    policy: "error": the first step that is off raises CheckError; "warn": each kernel that is off warns once.
    tf32: products of f32 may be computed in TF32. settings: how the kernels were compiled, for the folder.
    shipped: of a reference's text, a step's operands and results, what another form of its kernel computes that a GPU
    would run in place of the one that ran here, in each of some orders; empty where there is none.
    checked, skipped: how many steps were compared, and how often each reason not to was met.
    """

    plan: Plan
    policy: str = "error"
    tf32: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    folder: str = ""
    shipped: Callable[[str, Sequence[Tensor], Sequence[Tensor]], list[list[Tensor]]] | None = None
    checked: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._references: dict[int, Reference] = {}
        self._reported: set[int] = set()
        self._lock = threading.Lock()
        self._steps = [self.plan.steps[part.steps[0]] for part in segments(self.plan, alone=True)]

    # -- what the program calls ----------------------------------------------------------------------

    def before(self, part: int, operands: Sequence[Tensor], results: Sequence[Tensor], symbols: Sequence[int]) -> _Seen:
        """Keeps the operands of a step: copies of those that lie where it writes."""
        check = self._check(part)
        written = [_extent(r) for r in results]
        kept: list[Tensor] = []
        for operand, x in zip(check.operands, operands, strict=True):
            layout = self._layout(operand.buffer)
            if layout is not None:
                shape = self._reference(part).shapes[len(kept)]
                assert shape is not None  # of constants
                x = unpacked(x, layout, shape)
            kept.append(x.clone() if any(_overlap(_extent(x), w) for w in written) else x)
        return _Seen(part, kept, tuple(symbols))

    def after(self, seen: _Seen, results: Sequence[Tensor]) -> None:
        """Compares what the step has written.  Raises CheckError, or warns."""
        reference = self._reference(seen.part)
        try:
            # The bindings' contexts are not safe to share. PyTorch looks at each op of a graph's first call, by a mode
            # that takes longer than the op does; what is computed here is none of the graph's.
            with self._lock, torch._C._DisableTorchDispatch():
                device = next((r.device for r in results), None)
                if len(reference.elements) != len(results):
                    return self._skip("a later pass has removed what reads one of its results")
                expected = reference.evaluate(seen.operands, seen.symbols, device)
                differences = [str(d) for d in _differences(reference, results, expected)]
                if not differences:
                    differences = self._shipped_differences(reference, seen, results, expected)
        except UnsupportedError as error:
            return self._skip(str(error))
        except IndexError as error:
            if reference.reads_by_index:
                return self._skip(f"a position out of bounds: {error}")
            raise
        self.checked += 1
        if differences:
            self._report(seen, results, differences)
        return None

    def _shipped_differences(
        self, reference: Reference, seen: _Seen, results: Sequence[Tensor], expected: Sequence[Bounded]
    ) -> list[str]:
        if self.shipped is None:
            return []
        try:
            found = self.shipped(reference.text, seen.operands, results)
        except UnsupportedError:
            raise
        except KilnError as error:
            return [f"what a GPU would run: {error}"]
        return [f"what a GPU would run: {d}" for x in found for d in _differences(reference, x, expected)]

    # -- its parts -----------------------------------------------------------------------------------

    def _check(self, part: int) -> Check:
        check = self._steps[part].check
        assert check is not None
        return check

    def _reference(self, part: int) -> Reference:
        with self._lock:
            if part not in self._references:
                step, number = self._steps[part], self._check(part).reference
                is_convolution = step.convolution is not None if isinstance(step, Launch) else "conv" in step.op
                tf32 = self.tf32 or is_convolution and torch.backends.cudnn.allow_tf32 and self.plan.device != "cpu"
                self._references[part] = Reference(self.plan.references[number], tf32)
            return self._references[part]

    def _layout(self, buffer: int) -> str | None:
        """The order in which a constant is packed."""
        data = self.plan.buffers[buffer]
        if data.kind != "constant":
            return None
        return self.plan.constants[data.index].layout or None

    def _skip(self, reason: str) -> None:
        if reason not in self.skipped:
            log.info("graph %s: a step is not checked: %s", self.plan.name, reason)
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def _report(self, seen: _Seen, results: Sequence[Tensor], differences: Sequence[str]) -> None:
        if self.policy == "warn" and seen.part in self._reported:
            return
        self._reported.add(seen.part)
        from kiln.runtime.checked.folder import write_folder

        step, reference = self._steps[seen.part], self._reference(seen.part)
        name = self.plan.kernels[step.kernel].name if isinstance(step, Launch) else step.op
        settings = {**self.settings, "tf32": reference.tf32, "device": self.plan.device}
        # A folder of the system's is for all users: one in it is ours alone.
        parent = Path(self.folder) / "checks" if self.folder else Path(tempfile.mkdtemp(prefix="kiln-check-"))
        path = write_folder(parent, name, reference, seen.operands, seen.symbols, results, settings)
        error = CheckError(
            name,
            self.plan.name,
            differences,
            ops=reference.ops(),
            lines=reference.lines(),
            folder=str(path),
        )
        if self.policy == "warn":
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            return
        raise error


def _differences(reference: Reference, found: Sequence[Tensor], expected: Sequence[Bounded]) -> list[Difference]:
    compared = (
        compare(i, x, e, t) for i, (x, e, t) in enumerate(zip(found, expected, reference.elements, strict=True))
    )
    return [difference for difference in compared if difference is not None]


def _extent(x: Tensor) -> tuple[int, int]:
    """Addresses of the first byte of a tensor and of the one behind its last."""
    if not x.numel():
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
