# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What transformers and multilayer perceptrons do: products of rows, norms, softmax, gates, heads."""

from math import prod

import torch

from benchmarks.fuzz.families.sizes import FEATURES, INSIDE, LEAST_NORMED, ODD, WORDS
from benchmarks.fuzz.growing import Grower, Value

ACTIVATIONS = ("{}", "torch.relu({})", "F.gelu({})", "F.gelu({}, approximate='tanh')", "F.silu({})",
               "torch.sigmoid({})", "torch.tanh({} / 30) * 30", "{} * 2 - 1", "F.hardswish({})", "torch.exp({}) - 1",
               "F.softplus({})", "F.leaky_relu({}, 0.1)", "torch.square(torch.relu({}))", "F.elu({})")  # fmt: skip


def matrix(v: Value) -> bool:
    return v.is_float and v.rank in (2, 3, 4) and v.tensor.numel() > 0 and v.dtype != torch.float64


def width(g: Grower, v: Value) -> int:
    """Columns of a product of a value's rows, as far as the budget goes."""
    rows = prod(v.shape[:-1])
    limit = min(g.budget.work / (rows * v.shape[-1]), g.budget.elements / rows)
    kind = g.number(0, 9)
    return g.at_most(ODD if kind == 0 else (*FEATURES, *WORDS) if kind == 1 else FEATURES, limit)


def prologue(g: Grower, v: Value) -> str:
    """What a product reads: a value, or something computed of it."""
    kind = g.number(0, 8)
    if kind == 8:
        wide = g.input((*v.shape[:-1], v.shape[-1] + INSIDE), v.dtype)
        return f"{wide.name}[..., {INSIDE // 2}:{INSIDE // 2 + v.shape[-1]}]"
    if kind == 0:
        return f"torch.relu({v.name})"
    if kind == 1:
        gate = g.input((*v.shape[:-1], 1) if g.chance(2) else v.shape[-1:], v.dtype)
        return f"({v.name} * torch.sigmoid({gate.name}))"
    if kind == 2:
        return f"(({v.name} + 1) * 0.5)"
    return v.name


def linear(g: Grower) -> None:
    """A product with a weight as `[n, k]` or `[k, n]`; a bias, an activation, a residual behind it."""
    v = g.pick(matrix)
    if v is None:
        return
    n, k = width(g, v), v.shape[-1]
    if not g.spend(prod(v.shape[:-1]) * n * k):
        return
    text = prologue(g, v)
    if g.chance(4):
        w = g.weight((k, n), v.dtype, k)
        text = f"({text} @ {w.name})"
    else:
        w = g.weight((n, k), v.dtype, k)
        bias = g.input((n,), v.dtype).name if g.number(0, 2) else "None"
        text = f"F.linear({text}, {w.name}, {bias})"
    behind(g, text, [*v.shape[:-1], n], v.dtype)


def behind(g: Grower, text: str, shape: list[int], dtype: torch.dtype) -> None:
    """A line with an epilogue: activations, residuals, vectors and gates that are broadcast, casts."""
    for _ in range(g.number(1, 2)):
        kind = g.number(0, 9)
        if kind <= 4:
            text = g.one_of(ACTIVATIONS).format(f"({text})")
        elif kind == 5:
            text = f"({text} + {g.input(shape, dtype).name})"
        elif kind == 6:
            text = f"({text}) * torch.sigmoid({g.input((*shape[:-1], 1), dtype).name})"
        elif kind == 7:
            text = f"({text}) * {g.input(shape[-1:], dtype).name} + {g.input(shape[-1:], dtype).name}"
        elif kind == 8:
            text = f"({text}).to(torch.{g.one_of(('float32', 'bfloat16', 'float16'))})"
        else:
            text = f"({text}) * torch.sigmoid({g.input((shape[0], *[1] * (len(shape) - 2), shape[-1]), dtype).name})"
    g.add(text)


def siblings(g: Grower) -> None:
    """Several products of the same rows: a gate (SwiGLU), or query, key and value."""
    v = g.pick(matrix)
    if v is None:
        return
    n, k = width(g, v), v.shape[-1]
    if not g.spend(3 * prod(v.shape[:-1]) * n * k):
        return
    first, second, third = (g.weight((n, k), v.dtype, k) for _ in range(3))
    if g.chance(2):
        text = f"F.silu(F.linear({v.name}, {first.name})) * F.linear({v.name}, {second.name})"
        g.add(text if g.chance(2) else f"{text} + F.linear({v.name}, {third.name})")
        return
    parts = [g.add(f"F.linear({v.name}, {w.name})") for w in (first, second, third)]
    made = [p for p in parts if p is not None]
    if len(made) == len(parts) and g.chance(2):
        a, b, c = (p.name for p in made)
        g.add(f"{a} * 0.5 + {b}.sigmoid() * {c}")
    elif g.chance(2):
        for part in made:
            g.keep(part)


def batched(g: Grower) -> None:
    """Products of pairs of matrices: scores, and the other way round."""
    v = g.pick(lambda v: matrix(v) and v.rank >= 3)
    if v is None:
        return
    *batch, rows, k = v.shape
    n = g.at_most(
        (*FEATURES, *ODD), min(g.budget.work / (prod(batch) * rows * k), g.budget.elements / prod(batch) / rows)
    )
    if not g.spend(prod(batch) * rows * k * n):
        return
    turned = g.chance(2)
    w = g.weight((*batch, n, k) if turned else (*batch, k, n), v.dtype, k)
    text = f"{v.name} @ {w.name}{'.transpose(-1, -2)' if turned else ''}"
    if g.chance(3):
        g.add(f"torch.softmax({text}, -1)")
    else:
        behind(g, text, [*batch, rows, n], v.dtype)


