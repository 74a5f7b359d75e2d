# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``options={"freezing": True}``: parameters and buffers of an inference graph as constants of the compiled code.

The graph is compiled when it is first called, with the parameters it is called with; a call with other tensors (a
parameter was replaced, or another module runs the same code) is compiled for those. Parameters stay arguments: only
so can each call check that they are the ones, unchanged, that the code was made for.
"""

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import MutationType, ViewAndMutationMeta
from torch._guards import TracingContext
from torch.fx import Graph, GraphModule, Node

from kiln.frontend.compile import compile_graph
from kiln.frontend.freezing.constant_folding import add_constant, fold_constants
from kiln.frontend.freezing.fold_batch_norm import fold_batch_norms
from kiln.frontend.freezing.integer_products import use_integer_products
from kiln.frontend.options import Options
from kiln.frontend.report import Freezing
from kiln.runtime.packing import shared

__all__ = ["FrozenGraph", "frozen_inputs"]

Run = Callable[[list[Any]], list[Any]]

#: Sets of parameters that one graph is compiled for; calls with yet others run code that takes them as arguments.
_MAX_VARIANTS = 8
#: Size from which on equal constants of several graphs are one.
_SHARED_BYTES = 4096


def frozen_inputs(gm: GraphModule) -> list[int]:
    """Positions of the inputs that Dynamo knows as parameters, buffers or attributes of modules, and may be constants.

    Left out: those that the graph writes to (a cache, a counter), and those that it returns, or views of which it
    returns. Empty where AOTAutograd's inputs are not Dynamo's one by one.
    """
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if not isinstance(metadata, ViewAndMutationMeta) or len(metadata.input_info) != len(placeholders):
        return []
    aliased = {info.base_idx for info in metadata.output_info}
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    returned = set(output.all_input_nodes)
    written = {n.args[0] for n in gm.graph.nodes if n.target is torch.ops.aten.copy_.default}
    return [
        i
        for i in metadata.static_input_indices or []
        if metadata.input_info[i].mutation_type is MutationType.NOT_MUTATED
        and i not in aliased
        and placeholders[i] not in returned
        and placeholders[i] not in written
        and isinstance(placeholders[i].meta.get("val"), torch.Tensor)
    ]


class FrozenGraph:
    """The boxed callable of a graph whose inputs at ``frozen`` are constants.

    In-place changes of a frozen tensor are noticed (by its version counter) and end the use of the code made for it:
    from then on the graph takes it as an argument. Changes that PyTorch does not count (``tensor.data``, NumPy views)
    are not seen: the compiled code goes on with the old values.
    """

    def __init__(self, gm: GraphModule, options: Options, frozen: Sequence[int]) -> None:
        self._boxed_call = True
        self._gm, self._options = gm, options
        self._frozen = list(frozen)
        self._pick: Callable[[list[Any]], tuple[torch.Tensor, ...]] = (
            operator.itemgetter(*frozen) if len(frozen) > 1 else lambda given: (given[frozen[0]],)
        )
        self._variants: list[_Variant] = []
        self._unfrozen: Run | None = None
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The results by the code made for these very parameters, which the first call with them makes."""
        tensors = self._pick(inputs)
        for variant in self._variants:
            if all(map(operator.is_, tensors, variant.tensors)):
                if variant.versions == _versions(tensors):
                    return variant.run(inputs)
                return self._general("a parameter was changed in place after it was frozen")(inputs)
        return self._compile(tensors)(inputs)

    def _compile(self, tensors: tuple[torch.Tensor, ...]) -> Run:
        """The code for these tensors, made now."""
        if any(type(t) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) for t in tensors):
            return self._general("a parameter is a tensor subclass")
        with self._lock:
            for variant in self._variants:
                if all(map(operator.is_, tensors, variant.tensors)):
                    return variant.run
            if len(self._variants) < _MAX_VARIANTS:
                versions = _versions(tensors)
                gm, freezing = _freeze(self._gm, self._frozen, tensors)
                run = compile_graph(gm, self._options, "inference", freezing)
                self._variants = [*self._variants, _Variant(tensors, versions, run)]
                return run
        return self._general(f"the graph was compiled for {_MAX_VARIANTS} other sets of parameters")

    def _general(self, reason: str) -> Run:
        """The code that takes every tensor as an argument."""
        with self._lock:
            if self._unfrozen is None:
                freezing = Freezing(f"not frozen: {reason}")
                self._unfrozen = compile_graph(self._gm, self._options, "inference", freezing)
            return self._unfrozen


class _Variant:
    """Code made for some tensors at some versions. Holds them, so that no other tensor can take their place."""

    __slots__ = ("run", "tensors", "versions")

    def __init__(self, tensors: tuple[torch.Tensor, ...], versions: list[int], run: Run) -> None:
        self.tensors, self.versions, self.run = tensors, versions, run


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor was written to; inference tensors do not count it."""
    try:
        return [t._version for t in tensors]
    except RuntimeError:
        return [0 if t.is_inference() else t._version for t in tensors]


def _freeze(gm: GraphModule, frozen: Sequence[int], tensors: Sequence[torch.Tensor]) -> tuple[GraphModule, Freezing]:
    """A copy of ``gm`` with these inputs as constants, folded. Its placeholders are the same."""
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = GraphModule(gm, graph)
    _copy_output_meta(gm.graph, graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first = next(node for node in graph.nodes if node.op != "placeholder")
    count = 0
    memory: dict[int, int] = {}
    for position, tensor in zip(frozen, tensors, strict=True):
        node = placeholders[position]
        if node.users:
            constant = add_constant(copy, tensor, first, node.meta["val"])
            node.replace_all_uses_with(constant)
            count += 1
    use_integer_products(copy)  # before what they need of weights is computed, and weights become floats
    added = fold_constants(copy)
    into_convolutions, scaled, more = fold_batch_norms(copy)
    copy.graph.lint()
    own = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    for node in copy.graph.nodes:
        if node.op == "get_attr":
            tensor = getattr(copy, str(node.target))
            if tensor.untyped_storage().data_ptr() not in own and tensor.nbytes >= _SHARED_BYTES:
                tensor = shared(tensor)
                setattr(copy, str(node.target), tensor)
            memory[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return copy, Freezing("", count, sum(memory.values()), added + more, into_convolutions, scaled)


def _copy_output_meta(old: Graph, new: Graph) -> None:
    outputs: list[Node] = [next(n for n in reversed(graph.nodes) if n.op == "output") for graph in (old, new)]
    outputs[1].meta.update(outputs[0].meta)
