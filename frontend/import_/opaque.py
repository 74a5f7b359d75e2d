# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""FX nodes as opaque dispatcher ops: higher-order operators and arguments that the torch dialect has no form for.

``kiln_fx::call_<hash>(Tensor a0, SymInt a1, ...) -> (Tensor, ...)`` runs the node's own Python target with its
constant arguments filled in, so that it flows through import, planning and execution like any other ATen call.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import sympy
import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.printers import PythonPrinter

from kiln.frontend.import_.fx_values import ImportUnsupported, node_value

__all__ = ["wrap_node"]

_library = torch.library.Library("kiln_fx", "FRAGMENT")
#: Name -> (identity of what it calls, overload): the same call is registered once.
_registered: dict[str, tuple[Any, OpOverload]] = {}


#: Where a result lies in what a node returns: member ``i``, or element ``j`` of member ``i``, a list.
Position = int | tuple[int, int]


def wrap_node(node: Node) -> tuple[OpOverload, list[Node], list[Any], list[Position]]:
    """Register ``node`` as an op.

    Returns:
        The op; the nodes that are its operands; its results' values; the position of each in the node's own result
        (members that are None are left out).

    Raises:
        ImportUnsupported: operands or results that are neither tensors nor sizes.
    """
    value = node_value(node)
    members = _members(cast(Sequence[Any], value) if isinstance(value, (tuple, list)) else [value])
    positions = [position for position, member in members if member is not None]
    values = [member for _, member in members if member is not None]
    if not all(isinstance(member, torch.Tensor) for member in values):
        kinds = ", ".join(type(member).__name__ for member in values)
        raise ImportUnsupported(f"{node.name} ({node.target}) returns {kinds}")
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    template: list[Any] = []
    inputs: list[Node] = []
    for leaf in leaves:
        template.append(_operand(leaf, inputs) if isinstance(leaf, Node) else leaf)
    parameters = [f"{_kind(operand)} a{i}" for i, operand in enumerate(inputs)]
    returns = ", ".join(["Tensor"] * len(values))
    signature = f"({', '.join(parameters)}) -> ({returns})"
    kept = positions if isinstance(value, (tuple, list)) else None
    assert callable(node.target), "call_function nodes call functions"
    return _register(node.target, template, spec, signature, kept), inputs, values, positions


def _members(values: Sequence[Any]) -> list[tuple[Position, Any]]:
    """The members of a result, and the elements of those that are lists (what a custom op may return)."""
    found: list[tuple[Position, Any]] = []
    for i, member in enumerate(values):
        if isinstance(member, (tuple, list)):
            found += [((i, j), element) for j, element in enumerate(cast(Sequence[Any], member))]
        else:
            found.append((i, member))
    return found


def register_check(condition: sympy.Basic, names: Sequence[str], message: str) -> OpOverload:
    """An op of the integers ``names`` that raises ``RuntimeError(message)`` unless ``condition`` holds."""
    text = PythonPrinter().doprint(condition)
    digest = hashlib.sha256(f"{text}\n{names}\n{message}".encode()).hexdigest()[:12]
    name = f"check_{digest}"
    if name in _registered:
        return _registered[name][1]
    test = eval(f"lambda {', '.join(names)}: {text}", {"math": math})

    def check(*values: int) -> None:
        if not test(*values):
            raise RuntimeError(message)

    _library.define(f"{name}({', '.join(f'SymInt {symbol}' for symbol in names)}) -> ()")
    _library.impl(name, check, "CompositeExplicitAutograd")
    overload = getattr(torch.ops.kiln_fx, name).default
    _registered[name] = (text, overload)
    return overload


class _Slot:
    """Stands for the ``index``-th operand in the argument template."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


class _Number:
    """A float that the graph computes from sizes (the scale of attention over heads of a dynamic size), computed again
    inside of the call: an operand is a tensor or an integer.
    """

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.target, self.args = target, args

    def __repr__(self) -> str:
        return f"{self.target}{self.args}"


def _operand(node: Node, inputs: list[Node]) -> Any:
    """What stands for ``node`` in the template; the operands that it needs are appended to ``inputs``."""
    bound = _attribute(node)
    if bound is not None:
        return bound
    if isinstance(node_value(node), torch.SymFloat) and node.op == "call_function" and not node.kwargs:
        assert callable(node.target), "call_function nodes call functions"
        return _Number(node.target, tuple(_operand(a, inputs) if isinstance(a, Node) else a for a in node.args))
    inputs.append(node)
    return _Slot(len(inputs) - 1)


def _filled(leaf: Any, operands: Sequence[Any]) -> Any:
    """A leaf of the template with the operands of one call."""
    if isinstance(leaf, _Slot):
        return operands[leaf.index]
    if isinstance(leaf, _Number):
        return leaf.target(*(_filled(a, operands) for a in leaf.args))
    return leaf


def _kind(node: Node) -> str:
    value = node_value(node)
    if isinstance(value, torch.Tensor):
        return "Tensor"
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        return "SymInt"
    raise ImportUnsupported(f"{node.name} ({type(value).__name__}) cannot be an operand of an opaque call")


def _attribute(node: Node) -> Any:
    """The sub-graph (not the tensor) that a ``get_attr`` node names, or None."""
    if node.op != "get_attr":
        return None
    owner: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        owner = getattr(owner, part)
    return owner if isinstance(owner, GraphModule) else None


def _register(
    target: Callable[..., Any], template: list[Any], spec: Any, signature: str, kept: list[Position] | None
) -> OpOverload:
    described = [leaf.code if isinstance(leaf, GraphModule) else repr(leaf) for leaf in template]
    digest = hashlib.sha256("\n".join([str(target), signature, str(spec), *described]).encode()).hexdigest()[:12]
    identity = (target, [leaf for leaf in template if isinstance(leaf, GraphModule)])
    name, attempt = f"call_{digest}", 0
    while name in _registered and _registered[name][0] != identity:
        attempt += 1
        name = f"call_{digest}_{attempt}"
    if name in _registered:
        return _registered[name][1]

    def call(*operands: Any) -> Any:
        filled = [_filled(leaf, operands) for leaf in template]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        with torch.no_grad(), _transforms_allowed():
            results = target(*args, **kwargs)
        taken = {t.untyped_storage()._cdata for t in operands if isinstance(t, torch.Tensor)}
        owned = [_own(result, taken) for result in ([results] if kept is None else _chosen(results, kept))]
        return tuple(owned) if len(owned) != 1 else owned[0]

    _library.define(name + signature)
    _library.impl(name, call, "CompositeExplicitAutograd")
    overload = getattr(torch.ops.kiln_fx, name).default
    _registered[name] = (identity, overload)
    return overload


_TRANSFORM_KEYS = (
    "FuncTorchBatched",
    "FuncTorchBatchedDecomposition",
    "FuncTorchVmapMode",
    "FuncTorchDynamicLayerBackMode",
    "FuncTorchDynamicLayerFrontMode",
)


def _transforms_allowed() -> Any:
    """A context in which ``vmap`` works, as in what ``flex_attention`` calls for each score.

    Under a TorchDispatchMode (AOTAutograd has one around the first call) ops are called with all keys above excluded.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _TRANSFORM_KEYS:
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


def _chosen(results: Sequence[Any], kept: Sequence[Position]) -> list[torch.Tensor]:
    return [results[k[0]][k[1]] if isinstance(k, tuple) else results[k] for k in kept]


def _own(result: torch.Tensor, taken: set[int]) -> torch.Tensor:
    """The schema promises fresh memory: copy a result that shares an operand's."""
    return result.clone() if result.untyped_storage()._cdata in taken else result
