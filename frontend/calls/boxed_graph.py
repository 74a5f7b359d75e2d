# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Calling a compiled ``@main`` in place of its FX graph: arguments in, outputs out, inputs written back."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from kiln.frontend.calls.signature import OutputSpec, Signature
from kiln.runtime.aten_call import resolve_op
from kiln.runtime.owned_inputs import OwnedInputs
from kiln.runtime.plan import AtenStep, Plan, Step
from kiln.runtime.strided import OWN

__all__ = ["LOST_ALIAS", "USER_OUTPUTS", "BoxedGraph", "lost_alias", "shared_results", "size_text"]

USER_OUTPUTS = "kiln.user_outputs"
"""In `meta` of a forward graph: how many of its first outputs are the model's; others are saved for the gradient."""

LOST_ALIAS = "lie in one tensor, and its sizes are known at run time only"
"""Why a graph runs with ATen whose plan has lost an output's place."""

if TYPE_CHECKING:
    from kiln.frontend.import_.fx_import import ImportedGraph

Run = Callable[[list[Any]], list[Any]]


class BoxedGraph:
    """The callable AOTAutograd gets: takes one list of inputs, which it empties, and returns the list of outputs.

    ``run`` takes the graph's own inputs (tensors, ints, and what the graph ignores) and returns a list with the results
    of ``@main``. ``constants``: the tensors that are outputs themselves, by name.
    """

    def __init__(self, signature: Signature, run: Run, constants: Mapping[str, torch.Tensor]) -> None:
        self._boxed_call = True
        self._run = run
        self._outputs = signature.outputs
        self._mutations = signature.mutations
        self._constants = {name: constants[name] for name in _returned_constants(signature)}
        self._values, of_sizes = _value_function(signature, self._outputs)
        results = [spec.index for spec in self._outputs]
        is_plain = all(spec.kind == "result" and spec.empty_strides is None for spec in self._outputs)
        #: Inputs that are looked at behind the run, which are then alive as long as it takes.
        self._kept = sorted(
            {i for i, _ in self._mutations} | of_sizes | {s.index for s in self._outputs if s.kind == "input"}
        )
        self._lazy = [spec.index for spec in signature.inputs if spec.is_lazy]
        self._shared = signature.shared
        self._plain_outputs = (
            is_plain and not self._mutations and not self._shared and results == list(range(len(results)))
        )
        is_picked = all(s.kind != "size" and s.empty_strides is None for s in self._outputs)
        self._pick = self._picker() if is_picked else None

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The graph's results as AOTAutograd wants them; the list of inputs is emptied."""
        owned = OwnedInputs(inputs)
        inputs.clear()  # the caller's references are gone: an input may be freed inside
        given = {index: owned[index] for index in self._kept}
        results = self._run(self._resolved(owned) if self._lazy else owned)
        if self._plain_outputs:
            return results
        for index in self._shared:
            results[index] = _copy(results[index])
        sizes, empties = self._values(given, results) if self._pick is None else ((), ())
        for target, index in self._mutations:
            if results[index] is not given[target]:
                given[target].copy_(results[index])
        return self._pick(given, results) if self._pick else self._assemble(given, results, sizes, empties)

    def _picker(self) -> Callable[[dict[int, Any], Sequence[Any]], list[Any]]:
        """`_assemble` written out, where no output is computed: what a forward graph returns and saves."""
        texts: list[str] = []
        others: list[Any] = []
        for spec in self._outputs:
            if spec.kind in ("result", "input"):
                texts.append(f"{'results' if spec.kind == 'result' else 'given'}[{spec.index}]")
            else:
                texts.append(f"others[{len(others)}]")
                others.append(self._constants[spec.name] if spec.kind == "constant" else spec.value)
        pick = _define(f"def pick(given, results, others=()):\n    return [{', '.join(texts)}]\n", "pick")
        return pick if not others else lambda given, results: pick(given, results, others)

    def _resolved(self, given: list[Any]) -> list[Any]:
        """The inputs as plain memory."""
        found = given
        for index in self._lazy:
            tensor = given[index]
            if tensor.is_conj() or tensor.is_neg():
                found = list(given) if found is given else found
                found[index] = _resolve(tensor)
        return found

    def _assemble(
        self, given: dict[int, Any], results: Sequence[Any], sizes: Sequence[int], empties: Sequence[Sequence[int]]
    ) -> list[Any]:
        outputs: list[Any] = []
        next_size, next_empty = iter(sizes), iter(empties)
        for spec in self._outputs:
            if spec.kind == "result":
                result = results[spec.index]
                if spec.empty_strides is not None:
                    strides = next(next_empty)
                    if result.numel() == 0:
                        result = result.as_strided(result.size(), strides)
                outputs.append(result)
            elif spec.kind == "input":
                outputs.append(given[spec.index])
            elif spec.kind == "size":
                outputs.append(next(next_size))
            elif spec.kind == "constant":
                outputs.append(self._constants[spec.name])
            else:
                outputs.append(spec.value)
        return outputs


