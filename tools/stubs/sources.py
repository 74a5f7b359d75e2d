# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stubs of the bindings' Python modules: the signatures of their classes and functions, with what they leave out.

The modules that MLIR generates from ODS annotate nearly everything; the handwritten ones beside them often leave out
`loc`, `ip` and what is returned.  A stub gives those their types by name, and by `RETURNS` what Kiln calls.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["RETURNS", "stub_of"]

RETURNS: Mapping[str, str] = {
    "arith.ConstantOp.create_index": "Self",
    "arith.ConstantOp.type": "ir.Type",
    "arith.ConstantOp.value": "ir.Attribute",
    "arith.constant": "ir.OpResult",
    "execution_engine.ExecutionEngine.lookup": "Any",
    "ext.Type.get": "Self",
    "ext.Attribute.get": "Self",
    "func.ConstantOp.type": "ir.Type",
    "func.FuncOp.arg_attrs": "ir.ArrayAttr",
    "func.FuncOp.arguments": "ir.BlockArgumentList",
    "func.FuncOp.add_entry_block": "ir.Block",
    "func.FuncOp.body": "ir.Region",
    "func.FuncOp.entry_block": "ir.Block",
    "func.FuncOp.is_external": "bool",
    "func.FuncOp.result_attrs": "ir.ArrayAttr",
    "func.FuncOp.type": "ir.FunctionType",
    "func.FuncOp.visibility": "ir.StringAttr",
    "scf.ForOp.body": "ir.Block",
    "scf.ForOp.induction_variable": "ir.BlockArgument",
    "scf.ForOp.inner_iter_args": "ir.BlockArgumentList",
}
"""What functions and accessors return whose sources do not say, by module and name."""

# Parameters that the handwritten modules leave without a type.
_PARAMETERS = {
    "loc": "ir.Location | None",
    "ip": "ir.InsertionPoint | None",
    "context": "ir.Context | None",
    "location": "ir.Location | None",
}

_HEADER = """\
from collections.abc import Buffer, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Dict, List, Optional, Self, Set, Tuple, Type as _PyType, Union, overload
from typing import Any as _Any, Optional as _Optional, Sequence as _Sequence, Union as _Union
from typing import List as _List, Tuple as _Tuple, Type as _Type
import builtins
from torch_mlir import ir
from torch_mlir import ir as _ods_ir
from typing_extensions import Buffer as _Buffer
"""


def stub_of(source: str, module: str, returns: Mapping[str, str] = RETURNS) -> str:
    """The stub of one module.

    source: the module's text.
    module: its last name ("arith"), under which `returns` lists what functions return that have no annotation.
    Raises SyntaxError, if the text is no Python.
    """
    lines = list(_Stub(module, returns).body(_flat(ast.parse(source).body), "", ""))
    return _HEADER + "\n" + "\n".join(lines) + "\n"


