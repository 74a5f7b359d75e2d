# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules worth a try for a fusion: around the one that the rules chose."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import AttentionProblem
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.product import as_matmul
from kiln.lowering.cpu.conv.schedule import tile_fits
from kiln.lowering.cpu.conv.tiles_plan import ROWS, is_flat
from kiln.lowering.cpu.matmul.microkernel import round_up
from kiln.lowering.cpu.tile.attention import find_attention
from kiln.lowering.cpu.tile.conv import find_conv
from kiln.lowering.cpu.tile.phases import find_phases
from kiln.lowering.cpu.tile.product import is_frozen, static_size
from kiln.lowering.cpu.tile.rows import ROW_UNIT, find_products
from kiln.lowering.cpu.tune.products import product_schedules
from kiln.lowering.tile.body import FusionBody

__all__ = ["candidates"]

Schedule = dict[str, Any]


def candidates(body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule) -> list[Schedule]:
    """Other valid schedules for a fusion of known sizes, the most promising first.

    Of a fusion of several parts, one part's schedule is another than in `schedule`.
    """
    parts = body.parts()
    if len(parts) > 1:
        own = list(schedule["parts"])
        found = []
        for i, (part, mine) in enumerate(zip(parts, own, strict=True)):
            for other in candidates(part, layouts, mine) if mine else []:
                found.append({"parts": [*own[:i], other, *own[i + 1 :]]})
        return found
    names = {name_of(op) for op in body.operations}
    if "kiln.conv" in names:
        others = _conv(find_conv(body, layouts).problem(static_size), schedule)
    elif "kiln.attention" in names:
        others = _attention(find_attention(body, layouts).problem(static_size), schedule)
    elif "kiln.matmul" in names:
        others = _products(body, layouts, schedule)
    else:
        others = iter(())
    found = []
    for other in others:
        if other != schedule and other not in found:
            found.append(other)
    return found


def _products(body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule) -> Iterator[Schedule]:
    products = find_products(find_phases(body), layouts)
    cpu = isa.target()
    split = schedule.get("split")
    own = schedule["products"] if split else [schedule]
    lists = []
    for product, mine in zip(products, own, strict=True):
        problem = product.problem(static_size)
        rows = problem.m if isinstance(problem.m, int) else 64
        if split == "rows":
            # Blocks of rows: their number is known when the kernel runs.
            rows = schedule["height"]
            problem = replace(problem, m=None)
        lists.append(product_schedules(problem, cpu, mine, rows, is_frozen(body, product)))
    if not split:
        yield from lists[0]
        return
    if split == "rows":
        for height in (schedule["height"] * 2, schedule["height"] // 2):
            yield schedule | {"height": max(ROW_UNIT, min(height // ROW_UNIT * ROW_UNIT, 512))}
    elif "mc" in schedule:
        yield schedule | {"mc": max(ROW_UNIT, schedule["mc"] // 2)}
        yield schedule | {"nc": max(schedule["nr"], schedule["nc"] // 2 // schedule["nr"] * schedule["nr"])}
        yield schedule | {"mc": schedule["mc"] * 2}
    # All products alike: what suits one suits the others, which have its rows and columns.
    for choice in zip(*lists, strict=False):
        changed: Schedule = schedule | {"products": list(choice)}
        if "nr" in schedule:
            unit = max(s["width"] * s.get("nv", 1) for s in choice)
            changed |= {"nr": unit, "nc": round_up(schedule["nc"], unit)}
        yield changed


def _conv(p: ConvProblem, schedule: Schedule) -> Iterator[Schedule]:
    kernel = schedule["kernel"]
    if kernel == "product":
        inner = schedule["product"]
        problem = as_matmul(p)
        rows = problem.m if isinstance(problem.m, int) else 1
        for other in product_schedules(problem, isa.target(), inner, rows, packed=False):
            if other["kernel"] not in (
                "vendor",
                "float_tiles",
            ):  # the library's letters say nothing of a convolution's leading dimensions
                yield {"kernel": "product", "product": other}
    elif kernel in ("direct", "pairs", "column_pairs"):
        wide = isa.target().vector_registers >= 32
        for mr, nv in ((6, 2), (7, 2), (8, 2), (4, 4), (8, 3), (12, 1), (4, 2)) if wide else ((6, 2), (4, 3), (4, 2)):
            if tile_fits(p, mr, nv):
                yield schedule | {"mr": mr, "nv": nv}
        yield schedule | {"tiles": max(1, schedule["tiles"] // 2)}
        yield schedule | {"tiles": schedule["tiles"] * 2}
        yield schedule | {"piece": schedule["piece"] * 2}
    elif kernel == "depthwise":
        for mr in (8, 6, 4, 12):
            yield schedule | {"mr": mr}
        yield schedule | {
            "span": max(schedule["width"], schedule["span"] // 2 // schedule["width"] * schedule["width"])
        }
        yield schedule | {"span": schedule["span"] * 2}
    elif kernel == "tiles":
        if is_flat(p):
            rows = round_up(max(1, schedule["rows"] // 2), ROWS)
            yield schedule | {"rows": rows, "chunk": rows}
        else:
            yield schedule | {"chunk": max(1, schedule["chunk"] // 2)}
        yield schedule | {"units": max(1, schedule["units"] // 2)}
        yield schedule | {"share": "blocks" if schedule["share"] == "units" else "units"}
    elif kernel == "planar":
        for nv in (1, 2, 4):
            yield schedule | {"nv": nv}
        yield schedule | {"span": max(1, schedule["span"] // 2)}
        yield schedule | {"span": schedule["span"] * 2}


def _attention(p: AttentionProblem, schedule: Schedule) -> Iterator[Schedule]:
    width, mr = schedule["width"], schedule["mr"]
    longest = round_up(max(p.keys, 1), width) if isinstance(p.keys, int) else 256
    for keys in (schedule["keys"] * 2, schedule["keys"] // 2):
        if width <= keys <= longest:
            yield schedule | {"keys": round_up(keys, width)}
    for queries in (schedule["queries"] // 2, schedule["queries"] * 2):
        if queries >= mr:
            yield schedule | {"queries": round_up(queries, mr)}
    if schedule.get("tiles"):  # of one size
        return
    if schedule["few"]:
        yield schedule | {"few": False}
        return
    wide = isa.target().vector_registers >= 32
    for tile in ((8, 3), (8, 2), (6, 4)) if wide else ((4, 3), (4, 2)):
        if tile[0] <= min(width, max(p.queries, 1) if isinstance(p.queries, int) else width):
            yield schedule | {"mr": tile[0], "nv": tile[1], "queries": round_up(schedule["queries"], tile[0])}
    if isinstance(p.queries, int) and p.queries <= 8 and p.k_strides[-1] == 1:
        yield schedule | {"few": True}
