# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Families of ops that choose and place elements: indexing, scatter, sorting, splits, and writes in place."""

import torch

from benchmarks.fuzz.families.sizes import SMALL as SIZES
from benchmarks.fuzz.growing import Grower


def scatter(g: Grower) -> None:
    """Writes at given places."""
    v = g.pick(lambda v: v.rank > 0 and min(v.tensor.shape) > 0 and not v.is_bool)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    n = v.tensor.shape[d]
    kind = g.number(0, 7)
    if kind == 0:
        index = g.input(v.tensor.shape, torch.int64, high=n)
        g.add(f"torch.scatter_add({v.name}, {d}, {index.name}, {v.name})")
    elif kind == 1:
        index = g.input(v.tensor.shape, torch.int64, high=n)
        g.add(f"torch.scatter({v.name}, {d}, {index.name}, 2)", v.exact)
    elif kind == 2:
        index = g.input((n,), torch.int64, high=n)
        g.add(f"torch.index_add({v.name}, {d}, {index.name}, {v.name})")
    elif kind == 3:
        index = g.input((g.one_of(SIZES[:5]),), torch.int64, high=n)
        g.add(f"torch.index_fill({v.name}, {d}, {index.name}, 1)", v.exact)
    elif kind == 4:
        g.add(f"torch.select_scatter({v.name}, {v.name}.select({d}, 0) * 2, {d}, {n - 1})")
    elif kind == 5:
        g.add(f"torch.slice_scatter({v.name}, {v.name}.narrow({d}, 0, {n // 2}) * 2, {d}, {n - n // 2}, {n})")
    elif kind == 6:
        step = g.number(2, 4)
        start = g.number(0, min(n, 2 * step) - 1)
        count = len(range(start, end := g.one_of((n, n, max(start + 1, n - step))), step))
        piece = f"{v.name}.narrow({d}, 0, {count}) * 2"
        g.add(f"torch.slice_scatter({v.name}, {piece}, {d}, {start}, {end}, {step})")
    elif v.rank >= 2:
        other, offset = (d + 1) % v.rank, g.number(-2, 2)
        where = f"{offset}, {d}, {other}"
        g.add(f"torch.diagonal_scatter({v.name}, torch.diagonal({v.name}, {where}) * 2, {where})")


def accumulate(g: Grower) -> None:
    """Sums at given places, more of them than there are places: duplicates, and indices that count from the end."""
    v = g.pick(lambda v: v.rank > 0 and min(v.tensor.shape) > 0 and v.is_float)
    if v is None:
        return
    d, shape = g.number(0, v.rank - 1), v.tensor.shape
    n, count = shape[0], g.one_of((1, 3, 8, 33))
    kind = g.number(0, 3)
    i = g.input((count,), torch.int64, high=2 * n)
    if kind == 0:
        values = g.input(g.one_of(((count, *shape[1:]), (1,))), v.tensor.dtype)
        g.add(f"torch.index_put({v.name}, ({i.name} - {n},), {values.name}, accumulate=True)")
    elif kind == 1 and v.rank >= 2:
        j = g.input((2, count), torch.int64, high=2 * shape[1])
        values = g.input((2, count, *shape[2:]), v.tensor.dtype)
        g.add(f"torch.index_put({v.name}, ({i.name} - {n}, {j.name} - {shape[1]}), {values.name}, accumulate=True)")
    elif kind == 2:
        at = g.input((*shape[:d], count, *shape[d + 1 :]), torch.int64, high=shape[d])
        values = g.input(at.tensor.shape, v.tensor.dtype)
        how = g.one_of(("sum", "mean", "amax", "amin"))
        keep = g.one_of(("True", "False"))
        g.add(f"torch.scatter_reduce({v.name}, {d}, {at.name}, {values.name}, '{how}', include_self={keep})")
    else:
        at = g.input((count,), torch.int64, high=shape[d])
        values = g.input((*shape[:d], count, *shape[d + 1 :]), v.tensor.dtype)
        g.add(f"torch.index_add({v.name}, {d}, {at.name}, {values.name}, alpha=0.5)")


def advanced_index(g: Grower) -> None:
    """Several index tensors, negative indices, a mask as a value."""
    v = g.pick(lambda v: v.rank >= 2 and min(v.tensor.shape) > 0)
    if v is None:
        return
    shape = (g.one_of(SIZES[:4]), g.one_of(SIZES[:4]))
    i = g.input(shape[g.number(0, 1) :], torch.int64, high=v.tensor.shape[0])
    j = g.input(shape, g.one_of((torch.int64, torch.int32)), high=v.tensor.shape[1])
    options = [
        f"{v.name}[{i.name}, {j.name}]",
        f"{v.name}[{i.name} - {v.tensor.shape[0]}, {j.name}]",
        f"{v.name}[:, {j.name}]",
        f"{v.name}[{i.name}, :1]",
        f"torch.take({v.name}, {j.name})",
        f"torch.take_along_dim({v.name}, {v.name}.argsort(dim=-1, stable=True), -1)",
    ]
    if v.rank >= 3:
        k = g.input(shape, torch.int64, high=v.tensor.shape[2])
        options += [f"{v.name}[{i.name}, :, {k.name}]", f"{v.name}[:, {j.name}, {k.name}]"] * 2
    text = g.one_of(options)
    if "argsort" not in text or v.exact:
        g.add(text, v.exact)


