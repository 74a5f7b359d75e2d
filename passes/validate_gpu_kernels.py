# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proofs about emitted GPU kernels, for reading and testing."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import name_of
from kiln.errors import InvalidIRError
from kiln.passes.core import Pass, register_pass

__all__ = ["ValidateGpuKernels"]


@register_pass
@dataclass
class ValidateGpuKernels(Pass):
    """Prove that kernels stay inside their buffers, that different programs write different elements, and that all
    elements of results are written.

    A property that does not hold is an error with a counterexample: the program, the lane and the offset. What is
    neither proved nor refuted is a remark, or an error with `strict`. `kiln.validation` of a kernel counts both. See
    docs/validation.md; kernels need the attributes that `emit-gpu-kernels` gives them.

    Before::

        "tt.func"() ({
        ^bb0(%y: !tt.ptr<i32>):
          %program = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
          %to = "tt.addptr"(%y, %program) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
          "tt.store"(%to, %program) : (!tt.ptr<i32>, i32) -> ()
          "tt.return"() : () -> ()
        }) {function_type = (!tt.ptr<i32>) -> (), kiln.grid = affine_map<() -> (8, 1, 1)>,
            kiln.buffers = [{is_result = true, layout = affine_map<(d0) -> (d0)>, sizes = affine_map<() -> (8)>}],
            sym_name = "programs", sym_visibility = "public"} : () -> ()

    After::

        #map = affine_map<(d0) -> (d0)>
        #map1 = affine_map<() -> (8)>
        #map2 = affine_map<() -> (8, 1, 1)>
        "tt.func"() ({
        ^bb0(%arg0: !tt.ptr<i32>):
          %0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
          %1 = "tt.addptr"(%arg0, %0) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
          "tt.store"(%1, %0) : (!tt.ptr<i32>, i32) -> ()
          "tt.return"() : () -> ()
        }) {function_type = (!tt.ptr<i32>) -> (), kiln.buffers = [{is_result = true, layout = #map, sizes = #map1}],
            kiln.grid = #map2, kiln.validation = {proved = 3 : i64, unknown = 0 : i64}, sym_name = "programs",
            sym_visibility = "public"} : () -> ()
    """

    name = "validate-gpu-kernels"

    strict: bool = False
    """Whether what is neither proved nor refuted is an error."""
    seconds: float = 5.0
    """The time for one kernel, after which what is left of it is unknown."""

    @override
    def run(self, module: ir.Module) -> None:
        from kiln.lowering.gpu.validate.validate import validate_function

        for op in module.body:
            if name_of(op.operation) != "tt.func" or "kiln.buffers" not in op.operation.attributes:
                continue
            kernel = ir.StringAttr(op.operation.attributes["sym_name"]).value
            findings = validate_function(op.operation, self.seconds)
            for finding in findings:
                self.count(finding.status)
                if finding.status == "unknown":
                    self.note(op, str(finding))
            counts = {status: sum(f.status == status for f in findings) for status in ("proved", "unknown")}
            i64 = ir.IntegerType.get_signless(64)
            entries: dict[str, ir.Attribute] = {status: ir.IntegerAttr.get(i64, n) for status, n in counts.items()}
            op.operation.attributes["kiln.validation"] = ir.DictAttr.get(entries)
            wrong = [f for f in findings if f.status == "refuted" or (self.strict and f.status == "unknown")]
            if wrong:
                location = wrong[0].location or op.operation.location
                more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
                raise InvalidIRError(f"kernel @{kernel}: {wrong[0]}{more}", location)
