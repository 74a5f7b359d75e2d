# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Families of ops that networks are made of: convolutions, pooling, norms with statistics, products, attention."""

import torch

from benchmarks.fuzz.families.sizes import SMALL as SIZES
from benchmarks.fuzz.growing import Grower, Value

ACTIVATIONS = ("{}", "torch.relu({})", "F.gelu({})", "F.silu({})", "torch.sigmoid({})", "{} * 2 - 1")


def _image(g: Grower, ranks: tuple[int, ...]) -> Value | None:
    return g.pick(lambda v: v.is_float and v.rank in ranks and 0 < v.tensor.numel() <= 1 << 12)


def convolve(g: Grower) -> None:
    """conv1d, conv2d and their transposes: any stride, padding, dilation and groups."""
    v = _image(g, (3, 4))
    if v is None:
        return
    spatial = v.rank - 2
    channels = v.tensor.shape[1]
    groups = g.one_of([k for k in (1, 2, 3, 4, channels) if channels % k == 0])
    kernel = [g.number(1, 4) for _ in range(spatial)]
    stride, padding, dilation = g.number(1, 3), g.number(0, 2), g.number(1, 2)
    per_group = g.number(1, 5)
    bias = g.input((per_group * groups,), v.tensor.dtype) if g.number(0, 2) else None
    act = g.one_of(ACTIVATIONS)
    if g.number(0, 4) == 0:
        w = g.input((channels, per_group, *kernel), v.tensor.dtype)
        least = min((n - 1) * stride + dilation * (k - 1) + 1 for n, k in zip(v.shape[2:], kernel, strict=True))
        padding = min(padding, (least - 1) // 2)  # nothing is left otherwise, which float64's kernel rejects
        extra = f"stride={stride}, padding={padding}, output_padding={g.number(0, 1)}, dilation={dilation}"
        name = f"F.conv_transpose{spatial}d"
    else:
        layout = g.one_of(("plain", "plain", "transposed"))
        w = g.input((per_group * groups, channels // groups, *kernel), v.tensor.dtype, layout=layout)
        pad: object = padding if stride > 1 or g.number(0, 3) else "'same'"
        extra, name = f"stride={stride}, padding={pad}, dilation={dilation}", f"F.conv{spatial}d"
    text = f"{name}({v.name}, {w.name}, {bias.name if bias else None}, groups={groups}, {extra}) * 0.3"
    g.add(act.format(f"({text})"))


def pool(g: Grower) -> None:
    """Pooling in one and two dims."""
    v = _image(g, (3, 4))
    if v is None:
        return
    n = v.rank - 2
    k, s, p = g.number(1, 3), g.number(1, 3), g.number(0, 1)
    kind = g.number(0, 4)
    if kind == 0:
        g.add(f"F.max_pool{n}d({v.name}, {k}, {s}, {min(p, k // 2)}, ceil_mode={bool(g.number(0, 1))})", v.exact)
    elif kind == 1:
        count = bool(g.number(0, 1))
        g.add(f"F.avg_pool{n}d({v.name}, {k}, {s}, {min(p, k // 2)}, ceil_mode={not p}, count_include_pad={count})")
    elif kind == 2:
        g.add(f"F.adaptive_avg_pool{n}d({v.name}, {g.number(1, 3)})")
    elif kind == 3:
        g.add(f"F.adaptive_max_pool{n}d({v.name}, {g.number(1, 3)})", v.exact)
    elif v.rank == 4:
        mode = g.one_of(("mode='nearest'", "mode='bilinear'", "mode='bilinear', align_corners=True"))
        g.add(f"F.interpolate({v.name}, scale_factor=2, {mode})")


def channel_norm(g: Grower) -> None:
    """Norms over channels: batch norm with running statistics, group norm, instance norm."""
    v = _image(g, (2, 3, 4))
    if v is None:
        return
    channels = v.tensor.shape[1]
    w, b = g.input((channels,), v.tensor.dtype), g.input((channels,), v.tensor.dtype)
    kind = g.number(0, 3)
    images, pixels = v.tensor.shape[0], v.tensor.shape[2:]
    # PyTorch's gradient of one image is wrong where its strides could be those of another order of dims, too.
    if kind < 2 and (images > 1 or min(pixels, default=2) > 1):
        mean, var = g.input((channels,), v.tensor.dtype), g.input((channels,), v.tensor.dtype)
        statistics = f"{mean.name}.detach(), ({var.name}.abs() + 0.5).detach()"  # no derivatives by these
        g.add(f"F.batch_norm({v.name}, {statistics}, {w.name}, {b.name})")
    elif kind == 2:
        groups = g.one_of([k for k in (1, 2, 3, channels) if channels % k == 0])
        g.add(f"F.group_norm({v.name}, {groups}, {w.name}, {b.name})")
    elif v.rank > 2 and images > 1:
        g.add(f"F.instance_norm({v.name}, weight={w.name}, bias={b.name})")


def product_with_bias(g: Grower) -> None:
    """addmm, baddbmm, bmm, mv, dot, outer products and einsum."""
    v = g.pick(lambda v: v.is_float and v.rank in (1, 2, 3) and 0 < v.tensor.shape[-1] <= 70)
    if v is None:
        return
    dtype, k, n = v.tensor.dtype, v.tensor.shape[-1], g.one_of(SIZES)
    layout = g.one_of(("plain", "transposed"))
    if v.rank == 1:
        g.add(g.one_of(("torch.dot({0}, {0}) * 0.1", "torch.outer({0}, {0})")).format(v.name))
    elif v.rank == 2:
        w = g.input((k, n), dtype, layout=layout)
        rows = v.tensor.shape[0]
        bias = g.input(g.one_of(((n,), (rows, n), (1, n), (rows, 1))), dtype)
        scale = g.one_of(("", ", beta=0.5, alpha=0.3", ", beta=0"))
        g.add(f"torch.addmm({bias.name}, {v.name}, {w.name}{scale}) * 0.3")
    else:
        batch, rows = v.tensor.shape[:2]
        w = g.input((batch, k, n), dtype, layout=layout)
        kind = g.number(0, 2)
        if kind == 0:
            g.add(f"torch.bmm({v.name}, {w.name}) * 0.3")
        elif kind == 1:
            bias = g.input(g.one_of(((batch, rows, n), (n,), (1, rows, n))), dtype)
            g.add(f"torch.baddbmm({bias.name}, {v.name}, {w.name}, alpha=0.25)")
        else:
            g.add(
                f"torch.einsum('{g.one_of(('bij,bjk->bik', 'bij,bjk->kbi', 'bij,bjk->ib'))}', {v.name}, {w.name}) * 0.2"
            )


def attend_to(g: Grower) -> None:
    """Attention over separate keys and values: grouped heads, masks of both types, a scale, other lengths."""
    queries, keys, depth = g.one_of((1, 2, 5, 8, 17, 33)), g.one_of((1, 3, 8, 16, 31)), g.one_of((1, 4, 8, 16, 24))
    batch, heads = g.number(1, 2), g.one_of((1, 2, 4))
    shared = g.one_of([h for h in (1, 2, 4) if heads % h == 0]) if g.number(0, 1) else heads
    dtype = g.one_of((torch.float32, torch.float32, torch.bfloat16))
    q = g.input((batch, heads, queries, depth), dtype)
    k = g.input((batch, shared, keys, depth), dtype)
    v = g.input((batch, shared, keys, g.one_of((depth, 8))), dtype)
    extra = ", enable_gqa=True" if shared != heads else ""
    kind = g.number(0, 3)
    if kind == 0:
        mask = g.input(g.one_of(((queries, keys), (batch, 1, queries, keys), (batch, 1, 1, keys))), dtype)
        extra += f", attn_mask={mask.name}"
    elif kind == 1:
        mask = g.input((queries, keys), torch.bool)
        extra += f", attn_mask={mask.name}"
    elif kind == 2:
        extra += ", is_causal=True"
    scale = g.one_of(("", ", scale=0.5"))
    result = g.add(f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name}{extra}{scale})")
    if result is not None:
        g.add(f"{result.name}.transpose(1, 2).flatten(2)")
