# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Shrinking a module while it stays broken: its results, ops, operands, regions, sizes and constants.

Each step makes a candidate from the smallest module so far and keeps it if it verifies and is still broken. Large
pieces are tried first: the ops behind a place, those before it, halves of the rest; then op by op.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from kiln.dialects import create_context, parse, to_text
from kiln.dialects.walk import ops_inside
from kiln.errors import KilnError
from kiln.tools.debugging import editing, fusions
from kiln.tools.debugging.children import in_child, seconds_computed
from kiln.tools.debugging.op_edits import CHOICES, EDITS
from kiln.tools.debugging.sizes import simpler_numbers, smaller, tensor_sizes

__all__ = ["reduce_module"]

_EDIT_SECONDS = 60.0
_BATCH_SECONDS = 0.1

Edit = Callable[[ir.Module], bool]
"""Changes a module; whether it did."""


def reduce_module(
    text: str, is_broken: Callable[[str], bool], *, most: int = 2000, seconds: float = float("inf")
) -> str:
    """The smallest module found that is broken; ``is_broken`` holds for ``text``.

    Args:
        is_broken: asked of a module's text, which parses and verifies.
        most: candidates that are tried.
        seconds: of a processor, this process's and its children's, after which no more candidates are tried.

    A KeyboardInterrupt ends the search, too.
    """
    with create_context():
        reducer = _Reducer(text, is_broken, most, seconds)
        with contextlib.suppress(KeyboardInterrupt):
            reducer.run()
        return reducer.text


class _Reducer:
    def __init__(self, text: str, is_broken: Callable[[str], bool], most: int, seconds: float) -> None:
        self.text, self._is_broken, self._most = text, is_broken, most
        self._end = seconds_computed() + seconds
        self._seen = {text}

    def run(self) -> None:
        """Until nothing helps any more: large pieces, then sizes, which makes later attempts fast, then single ops."""
        self._accepts(self._printed(self.text))
        ops = self._ask(editing.size_of) + 1
        while self._ask(editing.size_of) < ops and self._is_going():
            ops = self._ask(editing.size_of)
            self._other_functions()
            self._results()
            self._behind()
            self._in_front()
            self._sizes()
            self._pieces()
            self._ops()
            self._try(_without_unreached_blocks)
        self._numbers()

    def _is_going(self) -> bool:
        return self._most > 0 and seconds_computed() < self._end

    # -- candidates

    def _accepts(self, text: str | None) -> bool:
        """Makes ``text`` the smallest so far, if it is new and broken."""
        if text is None or text in self._seen or not self._is_going():
            return False
        self._seen.add(text)
        self._most -= 1
        if not self._is_broken(text):
            return False
        self.text = text
        return True

    def _try(self, edit: Edit) -> bool:
        """Whether the module is still broken after an edit, which it keeps then."""
        return self._first([edit]) is not None

    def _first(self, edits: Sequence[Edit]) -> int | None:
        """The index of the first edit after which the module is still broken, which it keeps then.

        Edits are made in a child, as one that does not fit may leave a value that nothing computes, and end its
        process. A child takes many, each from the module as it is now: to fork takes longer than an edit of few ops.
        """
        start = 0
        while start < len(edits) and self._is_going():
            outcome = in_child(partial(self._candidates, edits[start:]), _EDIT_SECONDS)
            for index, text in enumerate(outcome.events, start):
                if self._accepts(text):
                    return index
            # An edit that ended the child told nothing.
            start += len(outcome.events) + (outcome.kind != "ok")
        return None

    def _candidates(self, edits: Sequence[Edit], tell: Callable[[str | None], None]) -> None:
        """Tells the text after each edit, or None, for a while: if the first is accepted, the others are made again."""
        end = time.monotonic() + _BATCH_SECONDS
        for edit in edits:
            tell(self._edited(edit))
            if time.monotonic() > end:
                return

    def _edited(self, edit: Edit) -> str | None:
        try:
            with ir.Location.unknown():
                module = parse(self.text)
                if not edit(module) or not module.operation.verify():
                    return None
                return to_text(module)
        except (KilnError, ir.MLIRError, ValueError, IndexError, KeyError, TypeError, RuntimeError):
            return None  # an edit that does not fit this op

    def _printed(self, text: str) -> str | None:
        """In its final form: without locations, and with what a parser changes."""
        with ir.Location.unknown():
            module = parse(text)
            for function in editing.functions_of(module):
                editing.erase_dead(function)
            return to_text(module)

    def _ask(self, question: Callable[[ir.Module], int]) -> int:
        """A number about the module, whose handles do not outlive it."""
        with ir.Location.unknown():
            module = parse(self.text)
            return question(module)

    # -- large pieces

    def _other_functions(self) -> None:
        for number in reversed(range(self._ask(lambda module: len(list(module.body.operations))))):

            def erase(module: ir.Module, number: int = number) -> bool:
                operations = list(module.body.operations)
                operations[number].operation.erase()
                return len(operations) > 1

            self._try(erase)

    def _results(self) -> None:
        """One result in place of several."""
        count = self._ask(_returned)
        for number in range(count if count > 1 else 0):

            def keep(module: ir.Module, number: int = number) -> bool:
                function = editing.entry_of(module)
                editing.return_values(function, [list(_last(function).operands)[number]])
                return True

            if self._try(keep):
                return

    def _behind(self) -> None:
        """Return what is known after the first ops, in place of what the others make of it."""

        def upto(count: int) -> bool:
            return self._try(lambda module: _return_live(editing.entry_of(module), count))

        self._bisect(upto)

    def _in_front(self) -> None:
        """Take what the first ops compute as arguments."""

        def without(left: int) -> bool:
            def edit(module: ir.Module) -> bool:
                function = editing.entry_of(module)
                operations = editing.computing_ops(function)
                return editing.cut(function, operations[: len(operations) - left])

            return self._try(edit)

        self._bisect(without)

    def _bisect(self, attempt: Callable[[int], bool]) -> None:
        """The least count of ops for which ``attempt`` succeeds, as far as bisection finds it."""
        low, high = 0, self._ask(_length)
        while high - low > 1:
            middle = (low + high) // 2
            if attempt(middle):
                high = min(middle, self._ask(_length))
                low = min(low, high)
            else:
                low = middle

    def _pieces(self) -> None:
        """Runs of ops whose results become arguments: halves, quarters, and so on."""
        size = self._count() // 2
        while size > 1:
            start: int | None = 0
            while start is not None:
                starts = range(start, self._count(), size)
                found = self._first([partial(_without, start=first, size=size) for first in starts])
                start = None if found is None else starts[found]
            size //= 2

    def _count(self) -> int:
        return self._ask(lambda module: len(_computing(editing.entry_of(module))))

    # -- op by op

    def _ops(self) -> None:
        """Each op, from the last: without it, or with something simpler in its place."""
        number, kind = self._ask(lambda module: len(_all(module))) - 1, 0
        while True:
            places = [(n, k) for n in range(number, -1, -1) for k in range(kind if n == number else 0, len(EDITS))]
            tries = [(n, k, choice) for n, k in places for choice in range(CHOICES)]
            found = self._first([partial(_edit_one, *each) for each in tries])
            if found is None:
                return
            # The op has another edit's turn; what is now at its place is another one where it went.
            number, kind = tries[found][0], tries[found][1] + 1

    # -- the text

    def _sizes(self) -> None:
        """Each size, the largest first, as small as it may be."""
        done: set[int] = set()
        while sizes := [size for size in tensor_sizes(self.text) if size not in done]:
            size = sizes[0]
            done.add(size)
            any(self._accepts_text(text) for text in smaller(self.text, size))

    def _numbers(self) -> None:
        """Constants become 1, one after the other."""
        while any(self._accepts_text(text) for text in simpler_numbers(self.text)):
            pass

    def _accepts_text(self, text: str) -> bool:
        return text not in self._seen and self._is_going() and self._accepts(self._verified(text))

    def _verified(self, text: str) -> str | None:
        try:
            with ir.Location.unknown():
                module = parse(text)
                module.operation.verify()
                return to_text(module)
        except (KilnError, ir.MLIRError, ValueError):
            self._seen.add(text)
            return None


