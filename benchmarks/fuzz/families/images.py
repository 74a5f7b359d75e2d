# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What vision networks do: convolutions of all kinds, norms over channels, pooling, gates, shuffles."""

from math import prod

import torch

from benchmarks.fuzz.families.rows import ACTIVATIONS
from benchmarks.fuzz.families.sizes import CHANNELS, INSIDE, LEAST_NORMED
from benchmarks.fuzz.growing import Grower, Value


def image(v: Value) -> bool:
    return v.is_float and v.rank == 4 and v.tensor.numel() > 0 and v.dtype != torch.float64


def before(g: Grower, v: Value) -> str:
    """What a convolution reads: an image, one with a gate that is broadcast, padded, or computed otherwise."""
    kind = g.number(0, 10)
    if kind == 10:
        batch, channels, *sides = v.shape
        wide = g.input((batch, channels + INSIDE, *sides), v.dtype, layout="channels_last")
        return f"{wide.name}[:, {INSIDE // 2}:{INSIDE // 2 + channels}]"
    if kind <= 1:
        gate = g.input((*v.shape[:2], 1, 1), v.dtype, layout=g.one_of(("plain", "channels_last")))
        return f"({v.name} * torch.sigmoid({gate.name}))"
    if kind == 2:
        return f"F.hardswish({v.name})"
    if kind == 3:
        return f"F.pad({v.name}, ({g.number(0, 2)}, {g.number(0, 2)}, {g.number(0, 1)}, {g.number(0, 1)}))"
    return v.name


