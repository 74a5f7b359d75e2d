# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The base class of all passes, and the decorator that registers one.

A pass is one file ``passes/fuse_elementwise.py`` with one class ``FuseElementwise``::

    @register_pass
    @dataclass
    class FuseElementwise(Pass):
        '''Fuse chains of elementwise ops.'''

        name = "fuse-elementwise"
        max_ops: int = 64

        def run(self, module: ir.Module) -> None: ...

Its dataclass fields are its options: ``fuse-elementwise{max-ops=32}`` in a pipeline.
"""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from kiln.notes import Note

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.lowering.tune.store import TunedSchedules

__all__ = ["Compilation", "Note", "Pass", "register_pass", "registered_passes"]


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What passes are made for besides their options. schedules: where those that are tried are kept; None: in this
    process.
    """

    schedules: "TunedSchedules | None" = None


class Pass:
    """A transformation of one module. Subclasses are dataclasses whose fields are options.

    ``run`` gets a module that verifies and leaves one that verifies, inside the module's context and with an
    unknown location current. It raises :class:`kiln.errors.KilnError` to fail. It must be deterministic and keep no
    op handle across an erasure. One instance may run on many modules; what it counts adds up.
    """

    name: ClassVar[str]
    changes_roundings: ClassVar[bool] = False
    """Whether it may leave out or add roundings to 16 bits: those are then not compared (docs/checking.md)."""

    @classmethod
    def made(cls, options: Mapping[str, Any], compilation: Compilation) -> Self:
        """The pass with these options, for a compilation: what a pipeline's text becomes."""
        return cls(**options)

    def run(self, module: "ir.Module") -> None:
        """Rewrite ``module`` in place."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    @property
    def statistics(self) -> Counter[str]:
        """What :meth:`count` collected, in the order of first use."""
        return self.__dict__.setdefault("_statistics", Counter())

    @property
    def notes(self) -> list[Note]:
        """What :meth:`note` collected, oldest first."""
        return self.__dict__.setdefault("_notes", [])

    def count(self, key: str, amount: int = 1) -> None:
        """Add ``amount`` to the statistic ``key`` (usual keys: ``matched``, ``failed``)."""
        self.statistics[key] += amount

    def note(self, op: Any, reason: str) -> None:
        """Record why ``op`` (an op, or its name as a string) was or was not rewritten."""
        if isinstance(op, str):
            self.notes.append(Note(self.name, op, "", reason))
            return
        from kiln.dialects.kiln import name_of

        self.notes.append(Note(self.name, name_of(op), str(op.operation.location), reason))

    def spec(self) -> str:
        """The pass in pipeline text, with the options that differ from their defaults: ``fuse{max-ops=32}``."""
        from kiln.passes.options import format_options

        return self.name + format_options(self)

    def __str__(self) -> str:
        return self.spec()

    @classmethod
    def summary(cls) -> str:
        """The first paragraph of the class docstring on one line."""
        doc = inspect.cleandoc(cls.__doc__ or "")
        return " ".join(doc.split("\n\n", 1)[0].split())


_REGISTRY: dict[str, type[Pass]] = {}

P = TypeVar("P", bound=type[Pass])


def register_pass(cls: P) -> P:
    """Class decorator: make the pass known under ``cls.name``. A class that is no dataclass yet becomes one.

    Raises ``TypeError`` for a class without a name or docstring, ``ValueError`` for a name that another class has.
    """
    if not isinstance(cls, type) or not issubclass(cls, Pass):
        raise TypeError(f"register_pass: {cls!r} is not a subclass of Pass")
    name = cls.__dict__.get("name")
    if not isinstance(name, str) or not name or name != name.lower() or " " in name or "_" in name:
        raise TypeError(f"register_pass: {cls.__name__}.name must be a lower-case dashed string, found {name!r}")
    if not cls.__dict__.get("__doc__"):
        raise TypeError(f"register_pass: {cls.__name__} needs a docstring; its first paragraph is the pass summary")
    if "__dataclass_fields__" not in cls.__dict__:
        cls = dataclasses.dataclass(cls)
    other = _REGISTRY.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(
            f"register_pass: {name!r} is defined by both {other.__module__}.{other.__qualname__} "
            f"and {cls.__module__}.{cls.__qualname__}"
        )
    _REGISTRY[name] = cls
    return cls


def registered_passes() -> dict[str, type[Pass]]:
    """The passes registered so far (see ``kiln.passes.registry`` for those not imported yet)."""
    return dict(_REGISTRY)
