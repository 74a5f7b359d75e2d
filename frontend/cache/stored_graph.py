# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A compiled graph as bytes: how to call it, its plan with the machine code, and what its report says."""

import dataclasses
import json
import struct
import zlib
from typing import Any

from kiln.errors import KilnError
from kiln.frontend.calls.boxed_graph import size_text
from kiln.frontend.calls.signature import FoundSymbol, InputSpec, OutputSpec, Signature
from kiln.frontend.report import CompileReport
from kiln.runtime.plan import Plan
from kiln.runtime.records import decode, encode

__all__ = ["StoredGraph"]

_VERSION = 8
_HEADER = struct.Struct("<III")
"""The version, the lengths of the header and of the report."""
_REPORTED = (
    "decisions",
    "kernels",
    "aten_calls",
    "symbols",
    "workspace_bytes",
    "constant_bytes",
    "memory",
    "eager_memory",
    "rewrites",
    "statistics",
    "notes",
    "proved",
)
"""Fields of a report that do not depend on the process."""


@dataclasses.dataclass
class StoredGraph:
    """``report``: the fields of a CompileReport named in ``_REPORTED``."""

    signature: Signature
    plan: Plan
    report: dict[str, Any]

    @classmethod
    def of(cls, signature: Signature, plan: Plan, report: CompileReport) -> "StoredGraph":
        """What there is to store of a compiled graph."""
        return cls(signature, plan, {name: getattr(report, name) for name in _REPORTED})

    def fill(self, report: CompileReport) -> None:
        """Copy what was reported when the graph was compiled."""
        for name, value in self.report.items():
            setattr(report, name, value)

    def to_bytes(self) -> bytes:
        """A JSON header, the report as compressed JSON, then the plan.

        PyTorch keeps these bytes for as long as the process lives (``save_cache_artifacts``), and of an LSTM's 690 KiB
        500 are notes and decisions that repeat each other.
        """
        header = {
            "inputs": [[s.kind, s.name, s.index, s.dim, s.is_lazy] for s in self.signature.inputs],
            "outputs": [_output(s) for s in self.signature.outputs],
            "mutations": self.signature.mutations,
            "shared": self.signature.shared,
            "found": [[s.name, s.input, s.result, s.dim] for s in self.signature.found],
        }
        text = _json(header)
        report = zlib.compress(_json({name: encode(value) for name, value in self.report.items()}), 1)
        return b"".join((_HEADER.pack(_VERSION, len(text), len(report)), text, report, self.plan.to_bytes()))

    @classmethod
    def from_bytes(cls, data: bytes) -> "StoredGraph":
        """Inverse of ``to_bytes``. Raises KilnError for other data."""
        try:
            version, *lengths = _HEADER.unpack_from(data)
            if version != _VERSION:
                raise KilnError(f"stored graph of version {version}, expected {_VERSION}")
            middle = _HEADER.size + lengths[0]
            end = middle + lengths[1]
            header = json.loads(data[_HEADER.size : middle])
            reported = json.loads(zlib.decompress(data[middle:end]))
            signature = Signature(
                [_decoded_input(fields) for fields in header["inputs"]],
                [_decoded_output(fields) for fields in header["outputs"]],
                [(target, result) for target, result in header["mutations"]],
                header["shared"],
                [FoundSymbol(*fields) for fields in header["found"]],
            )
            types = {f.name: f.type for f in dataclasses.fields(CompileReport)}
            report = {name: decode(types[name], reported[name]) for name in _REPORTED}
        except (struct.error, zlib.error, KeyError, TypeError, ValueError) as error:
            raise KilnError(f"broken stored graph: {error}") from error
        return cls(signature, Plan.from_bytes(data[end:]), report)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _decoded_input(fields: list[Any]) -> InputSpec:
    kind, name, index, dim, is_lazy = fields
    return InputSpec(kind, name, index, dim, is_lazy=is_lazy)


def _output(spec: OutputSpec) -> list[Any]:
    """Sizes as Python text, which is what calls use them as."""
    expr = None if spec.expr is None else size_text(spec.expr)
    empty = None if spec.empty_strides is None else [size_text(e) for e in spec.empty_strides]
    return [spec.kind, spec.index, spec.name, spec.value, expr, empty]


def _decoded_output(fields: list[Any]) -> OutputSpec:
    kind, index, name, value, expr, empty = fields
    return OutputSpec(kind, index, name, value, expr, None if empty is None else tuple(empty))
