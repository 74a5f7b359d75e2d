# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs programs of a kernel in TTGIR: its partitions, shared memory, barriers, asynchronous copies and products.

A product (`ttng.warp_group_dot`) is under way until it is waited for: its result may not be read before, and what it
reads of shared memory must be the same when it starts and when it ends. So must what a copy out of shared memory reads.
"""

import random
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import torch

from kiln.errors import UnsupportedError
from kiln.lowering.ttcpu.ttgir.memory import Barrier, Descriptor, Memory, TtgirError
from kiln.lowering.ttcpu.ttgir.parse import Block, Function, Op, parse_ttgir
from kiln.lowering.ttcpu.ttgir.registers import REGISTER_OPS, block_type, same_bits
from kiln.lowering.ttcpu.ttgir.schedule import Copies, Wait, run_partitions

__all__ = ["run_ttgir"]

Values = dict[str, Any]
Steps = Generator[Wait | None, None, list[Any]]


def run_ttgir(text: str, tensors: Sequence[torch.Tensor], programs: int, seed: int = 0) -> None:
    """Interprets all programs of a grid, one after the other, in an order by the seed.

    Args:
      text: a module in TTGIR, as `kiln.lowering.gpu.ttir.to_ttir` writes it.
      tensors: one per argument, all of which are tensor descriptors: a view with the descriptor's sizes and strides.
      seed: in which order partitions go on and copies arrive, too; see `run_partitions`.

    Raises UnsupportedError, naming op and line, for what is not interpreted; InvalidIRError for text of another form;
    TtgirError for a deadlock, and for what hardware leaves undefined.
    """
    function = parse_ttgir(text)
    order = list(range(programs))
    random.Random(seed).shuffle(order)
    for program in order:
        _Program(function, tensors, program, programs, seed).run()


class _Product:
    """A product under way."""

    def __init__(self, op: Op, operands: Sequence[Any], start: Any) -> None:
        self.op, self.operands, self.start = op, operands, start
        self.before = self._read()
        self.result: torch.Tensor | None = None

    def finish(self) -> None:
        now = self._read()
        if not same_bits(self.before, now):
            names = ", ".join(x.name for x in self.operands if isinstance(x, Memory))
            raise TtgirError(f"line {self.op.line}: {names} changed while a product was reading it")
        product = now[0].float() @ now[1].float()
        self.result = product if self.start is None else product + self.start

    def _read(self) -> list[torch.Tensor]:
        return [x.data.clone() if isinstance(x, Memory) else x for x in self.operands]


class _Part:
    """A partition: products and copies out of shared memory that it has started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.products: list[_Product] = []
        self.stores: list[tuple[Op, Descriptor, list[int], Memory, torch.Tensor]] = []

    def finish_stores(self, pending: int) -> None:
        while len(self.stores) > pending:
            op, descriptor, at, memory, before = self.stores.pop(0)
            if not same_bits([before], [memory.data]):
                raise TtgirError(f"line {op.line}: {memory.name} changed while it was copied out of shared memory")
            descriptor.store(at, memory.data)


class _Program:
    def __init__(
        self, function: Function, tensors: Sequence[torch.Tensor], program: int, programs: int, seed: int
    ) -> None:
        self.function, self.program, self.programs, self.seed = function, program, programs, seed
        self.copies = Copies()
        self.values: Values = {}
        for (name, type_), tensor in zip(function.arguments.items(), tensors, strict=True):
            self.values[name] = Descriptor(name, tensor, block_type(type_)[0])

    def run(self) -> None:
        main = _Part("the kernel")
        for _ in self.block(self.function.body, self.values, main):
            pass

    def block(self, block: Block, values: Values, part: _Part) -> Steps:
        """Runs ops in order; returns what the last one hands on."""
        handed: list[Any] = []
        for op in block.ops:
            if op.name in ("scf.yield", "ttg.warp_yield", "ttg.warp_return", "tt.return"):
                handed = [values[name] for name in op.operands]
            elif op.name == "scf.for":
                yield from self.loop(op, values, part)
            elif op.name == "ttg.warp_specialize":
                self.specialize(op, values)
            elif op.name in REGISTER_OPS:
                operands = [self.number(values, name, op) for name in op.operands]
                values[op.results[0]] = REGISTER_OPS[op.name](op, *operands)
            elif op.name == "ttng.wait_barrier":
                yield from self.wait(op, values)
            elif op.name in _MEMORY_OPS:
                results = _MEMORY_OPS[op.name](self, op, [values[name] for name in op.operands], part)
                values.update(zip(op.results, results, strict=True))
                yield None
            else:
                raise UnsupportedError(op.name, f"line {op.line}", "this op of TTGIR is not interpreted")
        return handed

    def number(self, values: Values, name: str, op: Op) -> Any:
        """A value that is there."""
        value = values[name]
        if isinstance(value, _Product):
            raise TtgirError(f"line {op.line}: {op.name} reads {name}, a product that nothing has waited for")
        return value

    def loop(self, op: Op, values: Values, part: _Part) -> Steps:
        head = re.match(r" (%\w+) = (\S+) to (\S+) step (\S+) iter_args\((.*?)\) -> ", op.text)
        if head is None:
            raise UnsupportedError(op.name, f"line {op.line}", "a loop of another form is not interpreted")
        lower, upper, step = (values[head[i]] for i in (2, 3, 4))
        pairs = re.findall(r"(%\w+) = (%\w+(?:#\d+)?)", head[5])
        carried = [values[given] for _, given in pairs]
        for i in range(lower, upper, step):
            values[head[1]] = i
            values.update(zip((name for name, _ in pairs), carried, strict=True))
            carried = yield from self.block(op.regions[0], values, part)
        values.update(zip(op.results, carried, strict=True))
        return []

    def specialize(self, op: Op, values: Values) -> None:
        given = [values[name] for name in op.operands]
        partitions: dict[str, Any] = {}
        for i, region in enumerate(op.regions):
            name = f"partition {i - 1}" if i else "default"
            own = dict(zip(region.arguments, given, strict=True)) if i else values
            partitions[name] = self.partition(region, own, _Part(name))
        run_partitions(partitions, self.copies, self.seed + self.program if self.seed > 1 else self.seed)

    def partition(self, region: Block, values: Values, part: _Part) -> Generator[Wait | None, None, None]:
        yield from self.block(region, values, part)
        if part.products or part.stores:
            raise TtgirError(f"{part.name} ends with products or copies that nothing has waited for")

    def wait(self, op: Op, values: Values) -> Generator[Wait | None, None, None]:
        barrier, phase, *_ = (values[name] for name in op.operands)
        yield None
        if not barrier.has_ended(phase):
            yield Wait(barrier, phase, op.line)


