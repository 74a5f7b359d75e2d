# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``options={"verify": "numerics"}``: the numbers of a graph's module after each pass, on the inputs of the first call.

Random inputs are compared while the graph is compiled. A user's are known when it is called: the passes then run once
more, on the module as it was imported.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from kiln.dialects import create_context, parse
from kiln.frontend.calls.signature import InputSpec
from kiln.passes import PassManager, PipelineStep
from kiln.passes.instruments import Reproducer
from kiln.passes.instruments.numerics import VerifyNumerics
from kiln.passes.numerics.sample import Sample

__all__ = ["GivenInputs", "bound_sample"]

Run = Callable[[Sequence[Any]], list[Any]]


class GivenInputs:
    """Calls ``run``, the first time after the passes were verified on what it is given.

    ``text`` is the module before the passes, ``steps`` makes the passes anew.

    Calling it raises CompileError, naming the pass that changes numbers.
    """

    def __init__(
        self,
        run: Run,
        text: str,
        steps: Callable[[], list[PipelineStep]],
        inputs: Sequence[InputSpec],
        constants: "dict[str, torch.Tensor]",
    ) -> None:
        self._run, self._text, self._steps = run, text, steps
        self._inputs, self._constants = inputs, constants
        self._is_verified = False

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """The results; the first call also compares every pass on its inputs. Raises KilnError where one is wrong."""
        if not self._is_verified:
            sample = bound_sample(self._inputs, given, self._constants)
            with create_context():
                module = parse(self._text)
                instruments = [Reproducer(), VerifyNumerics([sample], kinds=())]
                PassManager(self._steps(), instruments).run(module)
            self._is_verified = True
        return self._run(given)


def bound_sample(
    specs: Sequence[InputSpec], given: Sequence[Any], constants: "dict[str, torch.Tensor]", kind: str = "given"
) -> Sample:
    """The arguments of ``@main`` for a call with ``given``, copied to the CPU with their strides."""
    tensors: list[torch.Tensor] = []
    symbols: dict[str, int] = {}
    for spec in specs:
        if spec.kind in ("tensor", "constant"):
            tensor = given[spec.index] if spec.kind == "tensor" else constants[spec.name]
            tensors.append(_copied(tensor))
        elif spec.kind == "int":
            symbols[spec.name] = int(given[spec.index])
        elif spec.kind in ("size", "stride"):
            tensor = given[spec.index]
            symbols[spec.name] = int(tensor.size(spec.dim) if spec.kind == "size" else tensor.stride(spec.dim))
    for spec in specs:
        if spec.kind == "derived":
            symbols[spec.name] = _value(spec, symbols)
    return Sample(kind, tensors, symbols)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    out = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype)
    return out.copy_(plain) if plain.numel() else out


def _value(spec: InputSpec, symbols: dict[str, int]) -> int:
    if isinstance(spec.expr, str) or spec.expr is None:
        return int(eval(spec.expr or "0", {"FloorDiv": FloorDiv, "Mod": Mod}, dict(symbols)))  # Python that Kiln wrote
    return int(spec.expr.subs({s: symbols[str(s)] for s in spec.expr.free_symbols}))
