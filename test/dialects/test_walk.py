# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The end of a block that grows."""

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects import create_context
from kiln.dialects.walk import BlockTail


def test_ops_behind_a_mark_are_taken_back():
    with create_context(tt=False), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            block = func.FuncOp("main", ir.FunctionType.get([], [])).add_entry_block()
        tail = BlockTail(block)

        def append(*numbers: int) -> None:
            with ir.InsertionPoint(block):
                for number in numbers:
                    value = ir.IntegerAttr.get(ir.IndexType.get(), number)
                    ir.Operation.create("arith.constant", results=[ir.IndexType.get()], attributes={"value": value})

        def numbers() -> list[int]:
            return [op.operation.attributes["value"].value for op in block.operations]

        empty = tail.mark()
        append(1, 2)
        tail.erase_behind(empty)
        assert empty is None and numbers() == []
        append(3, 4)
        mark = tail.mark()
        tail.erase_behind(mark)  # nothing is behind it
        append(5, 6)
        assert numbers() == [3, 4, 5, 6]
        tail.erase_behind(mark)
        assert numbers() == [3, 4]
        append(7)
        last = tail.mark()
        assert last is not None and last.attributes["value"].value == 7