# -- ops that others can see ------------------------------------------------------------------------------


def _allocate(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    shape, dtype = block_type(op.text)
    name = op.results[0]
    if dtype is torch.int64:
        return [[Barrier(f"{name}[{i}]") for i in range(shape[0])]]
    return [Memory(name, torch.full(shape, torch.nan, dtype=dtype))]


def _index(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    whole, index = operands
    if not isinstance(whole, list):
        return [whole.part(index)]
    whole = cast(list[Any], whole)
    if not 0 <= index < len(whole):
        raise TtgirError(f"line {op.line}: barrier {index} of {len(whole)}")
    return [whole[index]]


def _transpose(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    memory: Memory = operands[0]
    return [Memory(memory.name, memory.data.t(), memory.dirty)]


def _literal(op: Op) -> int:
    """The number between an op's operands."""
    found = re.search(r", (\d+)", op.text)
    assert found is not None
    return int(found[1])


def _start_barrier(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    operands[0].start(_literal(op))
    return []


def _arrive(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    barrier, holds = operands
    if holds:
        barrier.arrive(_literal(op))
    return []


def _expect(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    barrier, holds = operands
    if holds:
        barrier.arrive(1, _literal(op))
    return []


def _copy_in(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    descriptor, *start, memory, barrier, holds = operands
    if not holds:
        return []
    memory.data.fill_(torch.nan)

    def arrive() -> None:
        descriptor.load(start, memory)
        barrier.deliver(memory.bytes)

    p.copies.start(arrive)
    return []


def _copy_out(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    descriptor, *start, memory = operands
    if memory.name in memory.dirty:
        raise TtgirError(f"line {op.line}: no fence between the writes to {memory.name} and the copy of it")
    part.stores.append((op, descriptor, start, memory, memory.data.clone()))
    return []


def _wait_stores(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    part.finish_stores(op.integer("pendings"))
    return []


def _store(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    value, memory = operands
    if isinstance(value, _Product):
        raise TtgirError(f"line {op.line}: stores a product that nothing has waited for")
    memory.data.copy_(value)
    memory.dirty[memory.name] = part.name
    return []


def _fence(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    for value in p.values.values():
        if isinstance(value, Memory):
            for name in [n for n, writer in value.dirty.items() if writer == part.name]:
                del value.dirty[name]
    return []


def _dot(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    lhs, rhs, start, adds = operands
    if isinstance(lhs, _Product) or isinstance(start, _Product):
        raise TtgirError(f"line {op.line}: an operand is a product that nothing has waited for")
    product = _Product(op, [lhs, rhs], start if adds else None)
    part.products.append(product)
    if "isAsync = true" not in op.text:
        _finish_products(part, 0)
        return [product.result]
    return [product]


def _finish_products(part: _Part, pending: int) -> None:
    while len(part.products) > pending:
        part.products.pop(0).finish()


def _wait_products(p: _Program, op: Op, operands: list[Any], part: _Part) -> list[Any]:
    _finish_products(part, op.integer("pendings"))
    results: list[Any] = []
    for value in operands:
        if isinstance(value, _Product) and value.result is None:
            raise TtgirError(f"line {op.line}: hands on a product that is still under way")
        results.append(value.result if isinstance(value, _Product) else value)
    return results


_MEMORY_OPS: dict[str, Callable[[_Program, Op, list[Any], _Part], list[Any]]] = {
    "tt.get_program_id": lambda p, op, operands, part: [p.program],
    "tt.get_num_programs": lambda p, op, operands, part: [p.programs],
    "ttg.local_alloc": _allocate,
    "ttg.local_store": _store,
    "ttg.memdesc_index": _index,
    "ttg.memdesc_trans": _transpose,
    "ttng.init_barrier": _start_barrier,
    "ttng.arrive_barrier": _arrive,
    "ttng.barrier_expect": _expect,
    "ttng.fence_async_shared": _fence,
    "ttng.async_tma_copy_global_to_local": _copy_in,
    "ttng.async_tma_copy_local_to_global": _copy_out,
    "ttng.async_tma_store_wait": _wait_stores,
    "ttng.warp_group_dot": _dot,
    "ttng.warp_group_dot_wait": _wait_products,
}