def _flat(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module, with those in `try` and `if` lifted out."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, (ast.Try, ast.If)):
            found += _flat(statement.body)
        else:
            found.append(statement)
    return found


class _Stub:
    """The lines of one module's stub."""

    def __init__(self, module: str, returns: Mapping[str, str]) -> None:
        self.module = module
        self.returns = returns

    def body(self, statements: Sequence[ast.stmt], path: str, indent: str) -> Iterable[str]:
        """The lines of a module's or class's statements; `path` is the class's name with a dot, or empty."""
        overloaded: set[str] = set()
        for statement in statements:
            if isinstance(statement, ast.FunctionDef):
                is_overload = "overload" in _names(statement.decorator_list)
                # The implementation behind overloads has no place in a stub.
                if is_overload or statement.name not in overloaded:
                    yield from self.function(statement, path, indent)
                if is_overload:
                    overloaded.add(statement.name)
            elif isinstance(statement, ast.ClassDef):
                yield from self.class_(statement, path, indent)
            elif isinstance(statement, (ast.Import, ast.ImportFrom)) and not path:
                yield from _import(statement)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
                yield from _assignment(statement, indent)

    def class_(self, node: ast.ClassDef, path: str, indent: str) -> Iterable[str]:
        bases = [ast.unparse(base) for base in node.bases]
        if node.name in bases:
            # A handwritten class takes the place of the generated one of the same name.
            yield f"{indent}from ._{self.module}_ops_gen import {node.name} as _Generated{node.name}"
            bases = [f"_Generated{base}" if base == node.name else base for base in bases]
        if "dataclass" in _names(node.decorator_list):
            yield f"{indent}@dataclass"
        yield f"{indent}class {node.name}({', '.join(bases)}):" if bases else f"{indent}class {node.name}:"
        inner = list(self.body(node.body, f"{path}{node.name}.", indent + "    "))
        inner += _fields(node, indent + "    ")
        if (self.module, node.name) == ("ext", "Dialect"):
            # Set by `__init_subclass__`: the bases of the dialect's own ops, types and attributes.
            inner += [f"{indent}    {name} = _Own{name}" for name in ("Operation", "Type", "Attribute")]
        if (self.module, node.name) == ("ext", "Operation"):
            inner.append(f"{indent}    result: Any")  # most ops have a field of that name
        yield from inner or [f"{indent}    ..."]
        if self.module == "ext" and node.name in ("Operation", "Type", "Attribute"):
            yield f"_Own{node.name} = {node.name}"

    def function(self, node: ast.FunctionDef, path: str, indent: str) -> Iterable[str]:
        decorators = [ast.unparse(d) for d in node.decorator_list]
        if "contextmanager" in decorators:
            return
        for decorator in decorators:
            kept = ("property", "staticmethod", "classmethod", "overload", "builtins.property")
            if decorator in kept or decorator.endswith((".setter", ".deleter")):
                yield f"{indent}@{decorator}"
        arguments = self.arguments(node.args, is_method=bool(path) and "staticmethod" not in decorators)
        returned = f" -> {self.returned(node, path)}"
        yield f"{indent}def {node.name}({arguments}){returned}: ..."

    def arguments(self, given: ast.arguments, *, is_method: bool) -> str:
        positional = [*given.posonlyargs, *given.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
        # In `def __init__(*args)` the instance is one of the arguments.
        rest = positional[1:] if is_method and positional else positional
        parts = [positional[0].arg] if is_method and positional else ["self"] if is_method else []
        parts += [_parameter(a, d) for a, d in zip(rest, defaults[len(positional) - len(rest) :], strict=True)]
        if given.vararg:
            parts.append(f"*{_parameter(given.vararg, None)}")
        elif given.kwonlyargs:
            parts.append("*")
        parts += [_parameter(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        if given.kwarg:
            parts.append(f"**{_parameter(given.kwarg, None)}")
        return ", ".join(parts)

    def returned(self, node: ast.FunctionDef, path: str) -> str:
        if node.returns is not None:
            return _type(node.returns)
        if (known := self.returns.get(f"{self.module}.{path}{node.name}")) is not None:
            return known
        inner = (n for s in node.body for n in ast.walk(s))
        gives = any(isinstance(n, (ast.Yield, ast.Return)) and n.value is not None for n in inner)
        return "Any" if gives and node.name != "__init__" else "None"


def _fields(node: ast.ClassDef, indent: str) -> Iterable[str]:
    """The attributes that a class's methods set on instances (`self`) or on the class (`cls`)."""
    members = {s.name for s in node.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    found: dict[str, str] = {}
    for method in (s for s in node.body if isinstance(s, ast.FunctionDef)):
        given = {a.arg: _parameter(a, None).partition(": ")[2] for a in (*method.args.args, *method.args.kwonlyargs)}
        for statement in ast.walk(method):
            if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
                continue
            if target.value.id not in ("self", "cls") or target.attr in members or target.attr in ("Operation", "Type"):
                continue
            if isinstance(statement, ast.AnnAssign):
                found[target.attr] = _type(statement.annotation)
            elif isinstance(statement.value, ast.Name):
                found.setdefault(target.attr, given.get(statement.value.id, "Any"))
            else:
                found.setdefault(target.attr, _made(statement.value))
    return [f"{indent}{name}: {type_}" for name, type_ in found.items() if name != "Attribute"]


def _made(value: ast.expr) -> str:
    """The type of what a call of a class gives (`SymbolTable(...)`), else `Any`."""
    called = value.func if isinstance(value, ast.Call) else None
    return called.id if isinstance(called, ast.Name) and called.id[:1].isupper() else "Any"


def _names(nodes: Iterable[ast.expr]) -> list[str]:
    return [ast.unparse(node) for node in nodes]


def _parameter(given: ast.arg, default: ast.expr | None) -> str:
    if given.annotation is not None:
        annotation = _argument_type(given.annotation)
    else:
        annotation = _PARAMETERS.get(given.arg, "Any")
    if isinstance(default, ast.Constant) and default.value is None:
        known = annotation == "Any" or "None" in annotation or "Optional" in annotation
        annotation = annotation if known else f"{annotation} | None"
    return f"{given.arg}: {annotation}" + ("" if default is None else " = ...")


class _Values(ast.NodeTransformer):
    """`Value[T]` without its type: values reach builders as plain `Value`s, and the verifier checks their types."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "Value":
            return node.value
        return ast.Subscript(node.value, self.visit(node.slice), node.ctx)


# Generic classes without their arguments.
_BARE = re.compile(r"(?<![\w.])(list|List|tuple|Tuple|dict|Dict|Sequence|_array)\b(?!\[)")


def _argument_type(node: ast.expr) -> str:
    return _type(_Values().visit(node))


def _type(node: ast.expr) -> str:
    text = _BARE.sub(r"\1[Any]", ast.unparse(node)).replace("_ods_cext.ir.", "ir.").replace("_cext.ir.", "ir.")
    text = text.replace("Tuple[Value]", "Tuple[Value, ...]")
    return {"any": "Any", "type": "builtins.type[Any]", "type | None": "builtins.type[Any] | None"}.get(text, text)


def _import(node: ast.Import | ast.ImportFrom) -> Iterable[str]:
    # The language of linalg's named ops has no types; Kiln calls one function that is written in it.
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opdsl"):
        yield "def copy(*operands: ir.Value, outs: Sequence[ir.Value]) -> Any: ..."
        return
    typing = isinstance(node, ast.ImportFrom) and node.module in ("typing", "collections.abc", "__future__")
    if not typing or any(name.asname for name in node.names):
        yield ast.unparse(node)


def _assignment(node: ast.Assign | ast.AnnAssign, indent: str) -> Iterable[str]:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name) or target.id in ("__doc__", "__slots__", "_ods_ir", "ir", "_generated_subview"):
        return
    if isinstance(node, ast.AnnAssign):
        yield f"{indent}{target.id}: {_type(node.annotation)}"
    elif isinstance(node.value, ast.Constant):
        yield f"{indent}{ast.unparse(node)}"
    elif isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript)):
        yield f"{indent}{target.id} = {ast.unparse(node.value)}"
    elif target.id != "__all__":
        yield f"{indent}{target.id}: Any"
