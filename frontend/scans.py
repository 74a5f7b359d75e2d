# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The gradient of `torch.associative_scan` as a scan.

Dynamo writes a scan with ``combine_mode="generic"`` out in log2(n) steps. Differentiated, each of them keeps what it
read, and the backward graph repeats the steps one by one. A scan is y[t] = f(y[t - 1], x[t]), and its gradient

    l[t] = g[t] + J[t + 1]^T l[t + 1],  J[t] = df(y[t - 1], x[t]) / dy[t - 1],

is a linear recurrence from the last element to the first, which is associative, too. So what is kept is x and y, and
both graphs have scans that `recognize-scans` makes one kernel each of (Martin and Cundy, "Parallelizing linear
recurrent neural nets over sequence length", 2018).
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import (
    _interleave,  # pyright: ignore[reportUnknownVariableType] - PyTorch's, not annotated
)
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from kiln.lowering import paths

__all__ = ["differentiate_scans"]

aten = torch.ops.aten

_TAKEN = paths.group("any differentiate-scans", "one tensor", "several tensors")

_SHORTEST = 4
"""Elements along the scanned dim: of fewer, the function's results are not sliced, which tells which they are."""
_MOST = 2
"""Tensors scanned at once: the recurrence of the gradient has as many squared, and as many."""
_SMOOTH = {aten.add, aten.sub, aten.mul, aten.div, aten.neg, aten.reciprocal, aten.exp, aten.expm1, aten.log}
_SMOOTH |= {aten.log1p, aten.logaddexp, aten.sigmoid, aten.tanh}
"""Ops of elements without kinks: which of equal elements gets a maximum's gradient depends on the brackets."""
_BATCH = ("_add_batch_dim", "_remove_batch_dim")
_NESTING = ("lazy_load_decompositions", "_vmap_increment_nesting", "_vmap_decrement_nesting")
"""What `vmap` adds to a graph, which changes nothing for a function of elements."""


@dataclass
class _Written:
    """A scan that is written out: the dim, its operands, every other element of them, its results in their order, and
    what its function makes of pairs of elements.
    """

    dim: int
    leaves: list[Node]
    firsts: list[Node]
    roots: list[Node]
    combined: list[Node]


def differentiate_scans(gm: GraphModule) -> int:
    """Replace scans that are written out and whose operands need gradients; returns how many there were.

    The function must be a smooth one of elements, without other operands, and associative, which is tried on random
    numbers.
    """
    modules = [m for m in gm.modules() if isinstance(m, GraphModule)] if torch.is_grad_enabled() else []
    return sum(_differentiate(module) for module in modules)


def _differentiate(gm: GraphModule) -> int:
    """One scan after the other: a scan's steps have shorter ones in them, which go with it."""
    found = 0
    while any(_replace(gm, scan, f"kiln_combine_{found}") for scan in _written(gm)):
        found += 1
    if found:
        gm.recompile()
    return found


def _written(gm: GraphModule) -> Iterator[_Written]:
    """Groups of slices that take every other element begin a level of a scan; those of the longest begin a scan."""
    nodes = list(gm.graph.nodes)
    groups: list[list[int]] = []
    for i, node in enumerate(nodes):
        if _dim_of_others(node, 0) is None:
            continue
        if groups and groups[-1][-1] == i - 1:
            groups[-1].append(i)
        else:
            groups.append([i])
    for group, after in zip(groups, groups[1:], strict=False):
        firsts = [nodes[i] for i in group]
        leaves, combined = [_operand(n) for n in firsts], [_operand(nodes[i]) for i in after]
        dim = _dim_of_others(firsts[0], 0)
        assert dim is not None
        shape = _shape(leaves[0])
        if len(leaves) != len(combined) or len(leaves) > _MOST or not _is_long(shape[dim]):
            continue
        roots = [node for node in nodes[after[-1] :] if _shape(node) == shape and _is_interleaved(node, dim)]
        alike = all(_shape(leaf) == shape for leaf in leaves) and {_dim_of_others(n, 0) for n in firsts} == {dim}
        if alike and len(roots) >= len(leaves):
            yield _Written(dim, leaves, firsts, roots[: len(leaves)], combined)


def _is_slice(node: Node) -> bool:
    return node.target in (aten.slice, aten.slice.Tensor) and not node.kwargs


def _operand(node: Node) -> Node:
    return cast(Node, node.args[0])


def _dim_of_others(node: Node, start: int) -> int | None:
    """The dim along which it is every other element from the first (start 0) or the second (1) on, if it is."""
    if not _is_slice(node) or len(node.args) != 5 or not _shape(_operand(node)):
        return None
    return cast(int, node.args[1]) if node.args[2:] == (start, None if start else -1, 2) else None


def _is_interleaved(node: Node, dim: int) -> bool:
    """Whether it is what `_interleave` returns: pairs side by side, flattened, and cut if their number is odd."""
    if _is_slice(node) and node.args[1:3] == (dim, 0):
        node = _operand(node)
    return node.target is torch.flatten


def _is_long(size: Any) -> bool:
    return isinstance(size, int) and size >= _SHORTEST


def _shape(node: Node) -> tuple[Any, ...]:
    """Of a tensor; () of others. Unknown sizes are expressions: comparing `SymInt`s would add guards."""
    value = node.meta.get("example_value")
    shape = tuple(value.shape) if isinstance(value, Tensor) else ()
    return tuple(cast(Any, size).node.expr if isinstance(size, torch.SymInt) else size for size in shape)


def _replace(gm: GraphModule, scan: _Written, name: str) -> bool:
    """Put one call in the place of the steps, if they are a scan and nothing else reads them."""
    if not any(leaf.meta["example_value"].requires_grad for leaf in scan.leaves):
        return False
    nodes = list(gm.graph.nodes)
    steps = nodes[min(map(nodes.index, scan.firsts)) : max(map(nodes.index, scan.roots)) + 1]
    within = set(steps)
    if any(not within.issuperset(node.users) for node in steps if node not in scan.roots):
        return False
    pairs = [*scan.firsts, *(n for n in steps if _dim_of_others(n, 1) == scan.dim and _operand(n) in scan.leaves)]
    combine = _cut(steps, pairs, scan.combined, is_batched=False)
    whole = _cut(steps, scan.leaves, scan.roots, is_batched=True)
    if combine is None or whole is None or not _is_scan(combine, whole, scan):
        return False
    _TAKEN("one tensor" if len(scan.leaves) == 1 else "several tensors")
    gm.add_submodule(name, combine)
    with gm.graph.inserting_before(steps[0]):
        call = gm.graph.call_function(_scan, (gm.graph.get_attr(name), scan.dim, *scan.leaves))
        for i, root in enumerate(scan.roots):
            result = gm.graph.call_function(operator.getitem, (call, i))
            result.meta["example_value"] = root.meta["example_value"]
            root.replace_all_uses_with(result)
    for node in reversed(steps):
        gm.graph.erase_node(node)
    return True


def _cut(
    steps: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node], is_batched: bool
) -> GraphModule | None:
    """What computes the outputs from the inputs, or None if it reads anything else. With `vmap`'s nodes or without."""
    needed, queue = set[Node](), list(outputs)
    while queue:
        node = queue.pop()
        if node not in inputs and node not in needed:
            if node not in steps:
                return None
            needed.add(node)
            queue += node.all_input_nodes
    graph = Graph()
    copies = {node: graph.placeholder(f"x{i}") for i, node in enumerate(inputs)}
    for node in steps:
        kind = getattr(node.target, "__name__", "")
        if node in copies or (node not in needed and not (is_batched and kind in _NESTING)):
            continue
        if kind in _BATCH and not is_batched:
            copies[node] = copies[_operand(node)]
        else:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[node] for node in outputs))
    return GraphModule(torch.nn.Module(), graph)


