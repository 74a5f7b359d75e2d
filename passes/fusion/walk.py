# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The greedy walk: producers join the kernel of their consumers where one kernel can compute both well."""

from torch_mlir import ir

from kiln.passes.fusion.cost import Cost, amount
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.joining import try_to_join
from kiln.passes.fusion.loops import merge_loops, share_loops

__all__ = ["walk"]


def walk(grouping: Grouping) -> None:
    """Visit producers from the last to the first."""
    for op in reversed(grouping.graph.compute):
        _place(grouping, op)


def _place(grouping: Grouping, op: ir.Operation) -> None:
    reads = [r for v in op.results for r in grouping.graph.readers.get(v, [])]
    if not reads:
        return
    in_memory = any(v in grouping.graph.external for v in op.results) or any(r.whole for r in reads)
    consumers = list(dict.fromkeys(grouping.of[r.consumer] for r in reads if not r.whole))
    if not consumers:
        return
    consumers = _joined(grouping, [g for g in consumers if g is not grouping.of[op]], op)
    several = len(consumers) > 1
    position = grouping.graph.position[op]
    choice = grouping.choices.get(position, 0)
    if several or position in grouping.choices:
        grouping.alternatives[position] = len(consumers)
    if choice < 0:
        grouping.decisions.append((op, "a kernel of its own: the search found that to be faster"))
        return
    for group in [*consumers[choice:], *consumers[:choice]]:
        mine = [r for r in reads if not r.whole and grouping.of[r.consumer] is group]
        name, before = group.ops[-1].name, grouping.model.cost(grouping.of[op]) + grouping.model.cost(group)
        reason = try_to_join(grouping, op, group, mine, in_memory or several)
        grouping.decisions.append((op, reason or f"fused into the kernel of {name}: {_saved(grouping, before, group)}"))
        if reason is None:
            break


def _saved(grouping: Grouping, before: Cost, group: Group) -> str:
    """What a merge that made `group` saves and costs."""
    after = grouping.model.cost(group)
    text = f"saves {amount(before.moved - after.moved, 'B')} of traffic"
    again = after.operations - before.operations
    return f"{text}, computes {amount(again, 'op')} again" if again > 0 else text


def _joined(grouping: Grouping, consumers: list[Group], op: ir.Operation) -> list[Group]:
    """The consumers of `op`; those that walk the same loops over it, and don't depend on each other, as one."""
    if not grouping.horizontal or grouping.of[op].named is not None and any(g.reduced is not None for g in consumers):
        return consumers  # a product takes a pointwise consumer into its own loops
    found: list[Group] = []
    for group in consumers:
        for i, other in enumerate(found):
            if _awaits_product(grouping, group, op) or _awaits_product(grouping, other, op):
                continue
            if share_loops(grouping, other, group, list(op.results)) and not grouping.connected(other, group):
                before = grouping.model.cost(other) + grouping.model.cost(group)
                found[i] = merge_loops(grouping, other, group)
                why = f"shares the loops of {other.ops[-1].name}: {_saved(grouping, before, found[i])}"
                grouping.decisions.append((group.ops[-1], why))
                break
        else:
            found.append(group)
    return found


def _awaits_product(grouping: Grouping, group: Group, op: ir.Operation) -> bool:
    """Whether the group could become the epilogue of a product that is still to be placed."""
    return any(product != op and grouping.of[product] is not group for product in grouping.model.tally(group).products)