def convolve(g: Grower) -> None:
    """Dense, 1x1, grouped and depthwise windows; strides, padding, dilation; norm, activation, residual behind."""
    v = g.pick(image)
    if v is None:
        return
    channels, positions = v.shape[1], v.shape[0] * prod(v.shape[2:])
    kind = g.one_of(
        ("1x1",) * 4 + ("3x3",) * 3 + ("depthwise",) * 3 + ("grouped", "large", "patches", "other", "transposed")
    )
    groups, window, stride, dilation = 1, (1, 1), g.one_of((1, 1, 1, 2)), 1
    if kind in ("3x3", "grouped", "transposed"):
        window = (3, 3)
    elif kind in ("large", "patches"):
        side = g.one_of((2, 4, 7, 8, 16))
        window, stride = (side, side), side if kind == "patches" else g.one_of((1, 2, 4))
    elif kind == "other":
        window, dilation = g.one_of(((1, 7), (3, 1), (2, 2), (5, 5), (3, 3), (4, 4))), g.one_of((1, 2))
    elif kind == "depthwise":
        side = g.one_of((3, 3, 5, 7))
        window = (side, side)
    padding = tuple(dilation * (n - 1) // 2 if g.number(0, 3) and kind != "patches" else 0 for n in window)
    out = channels
    if kind == "depthwise":
        groups, out = channels, channels * g.one_of((1, 1, 1, 2))
    else:
        if kind == "grouped":
            groups = g.one_of([n for n in (2, 3, 4, 8, 32) if channels % n == 0] or [1])
        per = positions * prod(window) * channels // groups // max(1, stride * stride)
        fits = g.budget.work / max(1, per)
        out = g.at_most([n for n in (*CHANNELS, 1, 10, 33, 1000) if n % groups == 0] or [groups], fits)
    if not g.spend(positions * out * (channels // groups) * prod(window) / (stride * stride)):
        return
    layout = g.one_of(("plain", "channels_last"))
    terms = channels // groups * prod(window)
    bias = g.input((out,), v.dtype).name if g.chance(2) else "None"
    if kind == "transposed":
        w = g.weight((channels, out // groups, *window), v.dtype, terms, layout=layout)
        text = f"F.conv_transpose2d({v.name}, {w.name}, {bias}, stride={stride}, padding={padding}, groups={groups})"
    else:
        w = g.weight((out, channels // groups, *window), v.dtype, terms, layout=layout)
        text = f"F.conv2d({before(g, v)}, {w.name}, {bias}, {stride}, {padding}, {dilation}, {groups})"
    finish(g, text, v.shape[0], out, v.dtype)


def learned(g: Grower) -> None:
    """Dense convolutions in 16 bits, one behind the other: the gradient reads what is between them, which training may
    keep with its channels last."""
    dtype, channels = g.one_of((torch.bfloat16, torch.float16)), g.one_of((5, 8, 16, 24, 33))
    count, images, side = g.number(1, 3), g.number(1, 4), g.one_of((5, 14, 28))
    if not g.spend(count * images * channels * channels * 9 * side * side):
        return
    text = g.input((images, channels, side, side), dtype).name
    for _ in range(count):
        w = g.weight((channels, channels, 3, 3), dtype, channels * 9)
        text = g.one_of(("F.silu({})", "torch.tanh({})", "F.gelu({}) + 1")).format(
            f"F.conv2d({text}, {w.name}, None, 1, 1)"
        )
    g.add(text)


def slide(g: Grower) -> None:
    """Depthwise windows that move by one position, over as many images as the kernel is for that shares what windows
    read, with channels last or, if it is worth it, on a copy; with what fits behind it, and the image's gradient."""
    dtype, channels = g.one_of((torch.bfloat16, torch.float16)), g.one_of((8, 16, 24, 33, 64, 100))
    side, size = g.one_of((3, 5, 7)), (g.one_of((14, 28, 31, 56)), g.one_of((7, 14, 28, 30, 56)))
    padding = g.one_of((side // 2, side // 2, 0, side - 1))
    images = max(1, -(-(12 << 20) // (channels * prod(size) * side * side)))
    if not g.spend(images * channels * prod(size) * side * side):
        return
    x = g.input((images, channels, *size), dtype, layout=g.one_of(("channels_last", "channels_last", "plain")))
    w = g.weight((channels, 1, side, side), dtype, side * side)
    bias = g.input((channels,), dtype).name if g.chance(2) else "None"
    finish(g, f"F.conv2d({x.name}, {w.name}, {bias}, 1, {padding}, 1, {channels})", images, channels, dtype)


def finish(g: Grower, text: str, images: int, channels: int, dtype: torch.dtype) -> None:
    """A line with a batch norm, an activation, a gate behind it."""
    kind = g.number(0, 5)
    if kind < 3:
        w, b, mean, var = (g.input((channels,), dtype).name for _ in range(4))
        text = f"F.batch_norm({text}, {mean}.detach(), ({var}.abs() + 0.5).detach(), {w}, {b})"
    elif kind == 3:
        text = f"({text}) * torch.sigmoid({g.input((images, channels, 1, 1), dtype).name})"
    elif kind == 4:
        text = f"({text}) * {g.input((channels, 1, 1), dtype).name} + {g.input((channels, 1, 1), dtype).name}"
    g.add(g.one_of(ACTIVATIONS).format(f"({text})"))


def channel_norm(g: Grower) -> None:
    """Group, batch and instance norms, and layer norms over channels."""
    v = g.pick(image)
    if v is None:
        return
    n = v.shape[1]
    w, b = (g.input((n,), v.dtype).name for _ in range(2))
    kind = g.number(0, 4)
    each = prod(v.shape[2:])
    if kind < 2 and n * each >= LEAST_NORMED:
        groups = g.one_of([k for k in (1, 2, 3, 4, 8, 16, 32, n) if n % k == 0 and n // k * each >= LEAST_NORMED])
        g.add(g.one_of(("{}", "F.silu({})")).format(f"F.group_norm({v.name}, {groups}, {w}, {b})"))
    elif kind == 2 and v.shape[0] * each >= LEAST_NORMED:
        g.add(f"F.batch_norm({v.name}, None, None, {w}, {b}, training=True)")
    elif kind == 3 and n >= LEAST_NORMED:
        g.add(f"F.layer_norm({v.name}.permute(0, 2, 3, 1), ({n},), {w}, {b}).permute(0, 3, 1, 2)")
    elif each >= LEAST_NORMED and v.shape[0] > 1:  # PyTorch's gradient of one image is wrong beside channels-last ones
        g.add(f"F.instance_norm({v.name}, weight={w}, bias={b})")


def pool(g: Grower) -> None:
    """Pooling, of large windows and of whole images among others; larger images; windows as columns, and back."""
    v = g.pick(image)
    if v is None:
        return
    k, s = g.number(2, 3), g.number(1, 2)
    window, wide = f"{k}, {g.number(1, 3 - s)}, {g.number(0, 1)}, {s}", g.one_of((5, 7, 9, 13))
    g.add(g.one_of((
        f"F.max_pool2d({v.name}, {k}, {s}, {g.number(0, 1)})",
        f"F.max_pool2d({v.name}, {wide}, {s}, {wide // 2})",
        f"F.avg_pool2d({v.name}, {wide}, {s}, {wide // 2}, count_include_pad={g.chance(2)})",
        f"F.avg_pool2d({v.name}, {k}, {s}, {g.number(0, 1)}, ceil_mode={g.chance(2)}, count_include_pad={g.chance(2)})",
        f"F.adaptive_avg_pool2d({v.name}, {g.one_of((1, 1, 2, 7))})",
        f"{v.name}.mean((2, 3), keepdim=True)",
        f"{v.name}.mean((2, 3))",
        f"F.interpolate({v.name}, scale_factor=2, mode={g.one_of(('nearest', 'bilinear'))!r})",
        f"F.unfold({v.name}, {window})",
        f"F.fold(F.unfold({v.name}, {window}) * 0.5, {v.name}.shape[-2:], {window})",
    )))  # fmt: skip


def sample(g: Grower) -> None:
    """Pixels at positions of a grid, some of them outside, many of them halfway between two pixels."""
    v = g.pick(image)
    if v is None:
        return
    sides = g.one_of((v.shape[2:], (7, 7), (1, 33)))
    i = g.input((v.shape[0], *sides, 2), torch.int64, high=160)
    mode, padding = g.one_of(("bilinear", "nearest", "bicubic")), g.one_of(("zeros", "border", "reflection"))
    how = f"mode={mode!r}, padding_mode={padding!r}, align_corners={g.chance(2)}"
    g.add(f"F.grid_sample({v.name}, ({i.name} - 80).to({v.name}.dtype) / 64, {how})")


def squeeze_and_excite(g: Grower) -> None:
    """An image times a gate that is computed from its means."""
    v = g.pick(image)
    if v is None:
        return
    n, few = v.shape[1], max(1, v.shape[1] // g.one_of((2, 4, 8)))
    w1, w2 = g.weight((few, n, 1, 1), v.dtype, n), g.weight((n, few, 1, 1), v.dtype, few)
    b1, b2 = g.input((few,), v.dtype), g.input((n,), v.dtype)
    inner = f"F.relu(F.conv2d({v.name}.mean((2, 3), keepdim=True), {w1.name}, {b1.name}))"
    g.add(f"{v.name} * torch.sigmoid(F.conv2d({inner}, {w2.name}, {b2.name}))")


def rearrange(g: Grower) -> None:
    """Channel shuffles, pixels as channels and back, windows, tokens, other memory orders, parts of channels."""
    v = g.pick(image)
    if v is None:
        return
    b, c, h, w = v.shape
    groups = g.one_of([k for k in (2, 3, 4, 8) if c % k == 0] or [1])
    other = g.input((b, g.one_of((1, 3, 8, c)), h, w), v.dtype, layout=g.one_of(("plain", "channels_last")))
    options = [
        f"{v.name}.view({b}, {groups}, {c // groups}, {h}, {w}).transpose(1, 2).reshape({b}, {c}, {h}, {w})",
        f"torch.cat([{v.name}, {other.name}], 1)",
        f"torch.cat([{v.name}[:, :{max(1, c // 2)}], {other.name}, torch.relu({v.name}[:, {c // 2}:])], 1)",
        f"{v.name}[:, {c // 3}:, ::2, ::2]",
        f"{v.name}.contiguous(memory_format=torch.{g.one_of(('channels_last', 'contiguous_format'))})",
        f"F.pad({v.name}, (1, 1, 1, 1), mode={g.one_of(('reflect', 'replicate', 'circular'))!r})",
        f"F.pad({v.name}, ({g.number(-1, 3)}, {g.number(-1, 3)}, 0, {g.number(0, 2)}))",
        f"torch.roll({v.name}, ({g.number(-3, 3)}, {g.number(1, 3)}), (2, 3))",
        f"{v.name}.flatten(2).transpose(1, 2)",
        f"{v.name}.permute(0, 2, 3, 1).reshape({b * h * w}, {c})",
    ]
    if h % 2 == 0 and w % 2 == 0:
        options += [f"F.pixel_unshuffle({v.name}, 2)"]
        parts = [f"{v.name}[:, :, {i}::2, {j}::2]" for i in (0, 1) for j in (0, 1)]
        options += [f"torch.cat([{', '.join(parts)}], 1)"]
    if c % 4 == 0:
        options += [f"F.pixel_shuffle({v.name}, 2)"]
    side = next((n for n in (7, 8, 4) if h % n == 0 and w % n == 0), None)
    if side is not None:
        window = f"view({b}, {h // side}, {side}, {w // side}, {side}, {c}).permute(0, 1, 3, 2, 4, 5)"
        shape = f"reshape({b * h // side * w // side}, {side * side}, {c})"
        options += [f"torch.roll({v.name}.permute(0, 2, 3, 1), (-3, -3), (1, 2)).contiguous().{window}.{shape}"] * 2
    g.add(g.one_of(options), v.exact)
