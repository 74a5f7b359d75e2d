# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops whose operands or results are any number of values of any types.

IRDL has one constraint variable per operand *group*, and a variable binds to one type, so a variadic group cannot mix
types (`ConstraintVerifier::verify` in MLIR).  `kiln.fusion` and a few more need just that.  Such an op is therefore
defined once per number of operands and results, on first use and per context (about 0.2 ms each), and the numbers are
a suffix of its registered name: `kiln.fusion` with three operands and one result is `kiln.fusion_3_1`.  In text the
suffix need not be written: `parse` adds it and `to_text` drops it.  In Python, match by class
(`isinstance(op, kiln.FusionOp)`) or compare `kiln.name_of(op)`, never the raw name.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir._mlir_libs import _mlir as _cext
from torch_mlir.dialects import ext, irdl

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import Kiln

FAMILIES: dict[str, type["Family"]] = {}
"""Families by their plain name: "kiln.fusion"."""

_MEMBERS: dict[str, type["Family"]] = {}


class Family(ir.OpView):
    """Base of an op family; a subclass gives its name, attributes (IRDL constraint names), traits and verifier."""

    DIALECT: ClassVar[type[ext.Dialect]] = Kiln
    NAME: ClassVar[str]
    ATTRIBUTES: ClassVar[dict[str, str]] = {}
    TRAITS: ClassVar[Sequence[Any]] = (base.Pure,)
    REGIONS: ClassVar[int] = 0
    OPERATION_NAME: ClassVar[str]
    PLAIN_NAME: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "NAME" in cls.__dict__:
            name = f"{cls.DIALECT.DIALECT_NAMESPACE}.{cls.NAME}"
            cls.OPERATION_NAME = name
            cls.PLAIN_NAME = name
            FAMILIES[cls.PLAIN_NAME] = cls
            for attribute in cls.ATTRIBUTES:
                setattr(cls, attribute, property(lambda op, key=attribute: op.attributes[key]))

    @property
    def inputs(self) -> list[ir.Value]:
        """The operands that are tensors."""
        return [v for v in self.operands if not isinstance(v.type, ir.IndexType)]

    @property
    def symbols(self) -> list[ir.Value]:
        """The trailing index operands."""
        return [v for v in self.operands if isinstance(v.type, ir.IndexType)]

    @staticmethod
    def check(op: Any) -> None:
        """Raise `InvalidOp` for what IRDL cannot check."""

    @classmethod
    def create(
        cls, operands: Sequence[ir.Value], results: Sequence[ir.Type], attributes: Mapping[str, ir.Attribute]
    ) -> Any:
        """Make the op at the current insertion point and location; returns its view."""
        context = ir.Context.current
        assert context is not None, "ops are made in a context"
        name = cls.define(len(operands), len(results), context)
        op = ir.Operation.create(name, operands=operands, results=results, attributes=attributes, regions=cls.REGIONS)
        return op.opview

    @classmethod
    def define(cls, operands: int, results: int, context: ir.Context) -> str:
        """Make the member with these numbers known to `context`; returns its registered name."""
        member = f"{cls.NAME}_{operands}_{results}"
        name = f"{cls.DIALECT.DIALECT_NAMESPACE}.{member}"
        if context.is_registered_operation(name):
            return name
        values = [f"%v{i}" for i in range(operands + results)]
        lines = [f"{v} = irdl.any" for v in values]
        lines += [f'%a{i} = irdl.base "{c}"' for i, c in enumerate(cls.ATTRIBUTES.values())]
        lines.append(f"irdl.operands({', '.join(f'x{i}: {v}' for i, v in enumerate(values[:operands]))})")
        lines.append(f"irdl.results({', '.join(f'y{i}: {v}' for i, v in enumerate(values[operands:]))})")
        if cls.ATTRIBUTES:
            keys = ", ".join(f'"{k}" = %a{i}' for i, k in enumerate(cls.ATTRIBUTES))
            lines.append(f"irdl.attributes {{ {keys} }}")
        lines += [f"%r{i} = irdl.region" for i in range(cls.REGIONS)]
        if cls.REGIONS:
            lines.append(f"irdl.regions({', '.join(f'r{i}: %r{i}' for i in range(cls.REGIONS))})")
        body = "\n".join(lines)
        with context, ir.Location.unknown():
            dialect = cls.DIALECT.DIALECT_NAMESPACE
            definition = ir.Module.parse(f"irdl.dialect @{dialect} {{ irdl.operation @family {{ {body} }} }}")
            # IRDL's verifier, which runs while parsing, rejects names with dots ("reduce.return"); loading does not.
            declared = definition.body.operations[0].operation.regions[0].blocks[0].operations[0]
            declared.attributes["sym_name"] = ir.StringAttr.get(member)
            irdl.load_dialects(definition)
            for trait in cls.TRAITS:
                trait.attach(name)
            view = _member_view(cls, name)
            ir.DynamicOpTrait.attach(name, view)
        return name


