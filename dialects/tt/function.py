# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions, calls and the position of a program in the grid."""

from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.tt import base
from kiln.dialects.tt.base import Family


class FuncOp(base.Operation, name="func", traits=[ir.IsIsolatedFromAboveTrait]):
    """A kernel, or a function that kernels call.  Its body is one block with an argument per input.

    `arg_attrs` may say what is known of an argument: `tt.divisibility = 16 : i32`.  `kiln.*` attributes describe the
    launch (see `lowering/gpu/emit.py`) and are not printed for Triton.

    ```mlir
    "tt.func"() ({
    ^bb0(%x: !tt.ptr<f32>, %n: i32):
      "tt.return"() : () -> ()
    }) {sym_name = "kernel", sym_visibility = "public", function_type = (!tt.ptr<f32>, i32) -> (),
        arg_attrs = [{tt.divisibility = 16 : i32}, {}]} : () -> ()
    ```
    """

    sym_name: ir.StringAttr
    function_type: ir.TypeAttr
    body: ir.Region

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the body's arguments have the function's types, one attribute dictionary each."""
        type_ = self.function_type.value
        blocks = list(self.regions[0].blocks)
        base.require(len(blocks) >= 1, "body", "a block", "none")
        found = [a.type for a in blocks[0].arguments]
        base.require(found == list(type_.inputs), "block arguments", list(type_.inputs), found)
        if "arg_attrs" in self.attributes:
            given = len(list(self.attributes["arg_attrs"]))
            base.require(given == len(found), "attribute arg_attrs", f"{len(found)} entries", given)

    @property
    def block(self) -> ir.Block:
        """The body's entry block."""
        return self.regions[0].blocks[0]


class ReturnOp(Family):
    """The end of a `tt.func`; a kernel returns nothing.

    ```mlir
    "tt.func"() ({
    ^bb0(%x: f32):
      "tt.return"(%x) : (f32) -> ()
    }) {sym_name = "identity", sym_visibility = "private", function_type = (f32) -> f32} : () -> ()
    ```
    """

    NAME = "return"
    TRAITS = (base.Pure, ir.IsTerminatorTrait)

    @staticmethod
    @override
    def check(op: Any) -> None:
        parent = op.operation.parent
        while parent is not None and parent.name != "tt.func":
            parent = parent.parent
        base.require(parent is not None, "parent op", "tt.func", "none")
        assert parent is not None
        results = list(parent.attributes["function_type"].value.results)
        found = [v.type for v in op.operands]
        base.require(found == results, "operands", results, found)


class CallOp(Family):
    """A call of another `tt.func` of the module, by name.

    ```mlir
    "tt.func"() ({
    ^bb0(%x: f32):
      %0 = "tt.call"(%x) {callee = @twice} : (f32) -> f32
      "tt.return"() : () -> ()
    }) {sym_name = "kernel", sym_visibility = "public", function_type = (f32) -> ()} : () -> ()
    ```
    """

    NAME = "call"
    ATTRIBUTES = {"callee": "#builtin.symbol_ref"}
    TRAITS = (base.Effects("Read", "Write"),)


class GetProgramIdOp(base.Operation, name="get_program_id", traits=[base.Pure]):
    """This program's position along one of the grid's three axes.

    ```mlir
    %0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
    ```
    """

    axis: ir.IntegerAttr
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that `axis` is 0, 1 or 2 and the result an i32."""
        base.integer(self, "axis", 0, 3)
        base.element_is("result", self.result, "i32")


class GetNumProgramsOp(base.Operation, name="get_num_programs", traits=[base.Pure]):
    """The grid's size along one of its three axes.

    ```mlir
    %0 = "tt.get_num_programs"() {axis = 1 : i32} : () -> i32
    ```
    """

    axis: ir.IntegerAttr
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that `axis` is 0, 1 or 2 and the result an i32."""
        base.integer(self, "axis", 0, 3)
        base.element_is("result", self.result, "i32")