def order(g: Grower) -> None:
    """Sorting and what chooses by order."""
    v = g.pick(lambda v: v.rank > 0 and not v.is_bool and v.tensor.numel() > 0)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    n = v.tensor.shape[d]
    options = [
        f"torch.sort({v.name}, {d})[0]",
        f"torch.sort({v.name}, {d}, descending=True)[0]",
        f"torch.topk({v.name}, {max(1, n // 2)}, {d})[0]",
        f"torch.max({v.name}, {d})[0]",
        f"torch.min({v.name}, {d}, keepdim=True)[0]",
        f"torch.cummax({v.name}, {d})[0]",
        f"torch.kthvalue({v.name}, {max(1, n // 2)}, {d})[0]",
        f"torch.median({v.name}, {d})[0]",
    ]
    if v.exact:
        options += [
            f"torch.sort({v.name}, dim={d}, stable=True)[1]",
            f"torch.argsort({v.name}, {d}, stable=True)",
            f"torch.max({v.name}, {d})[1]",
            f"torch.argmin({v.name})",
            f"torch.isnan({v.name})",
            f"({v.name} != 0).sum({d})",
            f"torch.count_nonzero({v.name}, {d})",
            f"torch.searchsorted(torch.sort({v.name}, -1)[0].contiguous(), {v.name}.contiguous())",
        ]
    g.add(g.one_of(options), v.exact)


def scans(g: Grower) -> None:
    """Prefix products and sums of other kinds."""
    v = g.pick(lambda v: v.rank > 0 and not v.is_bool)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    name = g.one_of(("torch.cumprod({}, {})", "torch.logcumsumexp({}, {})", "torch.diff({}, dim={})",
                     "torch.flip(torch.cumsum(torch.flip({0}, [{1}]), {1}), [{1}]) * 0.25"))  # fmt: skip
    if v.is_float:
        g.add(name.format(v.name, d))
    else:
        g.add(f"torch.cumsum({v.name}, {d})", v.exact)


def parts(g: Grower) -> None:
    """One part of several, and parts put together again."""
    v = g.pick(lambda v: v.rank > 0 and min(v.tensor.shape) > 0)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    n = v.tensor.shape[d]
    part = max(1, n // 2)
    options = [
        f"torch.split({v.name}, {part}, {d})[-1]",
        f"torch.chunk({v.name}, 2, {d})[0]",
        f"torch.unbind({v.name}, {d})[{n - 1}]",
        f"torch.cat(torch.split({v.name}, {part}, {d})[::-1], {d})",
        f"torch.stack(torch.unbind({v.name}, {d}), {g.number(0, v.rank - 1)})",
        f"{v.name}.unfold({d}, {part}, 1)",
        f"{v.name}.tile({', '.join(str(g.number(1, 2)) for _ in range(v.rank))})",
        f"torch.triu({v.name}, {g.number(-1, 1)})",
        f"{v.name}.movedim({d}, {g.number(0, v.rank - 1)})",
        f"F.pad({v.name}, ({g.number(-1, 1)}, {g.number(-1, 2)}))",
    ]
    if v.rank in (3, 4) and v.is_float:
        mode = g.one_of(("reflect", "replicate", "circular"))
        options += [f"F.pad({v.name}, {(1, 1) if v.rank == 3 else (1, 0, 1, 1)}, mode='{mode}')"] * 2
    g.add(g.one_of(options), v.exact)


def write_in_place(g: Grower) -> None:
    """A value, a view of one, or an input changes; what shares its memory changes with it."""
    v = g.pick(lambda v: not v.is_bool)
    if v is None:
        return
    other = g.pick(lambda w: w.is_float == v.is_float and not w.is_bool and g.fits(w, v))
    options = ["{0}.zero_()", "{0}.fill_(2)", "{0}.neg_()"]
    if v.is_float:
        options += ["{0}.mul_(0.5)", "{0}.relu_()", "{0}.tanh_()", "{0}.clamp_(-1, 1)", "{0}.sub_(0.25)"]
    if other is not None:
        options += ["{0}.copy_({1})", "{0}.mul_(0.5).add_({1}, alpha=0.5)"] * 2
    if v.rank and v.tensor.shape[0]:
        options += ["{0}[0].fill_(1)", "{0}.select(-1, -1).zero_()", "{0}.narrow(0, 0, 1).mul_(-1)"]
        options += ["{0}.index_fill_(0, torch.tensor([0], device={0}.device), 1)", "{0}.masked_fill_({0} > 0.5, 0.5)"]
    g.add_in_place(g.one_of(options).format(v.name, other.name if other else ""), v)
