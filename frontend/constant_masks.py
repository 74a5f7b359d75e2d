# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Masks of attention that a Dynamo graph computes from constants, as the flags they stand for.

Models build masks in the graph (`arange`, comparisons, `expand`), also those that hide nothing. AOTAutograd takes
``scaled_dot_product_attention`` apart while it traces, and PyTorch's choice among its kernels goes by whether there is
a mask, its strides and its size: with one it may take the formula in float32, forward and backward, where eager, which
can look at the mask's elements, takes flash attention. So the mask is evaluated in front of AOTAutograd, for training
and inference alike.
"""

from collections.abc import Iterable
from functools import cache
from math import prod
from typing import Any, TypeGuard, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["HIDDEN", "fold_constant_masks"]

HIDDEN = -1e8
"""Scores up to this are those of hidden keys: their exponentials are 0 beside any other score."""

aten = torch.ops.aten

_ATTENTION = (F.scaled_dot_product_attention, aten.scaled_dot_product_attention.default)
_MASK, _CAUSAL, _SCALE = (3, "attn_mask"), (5, "is_causal"), (6, "scale")
"""Position and name of the arguments."""
_MOST_ELEMENTS = 1 << 27
"""Of all tensors that a mask is computed from: about a quarter of a second."""
_BY_SHAPE = ("new_ones", "new_zeros", "new_full", torch.ones_like, torch.zeros_like, torch.full_like)
"""Methods and functions that read no element of their first argument."""
_UNDEFINED = (aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided)


class _NotConstant(Exception):
    """A value that depends on more than constants, or costs too much to compute."""


def fold_constant_masks(gm: GraphModule) -> int:
    """Drop masks that hide nothing, and write causal ones as ``is_causal``, in a graph and the graphs inside of it.

    A mask of [..., L, L] is causal where it hides exactly the keys behind each query. Masks that depend on an input,
    on a symbolic size or on random numbers stay, as do those that the graph writes into, and those of scores with a
    scale below zero: PyTorch's flash attention scales what it has hidden, and -inf becomes inf. Returns how many went.
    """
    return sum(_fold(module) for module in gm.modules() if isinstance(module, GraphModule))


def _fold(gm: GraphModule) -> int:
    known: dict[Node, str | None] = {}
    folded: list[Node] = []
    for node in [n for n in gm.graph.nodes if n.op == "call_function" and n.target in _ATTENTION]:
        mask = _argument(node, _MASK)
        if not isinstance(mask, Node) or _argument(node, _CAUSAL) not in (None, False) or not _fits(node, mask):
            continue
        scale = _argument(node, _SCALE)
        if isinstance(scale, (int, float)) and scale < 0:
            continue
        if mask not in known:
            known[mask] = _meaning_of(mask)
        if known[mask] is not None:
            _set_argument(node, _MASK, None)
            _set_argument(node, _CAUSAL, known[mask] == "causal")
            _keep_order(node)
            folded.append(mask)
    for mask in folded:
        for node in reversed(_ancestors(mask)):
            if not node.users:
                gm.graph.erase_node(node)
    if folded:
        gm.recompile()
    return len(folded)


def _argument(node: Node, which: tuple[int, str]) -> Any:
    position, name = which
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)


def _set_argument(node: Node, which: tuple[int, str], value: bool | None) -> None:
    position, name = which
    if len(node.args) > position:
        node.update_arg(position, value)
    else:
        node.update_kwarg(name, value)


def _keep_order(node: Node) -> None:
    """Has the result of attention that was given a mask keep its order of dims in memory, which is that of the kernel
    that PyTorch chose.
    """
    before = cast(FakeTensor, node.meta["example_value"])
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["example_value"])
    order = _order(before)
    with before.fake_mode:  # the formula makes a mask of its own
        now = cast(Any, node.target)(*args, **kwargs)
    if order == _order(now):
        return
    with node.graph.inserting_after(node):
        inner = node.graph.call_method("permute", (node, order))
    with node.graph.inserting_after(inner):
        dense = node.graph.call_method("contiguous", (inner,))
    with node.graph.inserting_after(dense):
        outer = node.graph.call_method("permute", (dense, [order.index(d) for d in range(len(order))]))
    values = [before.permute(order), before.permute(order).contiguous(), before]
    for made, value in zip((inner, dense, outer), values, strict=True):
        made.meta = {**node.meta, "example_value": value}
    node.replace_all_uses_with(outer, delete_user_cb=lambda user: user is not inner)


def _order(value: Tensor) -> list[int]:
    """The dims, the outermost in memory first."""
    return sorted(range(value.dim()), key=lambda d: -value.stride(d))


def _fits(node: Node, mask: Node) -> bool:
    """Whether the mask gives the result no shape that query, key and value do not give it."""
    query, key = (_argument(node, which) for which in ((0, "query"), (1, "key")))
    values = [n.meta.get("example_value") for n in (query, key, mask) if isinstance(n, Node)]
    if len(values) != 3 or not all(isinstance(v, Tensor) and _is_static(v) for v in values):
        return False
    query, key, mask_value = cast("list[Tensor]", values)
    if query.dim() < 2 or key.dim() < 2 or mask_value.dim() > query.dim():
        return False
    scores = (*query.shape[:-1], key.shape[-2])
    return all(n in (1, m) for n, m in zip(reversed(mask_value.shape), reversed(scores), strict=False))


def _is_static(value: Tensor) -> bool:
    return all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def _meaning_of(mask: Node) -> str | None:
    """``"all"`` where a mask hides nothing, ``"causal"`` where it hides what is behind each query; None otherwise."""
    try:
        return _classify(_evaluate(_ancestors(mask)))
    except Exception:  # noqa: BLE001 - an op that does not run by itself: the mask stays what it is
        return None


def _ancestors(mask: Node) -> list[Node]:
    """The nodes that a mask is computed from and itself, in the graph's order."""
    found = {mask}
    waiting = [mask]
    while waiting:
        new = [n for n in _read_by(waiting.pop()) if n not in found]
        found.update(new)
        waiting += new
    return [n for n in mask.graph.nodes if n in found]


