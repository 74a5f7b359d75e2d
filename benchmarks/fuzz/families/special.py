# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs for rules that other families meet seldom: sizes for which kernels and libraries were measured."""

from math import prod

import torch

from benchmarks.fuzz.families import attention, rows
from benchmarks.fuzz.growing import Grower

_NARROW = (torch.bfloat16, torch.bfloat16, torch.float16)
_PADDED = 540_000_000
"""Multiplications from which `pad-products` finds that zeros at the ends of rows pay."""
_LARGE = 1 << 31
"""Multiplications from which a library's product with a kernel behind it may be faster than one kernel."""


def _product(g: Grower, count: int, terms: int, columns: int) -> None:
    """A product of 16-bit floats with or without something behind it."""
    if not g.spend(count * terms * columns):
        return
    dtype = g.one_of(_NARROW)
    x = g.input((count, terms), dtype)
    w = g.weight((columns, terms), dtype, terms)
    text = f"F.linear({x.name}, {w.name})" if g.number(0, 3) else f"({x.name} @ {w.name}.t().contiguous())"
    if g.chance(4):
        g.add(text)
    elif g.chance(3):
        bias = g.input((columns,), dtype)
        g.add(f"F.gelu(F.linear({x.name}, {w.name}, {bias.name}), approximate='tanh')")
    else:
        rows.behind(g, text, [count, columns], dtype)
    if g.chance(4):
        rows.softmax(g)


def long_sums(g: Grower) -> None:
    """Few results of many terms."""
    _product(g, g.one_of((2, 32, 64, 100, 128, 256)), g.one_of((2048, 4096, 8192, 16384)), g.one_of((32, 64, 136, 256)))


def large_weights(g: Grower) -> None:
    """Few rows of large matrices, and many of long ones."""
    count, terms, columns = g.one_of(((17, 4096, 4096), (64, 4096, 4160), (128, 4096, 8192), (512, 8192, 1024),
                                      (1000, 8192, 384), (1024, 1024, 4096), (4096, 768, 1000)))  # fmt: skip
    _product(g, count, terms, columns)


