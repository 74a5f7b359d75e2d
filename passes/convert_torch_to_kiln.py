# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Conversion of the torch dialect to kiln and linalg on builtin tensors, op by op."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.walk import BlockTail
from kiln.errors import InvalidIRError, UnsupportedError
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.dialects.dtypes import DType
    from kiln.passes.torch_to_kiln.context import LoweringContext
    from kiln.passes.torch_to_kiln.function_state import FunctionState

__all__ = ["ConvertTorchToKiln", "Decision"]


@dataclass(frozen=True)
class Decision:
    """Which way one torch op went: ``way`` is ``kiln``, ``torch-mlir`` or ``aten``; ``reason`` why no earlier one."""

    op: str
    location: str
    way: str
    reason: str = ""


@register_pass
@dataclass
class ConvertTorchToKiln(Pass):
    """Convert torch ops to kiln and linalg ops: by Kiln's rules, else torch-mlir's, else a kiln.aten call.

    Ops are converted in order into a new function on builtin tensors; sizes become index symbols. One op that has no
    rule never fails the graph. ``decisions`` tells for every op which way it went and why. Ops without uses vanish,
    except impure ones.

    Before::

        func.func @main(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
          %0 = torch.aten.neg %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
          return %0 : !torch.vtensor<[4,8],f32>
        }

    After::

        #map = affine_map<() -> (4, 8)>
        #map1 = affine_map<(d0, d1) -> (d0, d1)>
        func.func @main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> {
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<4x8xf32>
          %1 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]}
              ins(%arg0 : tensor<4x8xf32>) outs(%0 : tensor<4x8xf32>) {
          ^bb0(%in: f32, %out: f32):
            %2 = arith.negf %in : f32
            linalg.yield %2 : f32
          } -> tensor<4x8xf32>
          return %1 : tensor<4x8xf32>
        }
    """

    name = "convert-torch-to-kiln"
    torch_mlir: bool = True
    """Try torch-mlir's conversion for ops that Kiln has no rule for."""
    aten: tuple[str, ...] = ()
    """Ops that always become ATen calls, by name (``torch.aten.relu``): to bisect a wrong result."""
    positions: bool = True
    """Find where the maxima of pooling windows are in kernels; else with ATen."""

    @property
    def decisions(self) -> list[Decision]:
        """One entry per converted op, in order."""
        return self.__dict__.setdefault("_decisions", [])

    def run(self, module: ir.Module) -> None:
        """Convert every function that holds torch types."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if "!torch." in str(function.attributes["function_type"]):
                self._convert_function(function)

    # -- functions

    def _convert_function(self, old: ir.Operation) -> None:
        from kiln.passes.torch_to_kiln.function_state import FunctionState
        from kiln.passes.torch_to_kiln.liveness import live_ops
        from kiln.passes.torch_to_kiln.symbol_order import reorder_symbols

        names = (
            [ir.StringAttr(name).value for name in old.attributes["kiln.symbols"]]
            if "kiln.symbols" in old.attributes
            else []
        )
        state = FunctionState(names)
        state.finds_positions = self.positions
        old_block = old.regions[0].blocks[0]
        with ir.InsertionPoint(old), old.location:
            new = ir.Operation.create(
                "func.func",
                attributes={name: old.attributes[name] for name in old.attributes}
                | {"function_type": ir.TypeAttr.get(ir.FunctionType.get([], []))},
                regions=1,
            )
        self._convert_arguments(old, old_block, new, state)
        block = new.regions[0].blocks[0]
        terminator: ir.Operation | None = None
        tail = BlockTail(block)
        with ir.InsertionPoint(block):
            for op in live_ops(old_block):
                if op.name == "func.return":
                    terminator = op
                else:
                    self._convert_op(op, state, tail)
            returned = self._return(terminator, state)
        _mark_unsigned(new, "res_attrs", [state.info(value).dtype for value in returned])
        tensors = (None if isinstance(a.type, ir.IndexType) else state.info(a).dtype for a in block.arguments)
        _mark_unsigned(new, "arg_attrs", list(tensors))
        inputs = [argument.type for argument in block.arguments]
        new.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [v.type for v in returned]))
        if state.symbol_names:
            reorder_symbols(new, state)
        old.erase()

    def _convert_arguments(
        self, old: ir.Operation, old_block: ir.Block, new: ir.Operation, state: "FunctionState"
    ) -> None:
        from kiln.passes.torch_to_kiln.function_state import argument_info

        block = ir.Block.create_at_start(new.regions[0], [], [])
        all_attrs = old.attributes["arg_attrs"] if "arg_attrs" in old.attributes else None
        for k, argument in enumerate(old_block.arguments):
            attrs = all_attrs[k] if all_attrs is not None else None
            if type_text(argument.type) == "!torch.int":
                value = block.add_argument(ir.IndexType.get(), argument.location)
                name = attrs["kiln.symbol"].value if attrs is not None and "kiln.symbol" in attrs else f"arg{k}"
                state.sizes[argument] = state.bind(name, value)
                continue
            shape, dtype = argument_info(argument, attrs)
            value = block.add_argument(state.tensor_type(shape, dtype), argument.location)
            state.values[argument] = state.set_info(value, shape, dtype)

    def _return(self, terminator: ir.Operation | None, state: "FunctionState") -> list[ir.Value]:
        if terminator is None:
            raise InvalidIRError("the function has no func.return")
        returned: list[ir.Value] = []
        for k, operand in enumerate(terminator.operands):
            value = state.values.get(operand)
            if value is None:
                raise InvalidIRError(
                    f"result {k} has the type {operand.type}: expected a tensor", str(terminator.location)
                )
            returned.append(value)
        with terminator.location:
            ir.Operation.create("func.return", operands=returned)
        return returned

    # -- ops

    def _convert_op(self, op: ir.Operation, state: "FunctionState", tail: BlockTail) -> None:
        from kiln.passes.torch_to_kiln.context import LoweringContext

        if self._is_lazy(op, state):
            return
        if op.name == "torch.prim.ListUnpack" and op.operands[0] in state.lists:
            self._record(op, state, state.lists[op.operands[0]])
            return
        cx = LoweringContext(op, state)
        with op.location:
            way, reason, results = self._choose(cx, tail)
        self.decisions.append(Decision(cx.name, str(op.location), way, reason))
        self.count(way)
        if reason:
            self.note(op, f"{way}: {reason}")
        if len(op.results) == 1 and type_text(op.results[0].type).startswith("!torch.list"):
            state.lists[op.results[0]] = results
        else:
            self._record(op, state, results)

    @staticmethod
    def _is_lazy(op: ir.Operation, state: "FunctionState") -> bool:
        """Constants, lists and arithmetic on sizes are read where they are used."""
        if op.name.startswith("torch.constant.") or op.name in _LAZY:
            return True
        if "kiln.unbacked" in op.attributes or len(op.results) != 1:
            return False
        kind = type_text(op.results[0].type)
        return kind in ("!torch.float", "!torch.bool", "!torch.number") or (
            kind == "!torch.int" and state.int_expr(op.results[0]) is not None
        )

    def _choose(self, cx: "LoweringContext", tail: BlockTail) -> tuple[str, str, list[ir.Value | None]]:
        """Convert by the first way that works; returns way, why not an earlier one, and a value per result."""
        from kiln.passes.torch_to_kiln.registry import find_rule
        from kiln.passes.torch_to_kiln.torch_values import ELSEWHERE

        if cx.name in self.aten or cx.op.name in self.aten:
            return "aten", "asked for by an option", self._aten(cx, "asked for by an option")
        if not may_rewrite(cx.op, cx.name):
            # Still a module of the next stage, and one that computes what eager does.
            return "aten", "not among the rewrites asked for", self._aten(cx, "not among the rewrites asked for")
        if cx.name.startswith(ELSEWHERE):
            reason = "it reads or makes a tensor on another device"
            return "aten", reason, self._aten(cx, reason)
        rule = find_rule(cx.name)
        if "kiln.unbacked" in cx.op.attributes:
            reason = "its result's size or value is known only at run time"
        elif rule is None:
            reason = "Kiln has no rule for it"
        else:
            mark = tail.mark()
            try:
                made = rule(cx)
                results: list[ir.Value | None] = [made] if isinstance(made, ir.Value) else list(made)
                if "kiln.rounded" in cx.op.attributes:
                    from kiln.passes.torch_to_kiln.rounded import keep_rounding

                    for result in results:
                        keep_rounding(result)
                return "kiln", "", results
            except UnsupportedError as error:
                reason = error.reason
                tail.erase_behind(mark)
        if self.torch_mlir and "kiln.unbacked" not in cx.op.attributes:
            from kiln.passes.torch_to_kiln.torch_mlir_fallback import convert_with_torch_mlir

            mark = tail.mark()
            try:
                return "torch-mlir", reason, list(convert_with_torch_mlir(cx))
            except UnsupportedError as error:
                reason = f"{reason}; torch-mlir: {error.reason}"
                tail.erase_behind(mark)
        return "aten", reason, self._aten(cx, reason)

    @staticmethod
    def _aten(cx: "LoweringContext", reason: str) -> list[ir.Value | None]:
        from kiln.passes.torch_to_kiln.aten_fallback import convert_to_aten

        return list(convert_to_aten(cx, reason))

    @staticmethod
    def _record(op: ir.Operation, state: "FunctionState", results: "list[ir.Value | None]") -> None:
        """Map the op's tensor results to ``results``, checking element types and ranks."""
        if len(results) != len(op.results):
            raise InvalidIRError(f"{op.name}: {len(op.results)} results, converted to {len(results)}", str(op.location))
        for k, (old, new) in enumerate(zip(op.results, results, strict=True)):
            info = state.result_info(op, k)
            if info is None or new is None:
                continue
            expected = state.tensor_type(info.shape, info.dtype)
            found = ir.RankedTensorType(new.type)
            if found.rank != expected.rank or found.element_type != expected.element_type:
                raise InvalidIRError(f"{op.name}: result {k}: expected {expected}, found {found}", str(op.location))
            if new not in state.infos:
                state.set_info(new, info.shape, info.dtype)
            state.values[old] = new


def _mark_unsigned(function: ir.Operation, key: str, dtypes: "list[DType | None]") -> None:
    """Attribute ``kiln.dtype`` of results or arguments that are unsigned integers: builtin tensors keep no sign,
    PyTorch's do.
    """
    if not any(dtype and dtype.kind == "u" for dtype in dtypes):
        return
    given: list[Any] = list(function.attributes[key]) if key in function.attributes else [{}] * len(dtypes)
    marked: list[ir.Attribute] = []
    for attrs, dtype in zip(given, dtypes, strict=True):
        entries = {a.name: a.attr for a in attrs} if isinstance(attrs, ir.DictAttr) else {}
        if dtype and dtype.kind == "u":
            entries["kiln.dtype"] = ir.StringAttr.get(dtype.name)
        marked.append(ir.DictAttr.get(entries))
    function.attributes[key] = ir.ArrayAttr.get(marked)


_LAZY = frozenset(
    {
        "torch.prim.ListConstruct",
        "torch.prim.TupleConstruct",
        "torch.derefine",
        "torch.prim.NumToTensor.Scalar",
        "torch.runtime.assert",
    }
)
