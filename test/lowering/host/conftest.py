# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel compiler for tests of the planner: scalar loops for fusions of views and one pointwise linalg.generic.

It knows nothing of the real emitter, so that a planner test fails for the planner's faults only. Thread 0 does all.
"""

from typing import Any

import pytest
from torch_mlir import ir
from torch_mlir.dialects import arith, func, memref, scf

from kiln.dialects import affine
from kiln.lowering.host.kernels import kernels_of, outline_kernels
from kiln.lowering.host.plan import build_plan
from kiln.passes import run_pipeline
from kiln.runtime.plan import Plan


@pytest.fixture
def toy_compiler():
    """Plans modules with the kernels of `toy_kernel`."""
    return ToyCompiler()


class ToyCompiler:
    """What stands in for `emit-kernels`; the other steps to a plan are the compiler's."""

    def plan(self, module: ir.Module, **options: Any) -> Plan:
        """The plan of a module with layouts; `options` as for `build_plan`."""
        outline_kernels(module)
        for kernel in kernels_of(module):
            kernel.put_code(toy_kernel(kernel.fusion, kernel.symbol))
        run_pipeline(module, "optimize-loops,expand-vector-math,lower-to-llvm,assemble")
        return build_plan(module, **options)


def toy_kernel(fusion: ir.OpView, name: str) -> ir.Module:
    """The kernel of a fusion as a vector-stage module (see the ABI in lowering/cpu/abi.py)."""
    block = fusion.operation.regions[0].blocks[0]
    tensors = [a for a in block.arguments if not isinstance(a.type, ir.IndexType)]
    symbols = [a for a in block.arguments if isinstance(a.type, ir.IndexType)]
    generic = next(op for op in block if op.operation.name == "linalg.generic")
    layouts = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(fusion.operation.attributes["layouts"])]
    index = ir.IndexType.get()
    with ir.Location.unknown():
        module = ir.Module.create()
        types = [_memref(v.type) for v in [*tensors, *fusion.operation.results]]
        types += [index] * len(symbols) + [_memref(None), index, index]
        with ir.InsertionPoint(module.body):
            kernel = func.FuncOp(name, ir.FunctionType.get(types, []))
        entry = kernel.add_entry_block()
        arguments = list(entry.arguments)
        count = len(tensors) + len(fusion.operation.results)
        values = dict(zip(symbols, arguments[count : count + len(symbols)], strict=True))
        with ir.InsertionPoint(entry):
            emitter = _Loops(fusion, generic, arguments[:count], layouts, list(values.values()), tensors)
            first = arith.cmpi(0, arguments[-2], arith.constant(index, 0))
            branch = scf.IfOp(first)
            with ir.InsertionPoint(branch.then_block):
                emitter.emit(emitter.extents(), [])
                scf.yield_([])
            func.ReturnOp([])
        n = len(symbols)
        kernel.operation.attributes["kiln.work"] = ir.AffineMapAttr.get(
            ir.AffineMap.get(0, n, [ir.AffineExpr.get_constant(1)])
        )
        return module


def _memref(type_: ir.Type | None) -> ir.MemRefType:
    element = ir.IntegerType.get_signless(8) if type_ is None else ir.RankedTensorType(type_).element_type
    return ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)


class _Loops:
    def __init__(self, fusion, generic, buffers, layouts, symbols, tensors):
        self.fusion, self.generic, self.buffers, self.layouts = fusion, generic, buffers, layouts
        self.symbols, self.tensors = symbols, tensors
        self.block_symbols = [a for a in fusion.operation.regions[0].blocks[0].arguments if a not in tensors]

    def local(self, op, attribute):
        """Results of an op's map with its symbols renumbered to the fusion's."""
        map_ = ir.AffineMapAttr(attribute).value
        own = [v for v in op.operands if isinstance(v.type, ir.IndexType)]
        replace = {i: ir.AffineExpr.get_symbol(self.block_symbols.index(v)) for i, v in enumerate(own)}
        return [affine.substitute(e, {}, replace) for e in map_.results]

    def extents(self):
        out = self.generic.operation.operands[len(self.generic.operation.operands) - 1]
        op = out.owner.operation
        return self.local(op, op.attributes["shape"])

    def emit(self, extents, indices):
        if len(indices) < len(extents):
            bound = self.value(extents[len(indices)], [])
            zero, one = arith.constant(ir.IndexType.get(), 0), arith.constant(ir.IndexType.get(), 1)
            loop = scf.ForOp(zero, bound, one)
            with ir.InsertionPoint(loop.body):
                self.emit(extents, [*indices, loop.induction_variable])
                scf.yield_([])
            return
        body = self.generic.operation.regions[0].blocks[0]
        maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(self.generic.operation.attributes["indexing_maps"])]
        known = {}
        inputs = list(self.generic.operation.operands)[:-1]
        for argument, value, map_ in zip(body.arguments, inputs, maps, strict=False):
            known[argument] = self.load(value, list(map_.results), indices)
        for op in body:
            if op.operation.name == "linalg.yield":
                at = self.value(self.layouts[-1].results[0], indices)
                memref.store(known[op.operation.operands[0]], self.buffers[-1], [at])
                return
            copy = op.operation.clone(ir.InsertionPoint.current)
            for i, operand in enumerate(op.operation.operands):
                copy.operands[i] = known[operand]
            known[op.operation.results[0]] = copy.results[0]

    def load(self, value, exprs, indices):
        while value not in self.tensors:
            op = value.owner.operation
            assert op.name == "kiln.view", op.name
            exprs = [affine.substitute(e, exprs, {}) for e in self.local(op, op.attributes["map"])]
            value = op.operands[0]
        k = self.tensors.index(value)
        address = affine.substitute(self.layouts[k].results[0], exprs, {})
        return memref.load(self.buffers[k], [self.value(address, indices)])

    def value(self, expr, dims):
        """An affine expression as index arithmetic."""
        if isinstance(expr, ir.AffineConstantExpr):
            return arith.constant(ir.IndexType.get(), expr.value)
        if isinstance(expr, ir.AffineDimExpr):
            return dims[expr.position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return self.symbols[expr.position]
        binary = {
            ir.AffineAddExpr: arith.addi,
            ir.AffineMulExpr: arith.muli,
            ir.AffineModExpr: arith.remui,
            ir.AffineFloorDivExpr: arith.divui,
        }[type(expr)]
        return binary(self.value(expr.lhs, dims), self.value(expr.rhs, dims))
