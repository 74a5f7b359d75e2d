# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run-time side of ``kiln.aten``: from the op's name and JSON arguments to a Python callable.

Nothing here imports MLIR, so a plan loaded from disk can call ATen without a compiler.

JSON encoding of an argument:

=========================== ====================================================
``null, bool, number, str`` the Python value itself
``[...]``                   a list
``{"operand": i}``          the i-th tensor operand; with ``"strides": [...]`` beside it, copied where it has others
``{"sym": k}``              the k-th symbol (a Python int at run time)
``{"expr": "s0 * 4"}``      affine text over the symbols ``s0, s1, ...``
``{"dtype": "float32"}``    ``torch.float32``
``{"device": "cpu"}``       ``torch.device("cpu")``
``{"memory_format": ...}``  ``torch.contiguous_format`` ...
``{"layout": "strided"}``   ``torch.strided`` ...
``{"float": "inf"}``        a float that JSON has no literal for: ``inf``, ``-inf``, ``nan``
``{"complex": [re, im]}``   a complex number
``{"div": [a, b]}``         the float quotient of two of the above
=========================== ====================================================
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from kiln.errors import KilnError
from kiln.runtime.evaluate import EVALUATE as EVALUATE  # defines the operator
from kiln.runtime.numbers import NUMBER_ON as NUMBER_ON  # defines the operator
from kiln.runtime.rnn_layer import rnn_layer
from kiln.runtime.strided import IN_MEMORY as IN_MEMORY  # defines operators

AtenCallable = Callable[[Sequence[torch.Tensor], Sequence[int]], list[Any]]

_TORCH_NAMES = ("dtype", "memory_format", "layout")
_EXPR_TOKEN = re.compile(r"(\d+)|(s\d+)|(floordiv|ceildiv|mod)|([-+*()])")


class AtenCallError(KilnError):
    """A ``kiln.aten`` names an operator that this PyTorch lacks, or holds a malformed argument."""


def resolve_op(op: str) -> Any:
    """The ``torch.ops`` overload named ``"namespace.name.overload"``.

    Raises AtenCallError if this process has no such operator (a custom op whose library is not imported, or an
    operator of another PyTorch release).
    """
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.rpartition(".")
    try:
        if not (namespace and name and overload):
            raise AttributeError(op)
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (AttributeError, RuntimeError) as error:
        raise AtenCallError(
            f"kiln.aten: operator '{op}' is not registered in PyTorch {torch.__version__}; expected "
            "'namespace.name.overload'; import the library that defines it before the compiled model runs"
        ) from error


def affine_to_python(text: str, symbol: str = "s") -> str:
    """Python source of an affine expression over ``s0, s1, ...``; ``sK`` becomes ``symbol[K]``.

    ``floordiv``, ``ceildiv`` and ``mod`` have MLIR's semantics: those of Python's ``//`` and ``%``.
    Raises AtenCallError on text that is no such expression.
    """
    tokens = _EXPR_TOKEN.findall(text)
    if "".join("".join(t) for t in tokens) != "".join(text.split()):
        raise AtenCallError(f"kiln.aten: expected an affine expression over s0, s1, ..., found '{text}'")
    position = 0

    def peek() -> str:
        return "".join(tokens[position]) if position < len(tokens) else ""

    def take(expected: str = "") -> str:
        nonlocal position
        found = peek()
        if not found or (expected and found != expected):
            raise AtenCallError(f"kiln.aten: expected an affine expression over s0, s1, ..., found '{text}'")
        position += 1
        return found

    def atom() -> str:
        token = take()
        if token == "-":
            return f"-{atom()}"
        if token == "(":
            inner = sum_()
            take(")")
            return f"({inner})"
        if token[0] == "s" and token[1:].isdigit():
            return f"{symbol}[{token[1:]}]"
        if token.isdigit():
            return token
        raise AtenCallError(f"kiln.aten: unexpected '{token}' in the affine expression '{text}'")

    def product() -> str:
        left = atom()
        while peek() in ("*", "floordiv", "ceildiv", "mod"):
            kind, right = take(), atom()
            if kind == "ceildiv":
                left = f"(-(-{left}//{right}))"
            else:
                left += {"*": "*", "floordiv": "//", "mod": "%"}[kind] + right
        return left

    def sum_() -> str:
        left = product()
        while peek() in ("+", "-"):
            left += take() + product()
        return left

    source = sum_()
    if peek():
        raise AtenCallError(f"kiln.aten: unexpected '{peek()}' in the affine expression '{text}'")
    return source