def ragged_rows(g: Grower) -> None:
    """Rows that do not start at multiples of 16 bytes, as many as copies with padding pay for, or more."""
    terms, columns = g.one_of((513, 1001, 1024)), g.one_of((511, 1000, 1001, 1023))
    _product(g, g.one_of((-(-_PADDED // (terms * columns)), 1000, 2048)), terms, columns)


def many_tiles(g: Grower) -> None:
    """More tiles than a GPU has multiprocessors, of every width."""
    columns = g.one_of((96, 160, 192, 200, 224, 256, 320, 384, 576, 672, 1000, 1152, 3072, 16000))
    most = min(g.budget.elements, g.budget.work / 64) / columns
    fitting = [n for n in (512, 1000, 2048, 4000, 8192, 12544, 16384, 20000, 32768) if n <= most]
    count = g.one_of(fitting[-3:] or [128])
    _product(g, count, g.at_most((32, 40, 64, 96, 128, 256), g.budget.work / count / columns), columns)


def large_heads(g: Grower) -> None:
    """Attention with heads of more than 64 elements, enough of them for all multiprocessors."""
    dtype, depth = g.one_of(_NARROW), g.one_of((72, 80, 96, 112, 120, 128))
    batch, heads = g.one_of(((6, 12), (9, 8), (17, 4), (4, 32)))
    queries, keys = g.one_of((128, 129, 192)), g.one_of((64, 100, 128, 200))
    is_long = g.for_gpu and g.chance(3)  # enough for two kernels, attention's and one for what is behind
    if is_long:
        queries, keys = g.one_of((128, 192)), g.one_of((512, 1024))
    if not g.spend(2 * batch * heads * depth * queries * keys):
        return
    causal = g.chance(3) and not is_long
    shared = g.one_of((heads, heads, heads // 4))
    q = g.input((batch, heads, queries, depth), dtype)
    k, v = (g.input((batch, shared, queries if causal else keys, depth), dtype) for _ in range(2))
    extra = f"{', is_causal=True' if causal else ''}{', enable_gqa=True' if shared != heads else ''}"
    made = g.add(f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name}{extra})")
    if made is not None and is_long:
        g.add(f"{made.name} * torch.sigmoid({g.input(made.shape, dtype).name})" if g.chance(2) else f"-{made.name}")
    elif made is not None and g.chance(2):
        attention.behind(g, made)


def large_products(g: Grower) -> None:
    """So many multiplications that a GPU's library may be worth a pass over what it returns: a reduction or a gate
    behind, rows that are no whole lines. As many rows as that takes, or as there is work for. Half as many of products
    that stand side by side (queries, keys, values): one launch beside several calls."""
    kind = g.one_of(("reduction", "gate", "pointwise", "pointwise", "side by side"))
    terms = g.one_of((512, 776, 1000, 1024, 4096) if kind == "pointwise" else (512, 768, 1024))
    columns, products = g.one_of((512, 768, 1024, 1536)), {"gate": 2, "side by side": 3}.get(kind, 1)
    most = min(g.budget.work / products / terms, g.budget.elements) / columns
    wanted = _LARGE // 2 if kind == "side by side" else _LARGE
    count = min(-(-wanted // (terms * columns)), int(most))
    if count <= 16 or not g.spend(products * count * terms * columns):
        return
    dtype = g.one_of(_NARROW)
    x = g.input((count, terms), dtype)
    first, *others = (f"F.linear({x.name}, {g.weight((columns, terms), dtype, terms).name})" for _ in range(products))
    if kind == "side by side":
        for made in [g.add(text) for text in (first, *others)]:
            if made is not None:
                g.keep(made)
    elif kind == "gate":
        g.add(f"{g.one_of(('F.silu', 'F.gelu', 'torch.sigmoid'))}({first}) * {others[0]}")
    elif kind == "pointwise":
        g.add(f"F.silu({first}) * 0.5")
    else:
        text = f"torch.relu({first})"
        g.add(g.one_of((f"torch.softmax({text}, -1)", f"F.layer_norm({text}, ({columns},))", f"{text}.amax(-1)")))


def rows_anywhere(g: Grower) -> None:
    """Products of few rows, of an odd number of elements, with so many weights that a copy of them does not pay."""
    count, columns, terms = g.one_of(((64, 4096, 1023), (64, 8192, 1001), (128, 4096, 1001), (256, 1024, 1001)))
    if not g.spend(count * columns * terms):
        return
    dtype = g.one_of(_NARROW)
    x, w = g.input((count, terms), dtype), g.weight((columns, terms), dtype, terms)
    g.add(g.one_of(("{}", "torch.relu({})", "{} * 0.5")).format(f"F.linear({x.name}, {w.name})"))


def large_batches(g: Grower) -> None:
    """Products of pairs of matrices, as many as a GPU's library is asked for, of rows that start anywhere as well."""
    batch, rows_, terms, columns = g.one_of(((8, 1024, 33, 1024), (64, 256, 255, 256), (8, 1024, 64, 1024),
                                             (16, 512, 64, 1024), (8, 1024, 256, 1024)))  # fmt: skip
    most = min(g.budget.work / terms, g.budget.elements) / rows_ / columns
    batch = min(batch, int(most))
    if not batch or not g.spend(batch * rows_ * terms * columns):
        return
    dtype = g.one_of(_NARROW)
    x = g.input((batch, rows_, terms), dtype, scale=terms**-0.25)
    other = f"{x.name}.transpose(-1, -2)" if g.chance(3) else g.input((batch, terms, columns), dtype).name
    g.add(g.one_of(("{}", "{}", "torch.softmax({}, -1)", "torch.relu({})")).format(f"({x.name} @ {other})"))


def written_attention(g: Grower) -> None:
    """Attention written out, with scores that are replaced; in float32 of 16-bit operands; masks made of booleans."""
    dtype, heads, depth = g.one_of(_NARROW), g.one_of((1, 4, 12)), g.one_of((32, 64, 80))
    tokens = g.one_of((16, 100, 128, 197, 300))
    if not g.spend(2 * heads * depth * tokens * tokens):
        return
    q, k, v = (g.input((2, heads, tokens, depth), dtype) for _ in range(3))
    mask = g.input((2, 1, 1, tokens) if g.chance(2) else (tokens, tokens), torch.bool)
    kind = g.number(0, 3)
    if kind <= 1:
        fill = g.one_of(("-1e4", f"torch.finfo({q.name}.dtype).min", "-inf"))
        scores = f"({q.name} @ {k.name}.transpose(-1, -2)) * {depth**-0.5!r}"
        g.add(f"torch.softmax(({scores}).masked_fill({mask.name}, {fill}), -1) @ {v.name}")
        return
    wide = ", ".join(f"{x.name}.float()" for x in (q, k, v))
    number = f"torch.zeros_like({mask.name}, dtype=torch.float32).masked_fill({mask.name}, -inf)"
    extra = g.one_of(("", f", attn_mask={number}", f", attn_mask={mask.name}"))
    g.add(f"F.scaled_dot_product_attention({wide}{extra}).to({q.name}.dtype)")


def stem(g: Grower) -> None:
    """The first convolution of a network: three channels, windows that overlap, or patches."""
    dtype, channels = g.one_of((*_NARROW, torch.float32)), g.one_of((3, 3, 4))
    side, stride = g.one_of(((7, 2), (3, 2), (6, 2), (4, 4), (16, 16), (8, 8), (11, 4)))
    size, out = g.one_of((224, 112, 113, 64)), g.one_of((24, 32, 64, 96))
    images = g.one_of((1, 2, 8))
    if not g.spend(images * size * size * channels * out * side * side / stride / stride):
        return
    layout = g.one_of(("channels_last", "channels_last", "plain"))
    x = g.input((images, channels, size, size), dtype, layout=layout)
    w = g.weight((out, channels, side, side), dtype, channels * side * side, layout=layout)
    padding = side // 2 if side != stride and g.number(0, 2) else 0
    g.add(f"torch.relu(F.conv2d({x.name}, {w.name}, None, {stride}, {padding}) * 0.5 + 1)")


def three_dims(g: Grower) -> None:
    """Convolutions over time or volumes, and over one dim."""
    dtype = g.one_of((torch.float32, torch.bfloat16))
    channels, out = g.one_of((1, 3, 16)), g.one_of((4, 16, 32))
    if g.chance(2):
        x, w = (
            g.input((2, channels, g.one_of((50, 257, 1000))), dtype),
            g.weight((out, channels, 5), dtype, channels * 5),
        )
        g.add(f"F.gelu(F.conv1d({x.name}, {w.name}, None, {g.number(1, 2)}, {g.number(0, 4)}, {g.number(1, 2)}))")
        return
    size = g.one_of(((4, 14, 14), (8, 7, 9), (1, 16, 16)))
    x = g.input((2, channels, *size), dtype)
    w = g.weight((out, channels, *g.one_of(((3, 3, 3), (1, 3, 3), (3, 1, 1)))), dtype, channels * 9)
    if g.spend(2 * channels * out * prod(size) * 27):
        g.add(f"torch.relu(F.conv3d({x.name}, {w.name}, None, 1, {g.number(0, 1)}))")


def integers(g: Grower) -> None:
    """Products of 8-bit integers, with what dequantises them."""
    count = g.one_of((17, 32, 100, 256) if g.for_gpu else (1, 4, 8, 17, 32, 100, 256))  # eager's on a GPU: above 16
    terms, columns = g.one_of((32, 64, 200, 768)), g.one_of((8, 64, 136, 384))
    x, w = g.input((count, terms), torch.int8), g.input((columns, terms), torch.int8)
    scale = g.input((columns,), torch.float32)
    text = f"torch._int_mm({x.name}, {w.name}.t())"
    if g.chance(3):
        g.add(text, True)
    else:
        g.add(f"{text}.float() * {scale.name} * 0.01")


def onto_zeros(g: Grower) -> None:
    """Sums at given places that begin with zeros; extremes of integers."""
    count, width = g.one_of((7, 100, 1000)), g.one_of((1, 8, 65, 256))
    at = g.input((4 * count,), torch.int64, high=count)
    if g.chance(3):
        x, base = g.input((4 * count,), torch.int64, high=99), g.input((count,), torch.int64, high=50)
        how = g.one_of(("amax", "amin", "sum"))
        g.add(f"torch.scatter_reduce({base.name}, 0, {at.name}, {x.name}, {how!r})", True)
        return
    dtype = g.one_of((torch.float32, *_NARROW))
    x = g.input((4 * count, width), dtype)
    zeros = f"torch.zeros(({count}, {width}), dtype={x.name}.dtype, device={x.name}.device)"
    kind = g.number(0, 3)
    if kind == 0:  # elements, of values that take long to compute
        g.add(f"{zeros}.select(1, 0).index_add(0, {at.name}, torch.sin({x.name}).select(1, 0))")
    elif kind == 1:  # of several to one place, all with one value
        g.add(f"{zeros}.select(1, 0).index_put(({at.name},), ({at.name} * 0.25).to({x.name}.dtype))")
    else:
        g.add(f"{zeros}.index_add(0, {at.name}, {x.name})")


def masked_writes(g: Grower) -> None:
    """One value, or one row, where a mask is true."""
    dtype = g.one_of((torch.float32, torch.int64, *_NARROW))
    shape = (g.one_of((1, 3, 40)), g.one_of((1, 17)), g.one_of((1, 8, 33)))
    more = {"high": 9} if dtype == torch.int64 else {}
    x, row, mask = g.input(shape, dtype, **more), g.input(shape[2:], dtype, **more), g.input(shape, torch.bool)
    options = (
        (f"({mask.name},)", f"{row.name}[0]"),
        (f"({mask.name}[:, :, 0],)", f"{row.name}"),
        (f"({mask.name}[:, 0, 0],)", f"{x.name}[:1]"),
    )
    at, value = g.one_of(options)
    g.add(f"torch.index_put({x.name}, {at}, {value}, accumulate={g.chance(2)})", dtype == torch.int64)


def short_sums(g: Grower) -> None:
    """Two products with GELU between them, whose gradient is behind a product of many short sums."""
    dtype = g.one_of(_NARROW)
    count, hidden, terms = g.one_of((2048, 4096)), g.one_of((512, 768)), g.one_of((32, 96, 192))
    if g.spend(count * hidden * (terms + 32)):
        x, up, down = (
            g.input((count, 32), dtype),
            g.weight((hidden, 32), dtype, 32),
            g.weight((terms, hidden), dtype, hidden),
        )
        g.add(f"F.linear(F.gelu(F.linear({x.name}, {up.name})), {down.name})")


def long_reductions(g: Grower) -> None:
    """Few results of many elements: of a few rows, of few columns, of the channels of images in either layout; and
    positions of extrema, also among equal elements."""
    dtype = g.one_of((torch.float32, torch.float32, torch.bfloat16))
    kind = g.number(0, 3)
    if kind == 0:
        shape, dims = g.one_of(((1, 100_003), (3, 65536), (7, 40000))), "-1"
    elif kind == 1:
        shape, dims = (g.one_of((16384, 20000, 49999)), g.one_of((1, 3, 5, 8, 16, 24, 65))), "0"
    elif kind == 2:
        shape, dims = g.one_of(((8, 2048, 3), (3, 4099, 20), (16, 1536, 40))), g.one_of(("1", "(0, 1)"))
    else:
        shape, dims = g.one_of(((6, 64, 28, 28), (9, 16, 56, 56), (3, 48, 35, 35))), "(0, 2, 3)"
    layout = g.one_of(("channels_last", "plain")) if kind == 3 else "plain"
    x = g.input(shape, dtype, layout=layout)
    text = f"torch.relu({x.name}).float()" if g.chance(2) else f"{x.name}.float()"
    if "(" not in dims and g.chance(3):
        end = g.one_of((".argmax({})", ".argmin({})", ".max({})[1]"))
        g.add(f"{g.one_of((text, x.name))}{end.format(dims)}", True)
        return
    if g.chance(3):
        g.add(f"torch.var({text}, {dims})")
        return
    g.add(f"{text}.{g.one_of(('sum', 'mean', 'amax'))}({dims})")
    if g.chance(2):
        y = g.input(shape, dtype, layout=layout)
        g.add(f"({text} * {y.name}).sum({dims})")


def beside_products(g: Grower) -> None:
    """A value for each element of a product's result, read behind the product and a result itself: of a single column,
    with rows that are split or dims of size 1."""
    dtype = g.one_of((torch.float32, *_NARROW))
    count, columns, terms = g.one_of((1, 8, 48, 240)), g.one_of((1, 1, 1, 17, 64)), g.one_of((8, 33, 64, 576))
    x, w = g.input((count, terms), dtype), g.weight((columns, terms), dtype, terms)
    shape = g.one_of(((count, columns), (1, count, columns, 1), (count, 1, columns), (1, count, 1, columns)))
    beside = g.input((count,) if columns == 1 else g.one_of(((count, columns), (count, columns, 1))), dtype)
    value = g.add(g.one_of(("torch.sigmoid({})", "torch.rsqrt({}.abs() + 0.5)", "{} * 0.5")).format(beside.name))
    if value is None or not g.spend(count * columns * terms):
        return
    g.keep(value)
    product = f"F.linear({x.name}, {w.name}).reshape({shape})"
    g.add(f"{product if g.chance(2) else f'torch.relu({product})'} * {value.name}.reshape({shape})")


def powers_less_one(g: Grower) -> None:
    """What optimizers divide averages by, of steps and of numbers of any size."""
    x = g.input(g.one_of(((), (5,), (33, 65))), g.one_of((torch.float32, torch.float64, torch.bfloat16)))
    steps = g.one_of((f"{x.name}", f"({x.name} * 100)", f"{x.name}.abs().ceil()"))
    base = g.one_of((0.5, 0.75, 0.9375, 0.999, 0.9))
    g.add(g.one_of((f"1 - {base} ** {steps}", f"{base} ** {steps} - 1", f"{x.name} / (1.0078125 - {base} ** {steps})")))


def reordered_rows(g: Grower) -> None:
    """Products of rows in another order than memory's, as batch-first attention has them."""
    dtype = g.one_of((torch.float32, *_NARROW))
    sizes = tuple(g.one_of((1, 3, 8, 40)) for _ in range(g.one_of((2, 2, 3))))
    columns, terms = g.one_of((1, 17, 64, 192)), g.one_of((8, 33, 128))
    x, w = g.input((*sizes, terms), dtype), g.weight((columns, terms), dtype, terms)
    if not g.spend(prod(sizes) * columns * terms):
        return
    order = g.one_of(((1, 0), (1, 0)) if len(sizes) == 2 else ((1, 0, 2), (2, 0, 1), (2, 1, 0), (0, 2, 1)))
    bias = g.input((columns,), dtype).name if g.chance(2) else None
    text = f"F.linear({x.name}.permute({(*order, len(sizes))}), {w.name}, {bias})"
    g.add(g.one_of(("{}", "torch.relu({})", "{}.transpose(0, 1)", "F.gelu({}).flatten(0, 1)")).format(text))


def padded_to_multiples(g: Grower) -> None:
    """Rows, or pixels, up to a multiple of a window or block, as many as are missing at run time: `(-n) mod k`."""
    g.is_dynamic, g.is_for_training = True, g.chance(2)
    dtype, unit, width = g.one_of((torch.float32, *_NARROW)), g.one_of((2, 3, 4, 7, 8, 16)), g.one_of((5, 16, 33))
    count = g.one_of((3, 7, 17, 33, 65, 100))
    if g.chance(3):
        x = g.input((g.one_of((1, 2)), 3, count, g.one_of((7, 17, 30))), dtype)
        pads = f"(0, -{x.name}.shape[3] % {unit}, 0, -{x.name}.shape[2] % {unit})"
        behind = ("F.avg_pool2d({}, {unit})", "F.max_pool2d({}, {unit})", "F.pixel_unshuffle({}, {unit})", "F.silu({})")
    else:
        batch, w = g.one_of(((), (), (2,))), g.weight((width, 8), dtype, width)
        x = g.input((*batch, count, width), dtype)
        pads = f"(0, 0, {g.one_of((0, 0, 0, 1))}, -{x.name}.shape[-2] % {unit})"
        behind = (
            f"torch.tanh({{}} @ {w.name})",
            f"F.relu({{}} @ {w.name})",
            "{}.unflatten(-2, (-1, {unit})).softmax(-2)",
            "{}.unflatten(-2, (-1, {unit})).sum(-2)",
            "torch.sigmoid({})",
            "{}.cumsum(-2)",
        )
    made = g.add(f"F.pad({x.name}, {pads})")
    if made is not None:
        for text in g.random.sample(behind, g.number(1, 2)):
            g.add(text.format(made.name, unit=unit))


def image_norms(g: Grower) -> None:
    """Norms of groups that are larger than a program's registers, of few channels side by side, and of single channels;
    and long columns that are reduced and read again.
    """
    dtype, layout = g.one_of(_NARROW + (torch.float32,)), g.one_of(("plain", "channels_last"))
    if g.chance(3):
        x = g.input((g.one_of((2500, 4096, 9000)), g.one_of((17, 64, 250))), dtype)
        g.add(g.one_of(("F.normalize({}, dim=0)", "({0} - {0}.mean(0))", "({0} - {0}.amax(0))")).format(x.name))
        return
    images, size = g.one_of(((1, 160), (1, 224), (2, 130), (8, 28), (48, 14)))
    x = g.input((images, g.one_of((4, 8, 12)), size, size - g.number(0, 8)), dtype, layout=layout)
    text = g.one_of(("torch.sin({})", "{}")).format(x.name)
    text = g.one_of((f"F.group_norm({text}, {g.one_of((1, 2, 4))})", f"F.instance_norm({text})"))
    g.is_for_training = images > 1 and g.chance(3)  # PyTorch's gradient of one channels-last image is wrong
    g.add(g.one_of(("torch.relu({})", "F.silu({})", "{}")).format(text))


FAMILIES = (
    image_norms, image_norms,
    large_products, large_products, large_batches, large_batches, rows_anywhere, rows_anywhere,
    long_sums, large_weights, ragged_rows, many_tiles,
    many_tiles, many_tiles, large_heads, large_heads, written_attention, written_attention, stem, stem, three_dims,
    integers, onto_zeros, long_reductions, long_reductions, beside_products, beside_products, short_sums,
    powers_less_one, reordered_rows, reordered_rows, masked_writes, padded_to_multiples,
)  # fmt: skip
