# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stubs of the bindings' extension modules: what nanobind's generator prints, with what it cannot know corrected."""

import importlib
import re
import tempfile
from pathlib import Path
from unittest import mock

__all__ = ["correct", "generate"]

_LIBRARIES = "torch_mlir._mlir_libs"

_MODULES = (
    *("_mlir", "_mlirDialectsIRDL", "_mlirDialectsLLVM", "_mlirDialectsLinalg", "_mlirExecutionEngine"),
    "_torchMlir",
)

# What the generator prints, and what is true. `ir.pyi` must hold each at least once.
_CORRECTIONS = (
    # A value of any type unless it says which; what gives a `Value[VectorType]` gives a `Value`.
    ('_T = TypeVar("_T", bound=Type)', '_T = TypeVar("_T", covariant=True, default=Type)'),
    ("    TypeVar,\n", "    Any,\n"),
    ("from typing_extensions import Buffer", "from typing_extensions import TypeVar, Buffer"),
    ("def set_type(self, type: _T):", "def set_type(self, type: Type) -> None:"),
    ("class OpOperandList(Sequence[Value], Generic[_T])", "class OpOperandList(Sequence[Value[_T]], Generic[_T])"),
    ("class OpResultList(Sequence[OpResult], Generic[_T])", "class OpResultList(Sequence[OpResult[_T]], Generic[_T])"),
    # A block argument's owner is a block; code that has ruled that out should not need to say so.
    ("def owner(self) -> OpView | Block:", "def owner(self) -> Any:"),
    # Read only: a dict of any kind of attribute will do.
    ("attributes: dict[str, Attribute]", "attributes: Mapping[str, Attribute]"),
    ("from collections.abc import Callable", "from collections.abc import Callable, Mapping"),
    ("results: Sequence | None", "results: Sequence[Type] | None"),
    ("operands: Sequence | None", "operands: Sequence[Value] | None"),
    ("def __len__(self, /):", "def __len__(self, /) -> int:"),
    # A string, unless asked for bytes.
    ("skip_regions: bool = False) -> object:", "skip_regions: bool = False) -> str:"),
    ("def __getitem__(self, arg: str, /) -> object:", "def __getitem__(self, arg: str, /) -> Dialect:"),
    ("def __getattr__(self, arg: str, /) -> object:", "def __getattr__(self, arg: str, /) -> Dialect:"),
    ("callback: object) -> object:", "callback: Callable[[Diagnostic], bool]) -> DiagnosticHandler:"),
    ("def locations(self) -> list[object]:", "def locations(self) -> list[Location]:"),
    ("ip: object | None = None", "ip: InsertionPoint | None = None"),
    ("*args, arg_locs: Sequence | None", "*args: Type, arg_locs: Sequence[Location] | None"),
    ("*arg_types, arg_locs", "*arg_types: Type, arg_locs"),
    ("attr_builder: Callable,", "attr_builder: Callable[..., Attribute],"),
    ("-> Callable:", "-> Callable[..., Attribute]:"),
    ("(values: Sequence,", "(values: Sequence[bool],"),
    ("arg: Sequence, /", "arg: Sequence[int] | Sequence[float], /"),
    ("def shape(self) -> list | None:", "def shape(self) -> list[int] | None:"),
    ("scalable: Sequence | None", "scalable: Sequence[bool] | None"),
    ("    def operands(self) -> list:", "    def operands(self) -> list[Value]:"),
)

# What the attribute of a name gives may be an array.
_ARRAY = """\
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, index: Any, /) -> Any: ...
"""

# The bindings hand out the most derived class of each of these.
_DERIVED = ("AffineExpr", "Attribute", "Type")


def generate() -> dict[str, str]:
    """The stubs of the extension modules that Kiln imports, by module name under `torch_mlir._mlir_libs`.

    Raises ImportError where nanobind is missing.
    """
    from nanobind import stubgen

    # Loading the package first finds the libraries of the extension.
    bindings = importlib.import_module(f"{_LIBRARIES}._mlir").ir
    found: dict[str, str] = {}
    # The package puts a subclass in the place of the extension's own `Context`, whose methods a stub must list.
    with mock.patch.object(bindings, "Context", bindings._Context), tempfile.TemporaryDirectory() as work:
        bindings._Context.__module__ = bindings.__name__
        for module in (
            "_mlir",
            "_mlirDialectsLLVM",
            "_mlirDialectsLinalg",
            "_mlirDialectsIRDL",
            "_torchMlir",
            "_mlirExecutionEngine",
        ):
            stubgen.main(["-q", "-P", "-r", "-m", f"{_LIBRARIES}.{module}", "-O", work])
        for path in Path(work).rglob("*.pyi"):
            name = ".".join(path.relative_to(work).with_suffix("").parts).removesuffix(".__init__")
            found[name] = path.read_text(encoding="utf-8")
    return found


def correct(module: str, text: str) -> str:
    """The stub `text` of one module that `generate` gave, under the names that modules are imported by.

    Raises AssertionError for a version of the bindings in which there is nothing to correct.
    """
    if module == "_mlir.ir":
        for printed, true in _CORRECTIONS:
            assert printed in text, printed
            text = text.replace(printed, true)
        for name in _DERIVED:
            head = f"\nclass {name}:\n"
            assert head in text, name
            text = text.replace(head, f"{head}    def __getattr__(self, name: str, /) -> Any: ...\n\n")
        text = text.replace("\nclass Attribute:\n", f"\nclass Attribute:\n{_ARRAY}")
        text = _CONTAINER.sub(_indexed, text)
        return re.sub(r"\b_mlir\.ir\.", "", text.replace("import _mlir.ir\n", ""))
    text = re.sub(rf"\b({re.escape(_LIBRARIES)}\.)?_mlir\.ir\b", "torch_mlir.ir", text)
    text = text.replace("def inputs(self) -> list:", "def inputs(self) -> list[torch_mlir.ir.Type]:")
    return re.sub(r"\bCallable(?!\[)", "Callable[..., object]", text).replace(
        "import Callable[..., object]", "import Callable"
    )


_CONTAINER = re.compile(
    r"^class (?P<name>\w+)\(Sequence\[(?P<item>\w+(\[\w+\])?)\](, Generic\[_T\])?\):\n"
    r"(?P<between>(?:(?!^class ).*\n)*?)    def __getitem__\(self, key, /\):\n",
    re.MULTILINE,
)


def _indexed(found: re.Match[str]) -> str:
    """A container's class with what an index and a slice give."""
    head = found.group(0).removesuffix("    def __getitem__(self, key, /):\n")
    sliced = found["name"] + ("[_T]" if found["item"].endswith("[_T]") else "")
    return (
        f"{head}    @overload\n    def __getitem__(self, key: int, /) -> {found['item']}: ...\n"
        f"    @overload\n    def __getitem__(self, key: slice, /) -> {sliced}:\n"
    )