def _read_by(node: Node) -> list[Node]:
    """The nodes whose elements a node may depend on."""
    return [n for n in node.all_input_nodes if node.target not in _BY_SHAPE or n is not node.args[0]]


def _evaluate(nodes: list[Node]) -> Any:
    """The last node's value, of tensors on the CPU."""
    storages: dict[int, int] = {}
    for node in nodes:
        if not _is_pure(node):
            raise _NotConstant
        for value in _tensors(node):
            storages[value.untyped_storage()._cdata] = _stored(value)
    if sum(storages.values()) > _MOST_ELEMENTS or _is_given_away(nodes[-1].graph.nodes, storages.keys()):
        raise _NotConstant
    last = {arg: node for node in nodes for arg in _read_by(node)}
    values: dict[Node, Any] = {}

    def value_of(node: Node) -> Any:
        return values[node] if node in values else _of_its_shape(node.meta["example_value"])

    with unset_fake_temporarily(), torch.device("cpu"), torch.no_grad(), _OnlyConstants():
        for node in nodes:
            args, kwargs = map_arg((node.args, node.kwargs), value_of)
            args, kwargs = cast("tuple[tuple[Any, ...], dict[str, Any]]", tree_map(_on_cpu, (args, kwargs)))
            if node.op == "call_method":
                values[node] = getattr(args[0], cast(str, node.target))(*args[1:], **kwargs)
            else:
                values[node] = cast(Any, node.target)(*args, **kwargs)
            for arg in _read_by(node):
                if last[arg] is node:
                    del values[arg]
    return values[nodes[-1]]


def _of_its_shape(value: Tensor) -> Tensor:
    if not _is_static(value):
        raise _NotConstant
    return torch.zeros((), dtype=value.dtype).expand(value.shape)


def _is_pure(node: Node) -> bool:
    """Whether a node is PyTorch's op, on constants as far as it itself says, that nothing in the graph writes into."""
    if node.op == "call_function":
        if not _is_of_pytorch(node.target):
            return False
    elif node.op != "call_method":
        return False
    leaves = tree_leaves(node.meta.get("example_value"))
    if not leaves or any(isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) for leaf in leaves):
        return False
    return all(_is_untouched(value) for value in leaves if isinstance(value, Tensor))


def _is_untouched(value: Tensor) -> TypeGuard[FakeTensor]:
    """Dynamo runs the graph's ops on fake tensors, views of which share the version that each write counts up."""
    plain = type(value) is FakeTensor and value.layout == torch.strided and not value.requires_grad
    return plain and not value.is_inference() and value._version == 0 and _is_static(value)


def _is_of_pytorch(target: Any) -> bool:
    if isinstance(target, HigherOrderOperator):
        return False
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return _qualified_name(target).partition("::")[0] in ("aten", "prims")
    module = getattr(target, "__module__", None) or ""
    return module in ("", "_operator") or module.partition(".")[0] == "torch"


def _qualified_name(target: Any) -> str:
    return target.name() if isinstance(target, OpOverload) else target._qualified_op_name


def _is_given_away(nodes: Iterable[Node], storages: Iterable[int]) -> bool:
    """Whether something that may write without a trace (a kernel of the user's) takes one of the tensors."""
    kept = set(storages)
    return any(
        value.untyped_storage()._cdata in kept
        for node in nodes
        if node.op == "call_module" or (node.op == "call_function" and _may_write_unseen(node.target))
        for arg in node.all_input_nodes
        for value in _tensors(arg)
    )


def _may_write_unseen(target: Any) -> bool:
    return not _is_of_pytorch(target) and not (isinstance(target, OpOverload) and not target._schema.is_mutable)


def _tensors(node: Node) -> list[Tensor]:
    return [v for v in tree_leaves(node.meta.get("example_value")) if isinstance(v, Tensor)]


def _stored(value: Tensor) -> int:
    """Elements in memory."""
    return prod(n for n, s in zip(value.shape, value.stride(), strict=True) if s)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] in _devices()):
        return torch.device("cpu")
    return value


@cache
def _devices() -> frozenset[str]:
    return frozenset({"cuda", "meta", torch._C._get_privateuse1_backend_name()})


class _OnlyConstants(TorchDispatchMode):
    """Refuses ops whose results differ from call to call."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        undefined = func.overloadpacket in _UNDEFINED
        if undefined or torch.Tag.nondeterministic_seeded in func.tags or func.namespace not in ("aten", "prims"):
            raise _NotConstant
        return func(*args, **(kwargs or {}))


def _classify(mask: Any) -> str | None:
    if not isinstance(mask, Tensor) or not mask.numel():
        return None
    mask = mask[tuple(slice(0, 1) if s == 0 else slice(None) for s in mask.stride())]  # the rest are equal
    seen = mask if mask.dtype == torch.bool else mask == 0
    if bool(seen.all()):
        return "all"
    if mask.dim() < 2 or mask.shape[-2] != mask.shape[-1]:
        return None
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool, device="cpu").tril()
    hides = mask.dtype == torch.bool or bool((seen | (mask <= HIDDEN)).all())
    return "causal" if hides and bool((seen == lower).all()) else None