def _is_scan(combine: GraphModule, steps: GraphModule, scan: _Written) -> bool:
    """Whether the function is smooth and associative, and the steps are its scan, for random numbers."""
    with unset_fake_temporarily(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shape = _shape(scan.leaves[0])
        dtypes = [leaf.meta["example_value"].dtype for leaf in scan.leaves]
        x, y, z = ([_random((3,) * len(shape), dtype) for dtype in dtypes] for _ in range(3))
        calls = [n.target for n in make_fx(combine)(*x, *y).graph.nodes if n.op == "call_function"]
        if not all(getattr(target, "overloadpacket", None) in _SMOOTH for target in calls):
            return False
        if not _are_close(combine(*combine(*x, *y), *z), combine(*x, *combine(*y, *z))):
            return False
        operands = [_random([n if d == scan.dim else 1 for d, n in enumerate(shape)], dtype) for dtype in dtypes]
        return _are_close(steps(*operands), _steps(combine, operands, scan.dim))


def _random(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Numbers in (0, 1), in float64 for floats of any type; small integers."""
    return torch.rand(shape, dtype=torch.float64) if dtype.is_floating_point else torch.randint(0, 100, shape).to(dtype)


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    return all(f.shape == e.shape and torch.allclose(f, e, 1e-9, 1e-12) for f, e in zip(found, expected, strict=True))


def _steps(combine: Callable[..., Sequence[Tensor]], xs: Sequence[Tensor], dim: int = 0) -> list[Tensor]:
    """The running results, written out in log2(n) steps.

    As PyTorch's `generic_associative_scan` does, which asks for the number of all elements: with a batch of unknown
    size that is a guard on it.
    """
    count = xs[0].shape[dim]
    if count < 2:
        return list(xs)
    pairs = combine(*[aten.slice(x, dim, 0, -1, 2) for x in xs], *[aten.slice(x, dim, 1, None, 2) for x in xs])
    odd = _steps(combine, pairs, dim)
    even = [aten.slice(x, dim, 0, 1) for x in xs]
    if count > 2:
        before = odd if count % 2 else [aten.slice(y, dim, 0, -1) for y in odd]
        rest = combine(*before, *[aten.slice(x, dim, 2, None, 2) for x in xs])
        even = [torch.cat(both, dim) for both in zip(even, rest, strict=True)]
    return [_interleave(*both, dim) for both in zip(even, odd, strict=True)]


def _scan(combine: Callable[..., Sequence[Tensor]], dim: int, *xs: Tensor) -> tuple[Tensor, ...]:
    """The running results of xs along a dim."""
    return cast(Any, _Scan.apply)(combine, dim, *xs)


class _Scan(torch.autograd.Function):
    """Results y of operands x; keeps both."""

    @staticmethod
    def forward(ctx: Any, combine: Callable[..., Sequence[Tensor]], dim: int, *xs: Tensor) -> tuple[Tensor, ...]:
        ys = _steps(combine, xs, dim)
        ctx.combine, ctx.dim = combine, dim
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*xs, *ys)
        return tuple(ys)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        count = len(gradients)
        saved = [x.movedim(ctx.dim, 0) for x in ctx.saved_tensors]
        xs, ys = saved[:count], saved[count:]
        gradients = tuple(None if g is None else g.movedim(ctx.dim, 0) for g in gradients)
        with torch.enable_grad():
            before = [_variable(y[:-1]) for y in ys]
            now = [_variable(x[1:]) for x in xs]
            after = ctx.combine(*before, *now)
        states = _running([_derivatives([result], before, None) for result in after], gradients)
        kinds = [j for j in states if after[j].requires_grad]
        rests = _derivatives([after[j] for j in kinds], now, [states[j][1:] for j in kinds])
        found: list[Tensor | None] = [None, None]
        for i, (x, rest) in enumerate(zip(xs, rests, strict=True)):
            if not ctx.needs_input_grad[i + 2] or (rest is None and i not in states):
                found.append(None)
                continue
            first = states[i][:1] if i in states else _zeros(x[:1])
            whole = torch.cat([first, _zeros(x[1:]) if rest is None else rest])
            found.append(whole.movedim(0, ctx.dim))
        return tuple(found)


def _zeros(x: Tensor) -> Tensor:
    """As many, of its type. `zeros_like` reads its operand: the forward graph would compute it, and keep it."""
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


def _variable(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.is_floating_point())


_Partials = list[list[Any]]
"""[result][state] -> the derivative, element by element, or None where it is 0 for sure."""


def _derivatives(
    results: Sequence[Tensor], operands: Sequence[Tensor], gradients: Sequence[Tensor] | None
) -> list[Any]:
    """Of the results, weighted by gradients (1 if None), by each operand; None where it is 0 for sure."""
    wanted = [x for x in operands if x.requires_grad]
    if not wanted or not any(result.requires_grad for result in results):
        return [None] * len(operands)
    if gradients is None:
        gradients = [torch.ones(result.shape, dtype=result.dtype, device=result.device) for result in results]
    parts = iter(torch.autograd.grad(results, wanted, gradients, retain_graph=True, allow_unused=True))
    return [next(parts) if x.requires_grad else None for x in operands]


def _running(by_state: _Partials, gradients: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """What flows into each state, by its number: of those only that a gradient reaches."""
    reached = [j for j, gradient in enumerate(gradients) if gradient is not None]
    for j in reached:  # grows
        reached += [i for i, part in enumerate(by_state[j]) if part is not None and i not in reached]
    given = {j: gradient for j, gradient in enumerate(gradients) if gradient is not None}
    shaped = next(iter(given.values()))
    found: dict[int, Tensor] = {}
    for group in _connected(by_state, reached):
        if len(group) == 1 and by_state[group[0]][group[0]] is None:
            found[group[0]] = given[group[0]]
            continue
        matrix = [[by_state[j][i] for j in group] for i in group]  # transposed
        zero = _zeros(shaped)
        sums = _linear(
            [_zeros(shaped[1:]) if part is None else part for row in matrix for part in row],
            [given.get(i, zero) for i in group],
        )
        found |= dict(zip(group, sums, strict=True))
    return found


def _connected(by_state: _Partials, reached: Sequence[int]) -> list[list[int]]:
    """The states in groups that do not depend on each other."""
    groups: list[list[int]] = []
    for i in reached:
        beside = [g for g in groups if any(by_state[i][j] is not None or by_state[j][i] is not None for j in g)]
        groups = [g for g in groups if g not in beside] + [[*(j for g in beside for j in g), i]]
    return groups


def _linear(matrices: Sequence[Tensor], vectors: Sequence[Any]) -> list[Tensor]:
    """l[t] = vectors[t] + matrices[t] l[t + 1], from the last to the first; matrices [n - 1, ...], rows by columns."""
    count = len(vectors)

    def combine(*given: Tensor) -> list[Tensor]:
        left, right = given[: len(given) // 2], given[len(given) // 2 :]
        m, v = left[: count * count], left[count * count :]
        n, w = right[: count * count], right[count * count :]

        def product(row: int, column: Sequence[Tensor]) -> Tensor:
            terms = [n[row * count + k] * column[k] for k in range(count)]
            return sum(terms[1:], terms[0])

        products = [product(i, [m[k * count + j] for k in range(count)]) for i in range(count) for j in range(count)]
        return [*products, *(product(i, v) + w[i] for i in range(count))]

    def from_last(matrix: Tensor) -> Tensor:
        return torch.cat([_zeros(matrix[:1]), matrix.flip(0)])

    operands = [*map(from_last, matrices), *(vector.flip(0) for vector in vectors)]
    return [result.flip(0) for result in _steps(combine, operands)[count * count :]]
