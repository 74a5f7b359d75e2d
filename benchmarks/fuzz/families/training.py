# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs that are compiled for training, for what is rewritten in joint graphs."""

import torch

from benchmarks.fuzz.growing import Grower, Value

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def block(g: Grower) -> None:
    """A convolution, a norm by its own statistics, an activation, and what reads sizes alone on its way back."""
    g.is_for_training = True
    dtype, channels, out = g.one_of(_DTYPES), g.one_of((1, 3, 8, 17)), g.one_of((4, 8, 24))
    images, size = g.one_of((1, 2, 4)), g.one_of((7, 14, 23, 32))
    layout = g.one_of(("plain", "channels_last"))
    x = g.input((images, channels, size, size + g.number(0, 1)), dtype, layout=layout)
    w = g.weight((out, channels, 3, 3), dtype, channels * 9, layout=layout)
    scale, shift = (g.input((out,), dtype).name for _ in range(2))
    if not g.spend(images * channels * out * size * size * 9):
        return
    text = f"F.conv2d({x.name}, {w.name}, None, {g.number(1, 2)}, 1)"
    # PyTorch's gradient of the instance norm of one image is wrong where the image behind it is channels last.
    text = g.one_of((
        f"F.batch_norm({text}, None, None, {scale}, {shift}, training=True)",
        f"F.batch_norm({text}, None, None, {scale}, {shift}, training=True)",
        f"F.instance_norm({text}, weight={scale}, bias={shift})"
        if images > 1
        else f"F.group_norm({text}, {out}, {scale}, {shift})",
        f"F.group_norm({text}, {g.one_of((1, 2, 4))}, {scale}, {shift})",
    ))  # fmt: skip
    text = f"{g.one_of(('torch.relu', 'F.silu', 'F.leaky_relu'))}({text})"
    g.add(g.one_of((
        f"F.max_pool2d({text}, 3, 2, 1)",
        f"F.max_pool2d({text}, 2)",
        f"F.avg_pool2d({text}, 2)",
        f"F.avg_pool2d({text}, {g.one_of(('3, 1, 1', '3, 2, 1', '7, 1, 3'))}, count_include_pad={g.chance(2)})",
        f"F.adaptive_avg_pool2d({text}, 2)",
        f"F.pad({text}, (1, 1, 1, 1), mode={g.one_of(('reflect', 'replicate'))!r})",
        f"F.pad({text}, {g.one_of(((1, 1, 1, 1), (2, 0, 1, 2)))}, mode='reflect')",
    )))  # fmt: skip


def resample(g: Grower) -> None:
    """Means over windows, few and many of which cover an element, and larger images, at positions of all kinds."""
    g.is_for_training = True
    dtype, channels, size = g.one_of(_DTYPES), g.one_of((1, 3, 8, 17)), g.one_of((7, 14, 23, 32))
    x = g.input((g.one_of((1, 2)), channels, size, size + g.number(0, 1)), dtype,
                layout=g.one_of(("plain", "channels_last", "channels_last")))  # fmt: skip
    text, modes = f"torch.sin({x.name})", ("nearest", "bilinear", "bicubic")
    windows, sizes = g.one_of(("3, 1, 1", "3, 2, 1", "2", "6, 1", *["7, 1, 3"] * 5)), g.one_of(("(40, 48)", "(33, 35)"))
    g.add(g.one_of((
        f"F.avg_pool2d({text}, {windows}, count_include_pad={g.chance(2)})",
        f"F.avg_pool2d({text}, {windows}, count_include_pad={g.chance(2)})",
        f"F.interpolate({text}, scale_factor={g.one_of((2, 4))}, mode={g.one_of(modes)!r})",
        f"F.interpolate({text}, size={sizes}, mode={g.one_of(modes[1:])!r})",
    )))  # fmt: skip


_SMOOTH = (
    ("lambda a, b: a * b", 1),
    ("lambda a, b: torch.logaddexp(a, b)", 1),
    ("lambda a, b, c, d: (a * c, c * b + d)", 2),
    ("lambda a, b, c, d: (a * c, c * b + d)", 2),
)