def _member_view(family: type[Family], name: str) -> type[Family]:
    """The view class of one member, registered with the bindings once per process."""
    if name not in _MEMBERS:
        verify = checks.verified(lambda op: family.check(op))
        members = {"OPERATION_NAME": name, "verify_invariants": staticmethod(verify)}
        view = type(f"{family.__name__}{name.removeprefix(family.PLAIN_NAME)}", (family,), members)
        _cext.register_operation(family.DIALECT, replace=True)(view)
        _MEMBERS[name] = view
    return _MEMBERS[name]


def name_of(op: Any) -> str:
    """The op's name without a family suffix: "kiln.fusion", "linalg.generic"."""
    name: str = op.operation.name
    found = _PLAIN.get(name)
    return _plain(name) if found is None else found


def _plain(name: str) -> str:
    stem = _SUFFIX.sub("", name) if name.startswith(("kiln.", "tt.")) else name
    if stem != name and stem not in FAMILIES:
        return name  # not kept: the family may be defined later
    _PLAIN[name] = stem
    return stem


_PLAIN: dict[str, str] = {}
"""Names without suffixes, by name."""
_SUFFIX = re.compile(r"_\d+_\d+$")
_RESULTS = r"(?P<results>(?:%[\w$.\-]+(?::\d+)?\s*,\s*)*%[\w$.\-]+(?::\d+)?\s*=\s*)?"


def expand_names(text: str, context: ir.Context) -> str:
    """Give family ops in `text` their registered names, and define these in `context`."""

    def expand(match: re.Match[str]) -> str:
        operands = match["operands"].count("%")
        results = 0
        for result in (match["results"] or "").rstrip("= \n\t").split(","):
            _, _, count = result.partition(":")
            results += int(count) if count.strip() else bool(result.strip())
        name = FAMILIES[match["family"]].define(operands, results, context)
        return f'{match["results"] or ""}"{name}"({match["operands"]})'

    families = "|".join(map(re.escape, FAMILIES))
    pattern = rf'{_RESULTS}"(?P<family>{families})(?:_\d+_\d+)?"\s*\((?P<operands>[^)]*)\)'
    return re.sub(pattern, expand, text)


def parse(text: str, context: ir.Context | None = None) -> ir.Module:
    """Parse a module as `ir.Module.parse` does, with family ops written without suffixes (or with)."""
    context = context or ir.Context.current
    assert context is not None, "modules are parsed in a context"
    return ir.Module.parse(expand_names(text, context), context)


def to_text(op: Any, **flags: Any) -> str:
    """Print an op or module without family suffixes; `flags` as for `Operation.get_asm`."""
    families = "|".join(map(re.escape, FAMILIES))
    return re.sub(rf'"({families})_\d+_\d+"\(', r'"\1"(', op.operation.get_asm(**flags))