def shared_results(imported: "ImportedGraph", plan: Plan) -> list[int]:
    """Results of ``@main`` that must be copied: memory of an input, a constant or an earlier result, but not in eager.

    ``x.clone()`` costs nothing inside of a graph; as an output it is new memory. A result that is written to an input
    is copied as well when it is memory of an input that is written to.
    """
    mutated = {target for target, _ in imported.mutations}
    sources = {result for _, result in imported.mutations}
    kept = {spec.index for spec in imported.outputs if spec.kind == "result"}
    seen: dict[int, int] = {}
    shared: list[int] = []
    for result, output in enumerate(plan.outputs):
        if output.tensor is None:
            continue
        if result not in kept and result not in sources:
            continue  # returned for its size
        buffer = plan.buffers[output.tensor.buffer]
        storage = imported.result_storages[result]
        is_whole = output.tensor.shape is None
        if is_whole and result not in kept and (buffer.index, result) in imported.mutations:
            continue  # written in place, or not written at all
        if buffer.kind == "input":
            is_shared = storage != -1 - buffer.index or (result in sources and buffer.index in mutated)
        elif buffer.kind == "constant":
            is_shared = True
        else:
            is_shared = seen.setdefault(output.tensor.buffer, storage) != storage
        if is_shared:
            shared.append(result)
    return shared


def lost_alias(imported: "ImportedGraph", plan: Plan, count: int) -> str:
    """Which of the first ``count`` outputs share memory in eager but not in the plan, where numbers would be wrong; ""
    if none do.

    With sizes known at run time, AOTAutograd takes the second one's place in the first one's memory from the tensor
    that the graph returns. What several outputs lie in has memory of its own (`bases_of_results`), but views by places
    in memory (`as_strided`) are copies in a plan.
    """
    if not plan.symbols or not count:
        return ""
    seen: dict[int, tuple[int, int]] = {}
    viewed = {step.results[0]: step.operands[0].buffer for step in plan.steps if _is_view(step)}
    for number, spec in enumerate(imported.outputs[:count]):
        tensor = plan.outputs[spec.index].tensor if spec.kind == "result" else None
        storage = imported.result_storages[spec.index] if tensor is not None else -1
        if tensor is None or storage < 0:
            continue
        memory = tensor.buffer
        while memory in viewed:
            memory = viewed[memory]
        first, other = seen.setdefault(storage, (number, memory))
        if memory != other:
            return f"outputs {first} and {number} {LOST_ALIAS}"
    return ""


def _is_view(step: Step) -> TypeGuard[AtenStep]:
    """Whether a step calls an op of ATen that gives a view of its first operand."""
    if not isinstance(step, AtenStep) or step.op == OWN or len(step.results) != 1:
        return False
    returned = resolve_op(step.op)._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returned)


def _returned_constants(signature: Signature) -> list[str]:
    return [spec.name for spec in signature.outputs if spec.kind == "constant"]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides. Of elements that share memory (an expanded tensor), the memory is copied."""
    if any(stride == 0 and n > 1 for n, stride in zip(tensor.size(), tensor.stride(), strict=True)):
        return _memory_of(tensor).clone().as_strided(tensor.size(), tensor.stride())
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _resolve(tensor: torch.Tensor) -> torch.Tensor:
    """A conjugated or negated view as memory of its own, with the same strides."""
    if tensor.numel() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return _memory_of(tensor).resolve_conj().resolve_neg().as_strided(tensor.size(), tensor.stride())


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All memory from the first to the last element, as one dim."""
    extent = 1 + sum((n - 1) * stride for n, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.as_strided((extent if tensor.numel() else 0,), (1,))


def _value_function(
    signature: Signature, outputs: Sequence[OutputSpec]
) -> tuple[Callable[[Mapping[int, Any], Sequence[Any]], Any], set[int]]:
    """``inputs, results -> (integer outputs, strides of empty outputs)``, as one compiled Python function, and the
    inputs that it looks at.
    """
    sources: dict[str, str] = {}
    for symbol in signature.found:
        tensor = f"results[{symbol.result}]" if symbol.input < 0 else f"inputs[{symbol.input}]"
        sources[symbol.name] = f"int({tensor})" if symbol.dim < 0 else f"{tensor}.size({symbol.dim})"
    for spec in signature.inputs:
        if spec.kind == "int":
            sources[spec.name] = f"inputs[{spec.index}]"
        elif spec.kind in ("size", "stride"):
            sources[spec.name] = f"inputs[{spec.index}].{spec.kind}({spec.dim})"
    sizes = [spec.expr for spec in outputs if spec.kind == "size" and spec.expr is not None]
    empties = [spec.empty_strides for spec in outputs if spec.empty_strides is not None]
    wanted = [*sizes, *(expr for strides in empties for expr in strides)]
    if not wanted:
        return lambda inputs, results: ((), ()), set()
    strides = _tuple(_tuple(size_text(expr) for expr in strides) for strides in empties)
    text = f"{_tuple(size_text(expr) for expr in sizes)}, {strides}"
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    lines = [f"    {name} = {source}\n" for name, source in sources.items() if name in used]
    read = {int(number) for line in lines for number in re.findall(r"inputs\[(\d+)\]", line)}
    return _define("def values(inputs, results):\n" + "".join(lines) + f"    return ({text})\n", "values"), read


def size_text(expr: Any) -> str:
    """A size, or a comparison of sizes, as Python over the names of the symbols."""
    return PythonPrinter().doprint(expr) if isinstance(expr, sympy.Basic) else str(expr)


def _tuple(items: Any) -> str:
    texts = list(items)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _define(source: str, name: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"math": math, "torch": torch}
    exec(source, scope)  # noqa: S102 - our own text, made of integer expressions
    return scope[name]