def recurrence(g: Grower) -> None:
    """An associative scan with a smooth function, of one tensor or of two."""
    g.is_for_training = True
    combine, count = g.one_of(_SMOOTH)
    dtype = g.one_of((torch.float32, torch.float32, torch.bfloat16))
    shape = (g.one_of((1, 3, 8)), g.one_of((4, 7, 33, 100)), g.one_of((1, 5, 16)))
    names = [f"torch.sigmoid({g.input(shape, dtype).name})", g.input(shape, dtype).name][:count]
    scan = f"generic_associative_scan({combine}, [{', '.join(names)}], {g.number(0, 2)})"
    g.add(f"{scan}[{count - 1}]")


def norm(g: Grower) -> None:
    """A norm over rows or groups of channels whose result a gradient reads, by way of what is behind it."""
    g.is_for_training = True
    dtype = g.one_of(_DTYPES)
    if g.chance(2):
        shape = (g.one_of((1, 3, 8)), g.one_of((1, 17, 64)), g.one_of((5, 16, 65, 256)))
        x = g.input(shape, dtype)
        scale, shift = (g.input(shape[2:], dtype).name for _ in range(2))
        text = f"F.layer_norm({x.name}, {shape[2:]}, {g.one_of((scale, None))}, {g.one_of((shift, None))})"
    else:
        shape = (g.one_of((1, 3)), g.one_of((4, 12)), g.one_of((1, 7, 16)), g.one_of((5, 16)))
        x = g.input(shape, dtype, layout=g.one_of(("plain", "channels_last")))
        scale, shift = (g.input(shape[1:2], dtype).name for _ in range(2))
        text = f"F.group_norm({x.name}, {g.one_of((1, 2, 4))}, {scale}, {shift})"
    other = g.input(shape, dtype).name
    g.add(
        g.one_of(
            ("F.silu({})", "F.gelu({})", "{} * {other}", "torch.sigmoid({}) * {other}", "F.silu({}).mean(-1)")
        ).format(text, other=other)
    )


def loss(g: Grower) -> None:
    """Cross-entropy with weights of classes, smoothed labels and labels that count for nothing, of rows or images."""
    g.is_for_training = True
    dtype, classes = g.one_of(_DTYPES), g.one_of((2, 7, 65, 1000))
    pixels = () if g.chance(2) else (g.one_of((1, 5)), g.one_of((3, 16)))
    count = g.one_of((1, 5, 64))
    x = g.input((count, classes, *pixels), dtype)
    if g.chance(2) and not pixels:
        w = g.weight((classes, g.one_of((8, 33))), dtype, 8)
        x = g.input((count, w.shape[1]), dtype)
        logits = f"F.linear({x.name}, {w.name})"
    else:
        logits = x.name
    target = g.input((count, *pixels), torch.int64, high=classes)
    options = [f"reduction={g.one_of(('mean', 'sum', 'none'))!r}"]
    if g.chance(2):
        options.append(f"ignore_index={g.one_of((0, 1))}")
    if g.chance(3):
        options.append("label_smoothing=0.1")
    if g.chance(3):
        options.append(f"weight={g.input((classes,), torch.float32).name}.abs().to({x.name}.dtype)")
    g.add(f"F.cross_entropy({logits}, {target.name}, {', '.join(options)})")


