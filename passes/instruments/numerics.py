# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers after each pass: the module is run before and after it, and a pass that changes results fails."""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from typing_extensions import override

from kiln.dialects import to_text
from kiln.errors import KilnError, NumericsError, UnsupportedError
from kiln.lowering.host.kernels import is_outlined
from kiln.passes.core import Note
from kiln.passes.instruments.base import Instrument
from kiln.passes.numerics.compare import compare
from kiln.passes.numerics.evaluate import evaluate, longest_sum, module_signature
from kiln.passes.numerics.sample import KINDS, SPECIALS, Sample, random_samples

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["VerifyNumerics"]

_ROUNDED_INSIDE = ("scaled_dot_product", "aten.addmm", "aten.baddbmm", "aten.linear")
"""ATen's ops that round in between, as their kernels for a size do, or once where a product and a sum round twice: the
first form behind them rounds otherwise.
"""


_MULTIPLIES_NOTHING = ("scaled_dot_product", "aten.convolution")
"""ATen's ops that may multiply infinities and NaN by the zeros of a mask or of padding, as their kernels for a size do:
the first form behind them leaves these terms out."""


class VerifyNumerics(Instrument):
    """Fails the first pass that changes numbers beyond tolerance, on random samples and on those that are given.

    The module that the pipeline starts with says what is right: it is run once in float64. The error of each pass is
    weighed against that of the module it was given (``passes/numerics/compare.py``). A module that cannot be run (an op
    that there is no way to evaluate, a stage of another kind) is passed over with a note, and the next one that can is
    compared with the last one that could.
    Behind `outline-kernels` nothing is compared: what kernels compute is checked by running them (`--verify-kernels`).

    Args:
        given: samples with the inputs of a user.
        kinds: of random ones to compare on as well (``passes/numerics/sample.py``).
    """

    def __init__(self, given: Sequence[Sample] = (), *, kinds: Sequence[str] = (*KINDS, SPECIALS)) -> None:
        self.notes: list[Note] = []
        self._given, self._kinds = list(given), kinds
        self._samples: list[Sample] = []
        self._exact: list[list[torch.Tensor]] = []
        self._tame: list[list[torch.Tensor] | None] = []
        self._last: list[list[torch.Tensor]] = []
        self._text = ""
        self._terms = 1
        self._failed_on: Sample | None = None

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        with module.context:
            self._text = to_text(module)
            self._samples = self._usable(module)
            self._terms = longest_sum(module)

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if not self._samples or is_outlined(module):
            return
        text = to_text(module)
        if text == self._text:
            return
        try:
            results = [evaluate(module, sample) for sample in self._samples]
        except UnsupportedError as error:
            self._text = text
            self.told(Note(step.name, error.op, error.location, f"numbers not compared: {error.reason}"))
            return
        except Exception as error:
            message = f"the module can be run before this pass and not after it: {type(error).__name__}: {error}"
            raise NumericsError(message) from error
        loose = bool(getattr(step.pass_, "fast_math", False))
        rounds = not step.pass_.changes_roundings and not any(name in self._text for name in _ROUNDED_INSIDE)
        skips = any(name in self._text for name in _MULTIPLIES_NOTHING)
        self._terms = max(self._terms, longest_sum(module))
        compared = zip(self._samples, self._exact, self._tame, self._last, results, strict=True)
        for sample, exact, tame, before, after in compared:
            special = sample.has_specials
            if special and (loose or skips):
                continue
            found = compare(
                exact,
                before,
                after,
                terms=self._terms,
                specials=special,
                fast_math=loose,
                tame=tame,
                roundings=rounds,
            )
            if found is not None:
                self._failed_on = sample
                raise NumericsError(f"the pass changes numbers ({sample.kind} inputs): {found}")
        self._text, self._last = text, results

    @override
    def pass_failed(self, index: int, step: "PipelineStep", module: "ir.Module", error: "CompileError") -> None:
        if not isinstance(error.__cause__, NumericsError):
            return
        options = ["--verify-numerics"]
        if self._failed_on is not None and self._failed_on in self._given:
            options.append(f"--inputs={_kept(self._failed_on)}")
        error.options = options

    def told(self, note: Note) -> None:
        """Called with each reason why numbers were not compared; keeps it in ``notes``."""
        self.notes.append(note)

    def _usable(self, module: "ir.Module") -> list[Sample]:
        """The samples that the module runs on; fills what is right for each."""
        try:
            signature = module_signature(module)
        except KilnError as error:
            self.told(Note("verify-numerics", "func.func", "", str(error)))
            return []
        chosen: list[Sample] = []
        draws = random_samples(signature, self._kinds) if self._kinds else iter([list[Sample]()])
        reason: Exception | None = None
        for drawn in draws:
            self._exact, self._tame, self._last, chosen = [], [], [], [*self._given, *drawn]
            try:
                for sample in chosen:
                    self._exact.append(evaluate(module, sample, exact=True))
                    tame = evaluate(module, sample.without_infinities(), exact=True) if sample.has_specials else None
                    self._tame.append(tame)
                    self._last.append(evaluate(module, sample))
                return chosen
            except (UnsupportedError, Exception) as error:  # an index out of bounds, sizes that do not fit
                reason = error
                if isinstance(error, UnsupportedError):
                    break
        self.told(Note("verify-numerics", "func.func", "", f"no inputs that the module runs on: {reason}"))
        return []


def _kept(sample: Sample) -> Path:
    """A file with the inputs, named by what they are."""
    digest = hashlib.sha256()
    for tensor in sample.tensors:
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    folder = Path(tempfile.gettempdir()) / "kiln-reproducers"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"inputs-{digest.hexdigest()[:10]}.pt"
    sample.save(path)
    return path