def _length(module: ir.Module) -> int:
    return len(editing.computing_ops(editing.entry_of(module)))


def _without_unreached_blocks(module: ir.Module) -> bool:
    """A module in LLVM's dialect in its canonical form, if that is shorter: blocks that no branch leads to are gone."""
    if editing.entry_of(module).name != "llvm.func":
        return False
    before = len(to_text(module).splitlines())
    PassManager.parse("builtin.module(canonicalize)").run(module.operation)
    return len(to_text(module).splitlines()) < before


def _returned(module: ir.Module) -> int:
    """How many values the first function returns; none if it branches."""
    function = editing.entry_of(module)
    return len(list(_last(function).operands)) if len(function.regions[0].blocks) == 1 else 0


def _last(function: ir.Operation) -> ir.Operation:
    return list(function.regions[0].blocks[0].operations)[-1].operation


def _without(module: ir.Module, start: int, size: int) -> bool:
    """Makes arguments of what ``size`` ops compute, from the one numbered ``start``."""
    function = editing.entry_of(module)
    return editing.cut(function, _computing(function)[start : start + size])


def _edit_one(number: int, kind: int, choice: int, module: ir.Module) -> bool:
    return EDITS[kind](module, _all(module)[number], choice)


def _all(module: ir.Module) -> list[ir.Operation]:
    return [op for function in editing.functions_of(module) for op in ops_inside(function)]


def _computing(function: ir.Operation) -> list[ir.Operation]:
    return [op for op in editing.computing_ops(function) if not op.name.startswith(editing.FREE)]


def _return_live(function: ir.Operation, count: int) -> bool:
    """Returns the tensors of the first ``count`` ops that the others, or the caller, read."""
    operations = editing.computing_ops(function)
    first, others = operations[:count], operations[count:]
    ends = [_last(function), *(fusions.body_of(op)[-1] for op in others if fusions.is_fusion(op))]
    inside = {r for op in first for r in op.results if not op.name.startswith(editing.FREE)}
    read = [v for op in (*others, *ends) for v in _operands(op)]
    live = [v for v in dict.fromkeys(read) if v in inside and editing.is_tensor(v)]
    if not live or not others:
        return False
    editing.return_values(function, live)
    return True


def _operands(op: ir.Operation) -> list[ir.Value]:
    inside = () if fusions.is_fusion(op) else ops_inside(op)
    return [*op.operands, *(v for inner in inside for v in inner.operands)]
