# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What moves elements of large tensors: joins, slices, shifts, windows, lookups, scatters, scans, writes in place."""

import torch

from benchmarks.fuzz.growing import Grower, Value


def rows(v: Value) -> bool:
    return v.rank >= 2 and v.tensor.numel() > 0


def move(g: Grower) -> None:
    """Parts of a tensor put together in another way."""
    v = g.pick(rows)
    if v is None:
        return
    n, m = v.shape[-1], v.shape[-2]
    other = g.input((*v.shape[:-1], g.one_of((1, 8, 24, n))), v.dtype)
    below = g.input((*v.shape[:-2], g.one_of((1, 16, m)), n), v.dtype)
    half = max(1, n // 2)
    columns = f"{g.one_of((0, n // 3))}:{g.number(n // 2 + 1, 2 * n)}"
    lines = f"{g.one_of((0, m // 3))}:{g.number(m // 2 + 1, 2 * m)}"
    options = [
        f"torch.cat([{v.name}, {other.name}], -1)",
        f"torch.cat([{below.name}, {v.name}], -2)",
        f"torch.cat([-{v.name}[..., {half}:], {v.name}[..., :{half}]], -1)",
        f"torch.cat([{v.name}, {other.name}, -{v.name}], -1)[..., {columns}]",
        f"torch.cat([{below.name}, -{v.name}, {v.name}], -2)[..., {lines}, :]",
        f"{v.name}[..., {n // 3}:]",
        f"{v.name}[..., ::2]",
        f"{v.name}[..., :{half}]",
        f"{v.name}[..., :{max(1, m // 2)}, :]",
        f"{v.name}[:{g.one_of((1, 2))}]",
        f"{v.name}[..., -1:, :]",
        f"{v.name}[..., {m // 4}:{max(m // 2, m // 4 + 1)}, :]",
        f"torch.roll({v.name}, {g.number(-3, 5)}, -1)",
        f"torch.roll({v.name}, {g.number(1, 5)}, -2)",
        f"F.pad({v.name}, ({g.number(0, 3)}, {g.number(-2, 5)}, {g.number(0, 2)}, 0))",
        f"{v.name}.transpose(-1, -2)",
        f"{v.name}.transpose(-1, -2).contiguous()",
        f"{v.name}.flip(-1)",
        f"torch.stack([{v.name}, torch.relu({v.name})], {g.number(0, v.rank)})",
        f"{v.name}.reshape(-1, {n})",
        f"{v.name}.repeat_interleave(2, -2)",
        f"torch.tril({v.name})",
        f"torch.chunk({v.name}, 2, -1)[0] * torch.sigmoid(torch.chunk({v.name}, 2, -1)[1])",
    ]
    exact = v.exact
    text = g.one_of(options)
    g.add(text, exact and "sigmoid" not in text and not v.is_bool)


def part(g: Grower) -> None:
    """A part of a value joins what is computed from another; the value is needed as a whole, too."""
    v = g.pick(lambda v: rows(v) and v.is_float and 2 * v.tensor.numel() <= g.budget.elements)
    if v is None:
        return
    d, n = (at := g.number(0, v.rank - 1)), v.shape[at]
    more = g.one_of((1, 8, n))
    wide = g.input((*v.shape[:d], n + more, *v.shape[d + 1 :]), v.dtype)
    whole = g.add(g.one_of((f"{wide.name} * 2", f"torch.relu({wide.name})", f"{wide.name}.float().sigmoid()")))
    if whole is not None:
        g.add(f"{v.name} + {whole.name}.narrow({d}, {g.one_of((0, 0, more))}, {n})")
        g.keep(whole)
    if not g.chance(3):
        g.keep(v)


def take_apart(g: Grower) -> None:
    """Rows of a product as several dims: all of them, the first ones, or of what one product is for each of many."""
    v = g.pick(lambda v: v.is_float and v.rank in (2, 3) and v.tensor.numel() > 0)
    if v is None:
        return
    text, (n, terms) = f"{v.name}.mT", v.shape[::-1] if v.rank == 2 else (v.shape[0] * v.shape[1], v.shape[2])
    if v.rank == 3:
        text = f"{v.name}.flatten(0, 1)"
    columns = g.one_of((1, 8, 32))
    if not g.spend(2 * n * terms * columns):
        return
    product = g.add(f"{text} @ {g.weight((terms, columns), v.dtype, terms).name}")
    if product is None:
        return
    many = g.one_of((2, 6, 40))
    if g.chance(2) and many * n * columns <= g.budget.elements:
        whole = g.add(f"{product.name} * {g.input((many, n, columns), v.dtype).name}")
        if whole is not None:
            g.add(f"{whole.name}.unflatten(0, (2, {many // 2})).sum({g.number(1, 2)})")
            g.keep(whole)
    first = g.one_of((n, n // 2, n // 3)) // 2 * 2
    if first:
        g.add(f"torch.relu({product.name}[:{first}].unflatten(0, (2, {first // 2})))")
    g.keep(product)


def rotate(g: Grower) -> None:
    """Rotary positions: of halves, or of neighbours."""
    v = g.pick(lambda v: v.is_float and v.rank >= 2 and v.shape[-1] % 2 == 0 and v.tensor.numel() > 0)
    if v is None:
        return
    half = v.shape[-1] // 2
    if g.chance(2):
        cos, sin = (f"torch.{f}({g.input((v.shape[-2], half), v.dtype).name})" for f in ("cos", "sin"))
        x, y = f"{v.name}[..., ::2]", f"{v.name}[..., 1::2]"
        g.add(f"torch.stack([{x} * {cos} - {y} * {sin}, {x} * {sin} + {y} * {cos}], -1).flatten(-2)")
        return
    cos, sin = (g.input(v.shape[-2:], torch.float32).name for _ in range(2))
    turned = f"torch.cat([-{v.name}[..., {half}:], {v.name}[..., :{half}]], -1)"
    g.add(f"({v.name} * torch.cos({cos}) + {turned} * torch.sin({sin})).to({v.name}.dtype)")


def look_up(g: Grower) -> None:
    """Rows of a table by indices; elements by indices along a dim."""
    dtype = g.one_of((torch.float32, torch.bfloat16, torch.float16))
    count, width, length = (
        g.one_of((2, 77, 1000, 30522)),
        g.one_of((1, 8, 64, 96, 200, 768)),
        g.one_of((1, 7, 128, 1024)),
    )
    if max(count, length) * width > g.budget.elements:
        return
    index = g.input((g.one_of((1, 2, 4)), length), g.one_of((torch.int64, torch.int32)), high=count)
    table = g.input((count, width), dtype)
    found = g.add(f"F.embedding({index.name}, {table.name})", True)
    v = g.pick(lambda v: rows(v) and not v.is_bool)
    if found is None or v is None or g.chance(2):
        return
    d = g.one_of((0, v.rank - 1, v.rank - 2))
    at = g.input((g.one_of((1, 5, 64, 300)),), torch.int64, high=v.shape[d])
    g.add(f"torch.index_select({v.name}, {d}, {at.name})", v.exact)


def scatter(g: Grower) -> None:
    """Writes at given places, with duplicates where they are combined."""
    v = g.pick(lambda v: rows(v) and not v.is_bool)
    if v is None:
        return
    d = g.one_of((0, v.rank - 1))
    n = v.shape[d]
    kind = g.number(0, 6)
    if kind == 0:
        at = g.input(v.shape, torch.int64, high=n)
        g.add(f"torch.scatter_add({v.name}, {d}, {at.name}, {v.name})")
    elif kind == 1:
        at = g.input((2 * n + 1,), torch.int64, high=n)
        source = g.input((*v.shape[:d], 2 * n + 1, *v.shape[d + 1 :]), v.dtype)
        g.add(f"torch.index_add({v.name}, {d}, {at.name}, {source.name})")
    elif kind == 2:
        at, source = g.input(v.shape, torch.int64, high=n), g.input(v.shape, v.dtype)
        how = g.one_of(("sum", "mean", "amax", "amin", "prod"))
        g.add(f"torch.scatter_reduce({v.name}, {d}, {at.name}, {source.name}, {how!r}, include_self={g.chance(2)})")
    elif kind == 3:
        at, source = g.input((33,), torch.int64, high=v.shape[0]), g.input((33, *v.shape[1:]), v.dtype)
        g.add(f"torch.index_put({v.name}, ({at.name},), {source.name}, accumulate=True)")
    elif kind == 4:
        at = g.input((g.one_of((1, 4)),), torch.int64, high=n)
        g.add(f"torch.index_fill({v.name}, {d}, {at.name}, 1)", v.exact)
    elif kind == 5 and not v.is_float:
        at = g.input(v.shape, torch.int64, high=n)
        g.add(f"torch.scatter_reduce({v.name}, {d}, {at.name}, {v.name}, 'amax')", v.exact)
    else:
        g.add(f"torch.scatter({v.name}, {d}, {g.input(v.shape, torch.int64, high=n).name}, 2)", v.exact)


def scan(g: Grower) -> None:
    """Running sums and products along any dim, of long rows too."""
    v = g.pick(lambda v: rows(v) and not v.is_bool)
    if v is None:
        return
    d = g.one_of((v.rank - 1, v.rank - 1, 0, v.rank - 2))
    if not v.is_float:
        g.add(f"torch.cumsum({v.name}, {d})", v.exact)
        return
    g.add(g.one_of((f"torch.cumsum({v.name} * 0.1, {d})", f"torch.cumsum(torch.softmax({v.name}, {d}), {d})",
                    f"torch.cumprod(torch.sigmoid({v.name}), {d})")))  # fmt: skip


_COMBINE = {
    "decay": "lambda a, b, c, d: (a * c, c * b + d)",
    "peak": "lambda a, b, c, d: (torch.maximum(a, c), torch.where(c >= a, d, b))",
    "sum": "lambda a, b, c, d: (a + c, torch.minimum(b, d))",
}


def recur(g: Grower) -> None:
    """Running results of two tensors, combined by a function: linear recurrences, maxima with what stands there."""
    v = g.pick(lambda v: rows(v) and v.is_float and 0 not in v.shape)
    if v is None:
        return
    d, flip = g.number(0, v.rank - 1), ""
    if g.chance(3):
        flip = f".flip({d})"
    # Which of two is larger is a matter of their roundings where they are computed.
    combine = g.one_of(tuple(name for name in _COMBINE if name != "peak" or v.exact))
    other = g.input(v.shape, v.dtype)
    first = f"torch.sigmoid({v.name})" if combine == "decay" else v.name
    # `torch.associative_scan` without its `vmap`, through which eager's steps cannot be watched.
    scan = f"generic_associative_scan({_COMBINE[combine]}, [{first}{flip}, {other.name}{flip}], {d})"
    which = g.one_of(("[1]", "[1]", "[0]", ""))
    g.add(f"{scan}{which}{flip}" if which else f"torch.stack({scan}).sum(0)")


def mutate(g: Grower) -> None:
    """An input, a value or a part of one is written in place (a cache of keys, running statistics)."""
    v = g.pick(lambda v: rows(v) and v.is_float)
    if v is None:
        return
    other = g.input(v.shape, v.dtype)
    row = g.input((*v.shape[:-2], 1, v.shape[-1]), v.dtype)
    at = g.number(0, v.shape[-2] - 1)
    g.add_in_place(
        g.one_of((
            f"{v.name}.mul_(0.9).add_({other.name}, alpha=0.1)",
            f"{v.name}.copy_({other.name})",
            f"{v.name}.narrow(-2, {at}, 1).copy_({row.name})",
            f"{v.name}[..., ::2].relu_()",
            f"{v.name}.masked_fill_({v.name} > 0.5, 0.5)",
            f"{v.name}.transpose(-1, -2).mul_(2)",
            f"{v.name}.clamp_(-1, 1)",
        )),
        v,
    )  # fmt: skip


def mix(g: Grower) -> None:
    """Other dtypes: casts there and back, integers and booleans beside floats."""
    v = g.pick(rows)
    if v is None:
        return
    if v.is_float:
        to = g.one_of(("float32", "bfloat16", "float16", "float64"))
        count = g.input(v.shape[-1:], g.one_of((torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool)))
        g.add(g.one_of((f"{v.name}.to(torch.{to})", f"{v.name} * {count.name}", f"{v.name}.to(torch.{to}) + {v.name}",
                        f"torch.where({count.name} > 2, {v.name}, 0)")))  # fmt: skip
        return
    options = ("{}.to(torch.float32)", "{}.to(torch.bfloat16) * 0.5", "{} + 1", "{} * 3 % 7", "{}.sum(-1)",
               "({} > 2).to(torch.int32)", "{}.float().mean(-1)")  # fmt: skip
    g.add(g.one_of(options).format(v.name))