def maxima(g: Grower) -> None:
    """Max pooling of images and volumes, whose gradient reads where the maxima lie."""
    g.is_for_training = True
    rank = g.one_of((2, 2, 3))
    sizes = tuple(g.one_of((5, 8, 13, 16) if rank == 3 else (7, 14, 23, 33)) for _ in range(rank))
    layout = g.one_of(("plain", "channels_last"))
    x = g.input((g.one_of((1, 2)), g.one_of((1, 3, 8)), *sizes), g.one_of(_DTYPES), layout=layout)
    kernel = tuple(g.number(1, 4) for _ in range(rank))
    padding = tuple(g.number(0, n // 2) for n in kernel)
    stride = tuple(g.number(1, 3) for _ in range(rank))
    dilation, ceil = g.one_of((1, 1, 2)), g.one_of((True, False))
    text = f"torch.tanh({x.name})" if g.chance(2) else x.name
    g.add(f"F.max_pool{rank}d({text}, {kernel}, {stride}, {padding}, {dilation}, ceil_mode={ceil})")


def thin(g: Grower) -> None:
    """Products of vectors that share operands: rows, columns and sums of a single element, forward and backward."""
    g.is_for_training = True
    dtype, count = g.one_of(_DTYPES), g.one_of((1, 2, 7, 200, 9973))
    row, column = g.input((1, count), dtype, scale=count**-0.5), g.input((count, 1), dtype)
    texts = (
        f"{row.name} @ {column.name}",
        f"{column.name} @ {row.name}[:, :7]",
        f"{column.name} @ {column.name}[:3].t()",
        f"torch.tanh({row.name} @ {column.name}) * {row.name}",
        f"({column.name} * {row.name}.t()).sum(0)",
    )
    for text in g.random.sample(texts, g.number(2, 3)):
        g.add(text)


def deep(g: Grower) -> None:
    """Layers of gates and residuals, all of whose products the gradient reads: on a GPU so many that its graph pays
    for runs of launches between which memory goes."""
    g.is_for_training = True
    dtype, width = g.one_of((torch.float32, torch.float32, torch.bfloat16)), g.one_of((48, 64, 96))
    count = g.one_of((4096, 8192) if g.for_gpu else (33, 128, 256))
    layers = min(g.number(5, 9), int(g.budget.work / (6 * count * width * width)))
    x: Value | None = g.input((count, width), dtype)
    for _ in range(layers):
        if x is not None and g.spend(6 * count * width * width):
            x = g.add(f"{x.name} + F.glu(F.linear({x.name}, {g.weight((2 * width, width), dtype, width).name}), -1)")


def views(g: Grower) -> None:
    """A copy, and a part of it, both returned: the part's place in the copy is known at run time."""
    g.is_for_training = g.is_dynamic = True
    x = g.input((g.one_of((4, 7, 17)), g.one_of((3, 9, 16))), g.one_of(_DTYPES))
    made = g.add(g.one_of(("{}.repeat_interleave(2, 0)", "{}.flip(0)", "{}.t().clone()", "{}.clone()")).format(x.name))
    if made is not None:
        g.keep(made)
        g.add(g.one_of(("{}[1:3]", "{}[2]", "{}[:, 1:]", "{}.t()")).format(made.name))


def weights_of_neighbours(g: Grower) -> None:
    """A few sums for each row, by weights that are changed in place in another shape than that of the product."""
    g.is_for_training = True
    rows, neighbours, n = g.one_of((4, 32, 33, 96)), g.one_of((1, 3, 4, 4, 8, 20)), g.one_of((1, 3, 8, 16))
    dtype = g.one_of((torch.float32, torch.float32, torch.float64, torch.bfloat16))
    by, features = g.input((rows, neighbours, n), dtype), g.one_of((1, 5, 24))
    x, layer = g.input((rows * neighbours, features), dtype), g.weight((1, features), dtype, features)
    w = g.add(f"F.linear({x.name}, {layer.name})")
    matrix = f"{rows}, {neighbours}"
    shape = g.one_of((f"({matrix})", f"(1, {matrix})", f"({matrix})", f"({matrix}, 1)"))
    w = w and g.add(f"{w.name}.reshape({shape})")
    if w is not None:
        written = f"{w.name}.{g.one_of(('clamp_(-0.5, 0.5)', 'clamp_(max=0.3)', 'tanh_()'))}"
        g.add_in_place(f"torch.bmm({written}.reshape({rows}, 1, {neighbours}), {by.name})", w)


FAMILIES = (block, block, resample, resample, recurrence, norm, loss, maxima, thin, deep, views, weights_of_neighbours)