class _Source:
    """Builds the Python source of one call; constants go to the closure's namespace."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def value(self, node: Any) -> str:
        """Python source of a decoded JSON value."""
        if isinstance(node, list):
            return "[" + ", ".join(self.value(item) for item in cast(list[Any], node)) + "]"
        if not isinstance(node, dict):
            return repr(node)
        node = cast(dict[str, Any], node)
        if node.keys() == {"operand", "strides"}:
            return f"_with_strides({self.value({'operand': node['operand']})}, {self.value(node['strides'])})"
        if len(node) != 1:
            raise AtenCallError(f"kiln.aten: expected a dictionary with one key, found {node}")
        kind, payload = next(iter(node.items()))
        if kind == "operand":
            return f"t[{int(payload)}]"
        if kind == "sym":
            return f"s[{int(payload)}]"
        if kind == "expr":
            return affine_to_python(payload)
        if kind == "device":
            return self.constant(torch.device(payload))
        if kind in _TORCH_NAMES:
            return self.constant(getattr(torch, payload))
        if kind == "float":
            return self.constant(float(payload))
        if kind == "complex":
            return self.constant(complex(*payload))
        if kind == "div":
            return f"({self.value(payload[0])} / {self.value(payload[1])})"
        raise AtenCallError(f"kiln.aten: unknown argument kind '{kind}' in {node}")


def _with_strides(x: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """``x`` with its elements where an op looks for them that reads memory by itself.

    Where there is nothing to step to, strides do not count. Elements of one place are equal, as those of a mask that is
    expanded over heads: the first of them is copied.
    """
    if not x.numel() or all(n == 1 or s == t for n, s, t in zip(x.shape, x.stride(), strides, strict=True)):
        return x
    once = x[tuple(slice(1 if stride == 0 else None) for stride in strides)]
    reach, overlaps = 0, False
    for stride, n in sorted(zip(strides, once.shape, strict=True)):
        overlaps |= n > 1 and stride <= reach
        reach += (n - 1) * stride
    memory = torch.empty(reach + 1, dtype=x.dtype, device=x.device)
    if overlaps:
        memory[torch.arange(reach + 1, device=x.device).as_strided(once.shape, strides)] = once
    else:
        memory.as_strided(once.shape, strides).copy_(once)
    return memory.as_strided(x.shape, strides)


def decode_call(op: str, args_json: str, kwargs_json: str = "{}", last_read: int = -1) -> AtenCallable:
    """Compiles one ``kiln.aten`` into ``call(tensors, symbols) -> outputs``.

    Everything that can be is done here, once: operator lookup, JSON, constants. A call is then one Python frame.
    ``tensors`` are the op's tensor operands, ``symbols`` its trailing symbols as ints. The outputs are flat, tensors
    first, then numbers: a list result is spliced in, and None (an undefined tensor) is left out, as ``kiln.aten`` has
    no result for it. ``last_read`` is the last of them that anything reads.

    Raises AtenCallError on an unknown operator or a malformed argument.
    """
    target = resolve_op(op)
    source = _Source()
    arguments = [source.value(node) for node in json.loads(args_json)]
    arguments += [f"{name}={source.value(node)}" for name, node in json.loads(kwargs_json).items()]
    call = f"f({', '.join(arguments)})"
    returns = [str(r.type) for r in target._schema.returns]
    if not returns:
        body = f"({call}, [])[1]"
    elif len(returns) == 1 and not returns[0].startswith("List"):
        body = f"[{call}]"
    elif "int" in returns:
        body = f"_tensors_first(_flatten({call}))"
    else:
        body = f"_flatten({call})"
    # The overload's own function: `OpOverload.__call__` is a frame of Python around it.
    helpers = {
        "_flatten": _flatten,
        "_tensors_first": _tensors_first,
        "_with_strides": _with_strides,
    }
    function = rnn_layer(op, getattr(target, "_op", target), last_read)
    namespace = {"f": function, **helpers, **source.constants}
    return eval(compile(f"lambda t, s: {body}", f"<kiln.aten {op}>", "eval"), namespace)


def _tensors_first(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: not isinstance(value, torch.Tensor))


def _flatten(result: Any) -> list[Any]:
    """Flat list of tensors and numbers of an operator's result, without None."""
    if isinstance(result, (tuple, list)):
        return [leaf for item in cast(Sequence[Any], result) for leaf in _flatten(item)]
    return [] if result is None else [result]