def norm(g: Grower) -> None:
    """Layer and RMS norms with what is around them."""
    v = g.pick(lambda v: v.is_float and v.rank >= 2 and v.tensor.numel() > 0 and v.shape[-1] >= LEAST_NORMED)
    if v is None:
        return
    n, kind = v.shape[-1], g.number(0, 4)
    text = g.one_of(("{}", "{}", "({} * 2 + 1)", "F.silu({})")).format(v.name)
    w, b = (g.input((n,), v.dtype).name for _ in range(2))
    if kind < 2:
        g.add(f"F.layer_norm({text}, ({n},), {w}, {b})")
    elif kind == 2:
        g.add(f"F.rms_norm({text}, ({n},), {w})")
    elif kind == 3:
        x = f"{text}.float()"
        g.add(f"({x} * torch.rsqrt({x}.pow(2).mean(-1, keepdim=True) + 1e-6)).to({v.name}.dtype) * {w}")
    else:
        g.add(f"F.layer_norm({text}, ({n},)) * (1 + {w}) + {b}")


def softmax(g: Grower) -> None:
    """Softmax and the like over any dim, with masks, also whole rows of them."""
    v = g.pick(lambda v: v.is_float and v.rank >= 2 and v.tensor.numel() > 0)
    if v is None:
        return
    d = g.one_of((-1, -1, -1, v.rank - 2, 0))
    kind = g.number(0, 4)
    if kind == 0:
        mask = g.input(v.shape[-2:], torch.bool)
        fill = g.one_of(("-inf", "-1e4", f"torch.finfo({v.name}.dtype).min"))
        g.add(f"torch.softmax({v.name}.masked_fill({mask.name}, {fill}), {d})")
    elif kind == 1:
        g.add(f"torch.log_softmax({v.name}.float(), {d})")
    elif kind == 2:
        g.add(f"torch.logsumexp({v.name}, {d})")
    else:
        g.add(f"torch.softmax({v.name} * 0.3, {d}{', dtype=torch.float32' if kind == 3 else ''})")


def loss(g: Grower) -> None:
    """Cross entropy of rows."""
    v = g.pick(lambda v: v.is_float and v.rank == 2 and v.shape[-1] > 1 and v.shape[0] > 0)
    if v is None:
        return
    target = g.input(v.shape[:1], torch.int64, high=v.shape[-1])
    g.add(f"F.cross_entropy({v.name}.float(), {target.name}, reduction={g.one_of(('mean', 'sum', 'none'))!r})")


def residual(g: Grower) -> None:
    """Two values of one shape, or one that is broadcast to the other."""
    a = g.pick(lambda v: v.is_float)
    b = None if a is None else g.pick(lambda w: w.is_float and w is not a and g.fits(w, a))
    if a is None:
        return
    other = b.name if b is not None else g.input(a.shape, a.dtype).name
    g.add(
        g.one_of(("{} + {}", "{} * torch.sigmoid({})", "torch.maximum({}, {})", "{} - 0.5 * {}")).format(a.name, other)
    )


def reduce_rows(g: Grower) -> None:
    """Sums, means, extremes and norms over rows, columns, all."""
    v = g.pick(lambda v: v.is_float and v.rank >= 2 and v.tensor.numel() > 0)
    if v is None:
        return
    dims = g.one_of(
        ((-1,), (0,), (v.rank - 2,), tuple(range(v.rank)), tuple(range(v.rank - 1)), tuple(range(1, v.rank)))
    )
    name = g.one_of(("mean", "mean", "amax", "amin", "var", "sum", "norm", "argmax"))
    keep = g.one_of((True, False))
    if name == "var":
        g.add(f"torch.var({v.name}, dim={dims}, keepdim={keep}, correction={g.number(0, 1)})")
    elif name == "norm":
        g.add(f"torch.linalg.vector_norm({v.name}.float(), dim={dims}, keepdim={keep})")
    elif name == "sum":
        g.add(f"({v.name} * 0.01).sum(dim={dims}, keepdim={keep})")
    elif name == "argmax":
        if v.exact and not v.tensor.isnan().any():
            g.add(f"torch.argmax({v.name}, dim={dims[0]}, keepdim={keep})", True)
    else:
        g.add(f"torch.{name}({v.name}, dim={dims}, keepdim={keep})", v.exact and name != "mean")


def sum_part(g: Grower) -> None:
    """Reductions of a part of what is costly to compute, of which other parts are read behind them."""
    v = g.pick(lambda v: v.is_float and v.rank >= 2 and v.tensor.numel() > 0 and v.shape[-1] >= 4)
    if v is None:
        return
    n, start = v.shape[-1], g.number(0, 2)
    stop, text = g.one_of((n, n, n - 1, n // 2 + 1)), g.one_of(("torch.tanh({0}) * torch.sigmoid({0})", "F.gelu({0})"))
    whole = g.add(text.format(v.name))
    if whole is None:
        return
    part = f"{whole.name}[..., {start}:{stop}]"
    total = f"{part}.{g.one_of(('sum', 'amax', 'mean', 'logsumexp'))}(-1, keepdim=True)"
    g.add(g.one_of((
        f"{part} * {total} + {whole.name}[..., :1]",
        f"{whole.name} - {total}",
        f"{part} - {total} * {whole.name}[..., {n - stop}:{n - start}]",
        f"{whole.name}.flip(-1) + {total}",
        f"torch.cat([{part} - {total}, {whole.name}], -1)",
    )))  # fmt: skip
