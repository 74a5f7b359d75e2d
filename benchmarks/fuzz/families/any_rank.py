# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops of tensors of any rank and any sizes: pointwise, views, joins, reductions, small products, lookups."""

from math import prod

import torch

from benchmarks.fuzz.families.sizes import LEAST_NORMED
from benchmarks.fuzz.families.sizes import SMALL as SIZES
from benchmarks.fuzz.growing import Grower

SMOOTH = ("torch.tanh", "torch.sigmoid", "F.gelu", "F.silu", "torch.sin", "torch.cos", "torch.erf", "torch.atan",
          "F.softplus", "torch.exp", "torch.expm1", "torch.square", "F.elu", "F.mish", "F.hardswish")  # fmt: skip
EXACT = ("torch.neg", "torch.abs", "torch.relu")
SAFE = ("torch.log1p({}.abs())", "torch.sqrt({}.abs() + 1)", "torch.rsqrt({}.abs() + 0.5)", "1 / ({}.abs() + 1)",
        "F.gelu({}, approximate='tanh')", "{} * 0.5 + 1.0", "torch.pow({}, 2)", "({}.abs() + 1) ** 0.3",
        "torch.log({}.abs() + 0.1)", "torch.clamp({}, -1.5, 0.75)", "F.leaky_relu({}, 0.1)")  # fmt: skip
ROUND = ("torch.floor", "torch.ceil", "torch.trunc", "torch.sign", "torch.round")


def unary(g: Grower) -> None:
    v = g.pick(lambda v: v.is_float)
    if v is None:
        return
    kind = g.number(0, 3)
    if kind == 0:
        g.add(f"{g.one_of(EXACT)}({v.name})", v.exact)
    elif kind == 1:
        g.add(g.one_of(SAFE).format(v.name))
    elif kind == 2 and v.exact:
        g.add(f"{g.one_of(ROUND)}({v.name})", True)
    else:
        g.add(f"{g.one_of(SMOOTH)}({v.name})")


def binary(g: Grower) -> None:
    a, b = g.pick(), g.pick()
    assert a is not None and b is not None
    if a.is_bool and b.is_bool:
        g.add(f"{a.name} {g.one_of('&|^')} {b.name}", a.exact and b.exact)
        return
    op = g.one_of(("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.minimum({}, {})",
                   "{} / ({}.abs() + 1)", "torch.add({}, {}, alpha=2)"))  # fmt: skip
    integers = not a.is_float and not b.is_float
    exact = a.exact and b.exact and (op.startswith("torch.m") or (integers and "/" not in op))
    g.add(op.format(a.name, b.name), exact)


def integer(g: Grower) -> None:
    v = g.pick(lambda v: not v.is_float and not v.is_bool)
    if v is None:
        return
    g.add(g.one_of(("{} // 3", "{} % 5", "{} * 2 - 7", "{} & 3", "-{}", "{} >> 1", "torch.clamp({}, 1, 5)",
                    "torch.div({}, 3, rounding_mode='trunc')", "({} - 4) // 3", "({} - 4) % 3", "~{}",
                    "{}.abs()")).format(v.name), v.exact)  # fmt: skip


def compare(g: Grower) -> None:
    a = g.pick(lambda v: v.exact)
    b = g.pick(lambda v: v.exact)
    if a is None or b is None:
        return
    other = b.name if g.number(0, 1) else g.one_of(("0", "0.5", "1"))
    g.add(g.one_of(("{} > {}", "{} <= {}", "{} == {}", "{} != {}", "{} < {}")).format(a.name, other), True)


def where(g: Grower) -> None:
    c = g.pick(lambda v: v.is_bool)
    a, b = g.pick(lambda v: v.is_float), g.pick(lambda v: v.is_float)
    if c is None or a is None or b is None:
        return
    if g.number(0, 2) == 0:
        fill = g.one_of(("0.0", "-1e4", "1.0") if g.number(0, 3) else ("-inf",))
        g.add(f"{a.name}.masked_fill({c.name}, {fill})", a.exact)
    else:
        g.add(f"torch.where({c.name}, {a.name}, {b.name if g.number(0, 2) else '0.0'})", a.exact and b.exact)


def cast(g: Grower) -> None:
    v = g.pick()
    assert v is not None
    to = g.one_of(("float32", "float32", "float64", "bfloat16", "float16"))
    if not v.is_float:
        to = g.one_of((to, "int64", "int32", "uint8"))
        if v.tensor.numel() and not v.is_bool and (v.tensor.min() < 0 or v.tensor.max() > 255) and to == "uint8":
            return
    elif v.exact and g.number(0, 3) == 0 and bool(torch.isfinite(v.tensor).all()):
        g.add(f"{v.name}.to(torch.{g.one_of(('int64', 'int32', 'bool'))})", True)
        return
    wide = to in ("float32", "float64") and v.tensor.dtype not in (torch.float64,)
    g.add(f"{v.name}.to(torch.{to})", v.exact and (not v.is_float or wide))


def view(g: Grower) -> None:
    v = g.pick(lambda v: v.rank > 0)
    if v is None:
        return
    d, e = g.number(0, v.rank - 1), g.number(0, v.rank - 1)
    n = v.tensor.shape[d]
    options = [
        f"{v.name}.transpose({d}, {e})",
        f"{v.name}.unsqueeze({g.number(0, v.rank)})",
        f"{v.name}.squeeze({d})",
        f"torch.flip({v.name}, [{d}])",
        f"{v.name}.flatten({min(d, e)}, {max(d, e)})",
        f"{v.name}.narrow({d}, {n // 3}, {max(1, n // 2) if n else 0})",
        f"{v.name}.select({d}, {n // 2 if n else 0})",
        f"{v.name}[{', '.join([':'] * d + [f'{g.number(0, 2)}::{g.number(1, 3)}'])}]",
        f"{v.name}.permute({', '.join(map(str, g.random.sample(range(v.rank), v.rank)))})",
        f"torch.roll({v.name}, {g.number(1, 3)}, {d})",
        f"{v.name}.reshape(-1)",
        f"{v.name}.contiguous()",
        f"{v.name}.unflatten({d}, (-1, {next((k for k in (2, 3, 5, 7, 1) if n and n % k == 0), 1)}))",
        f"{v.name}.unsqueeze({d}).expand({', '.join(['-1'] * d + ['3'] + ['-1'] * (v.rank - d))})",
        f"{v.name}.repeat_interleave(2, {d})",
        f"torch.diagonal({v.name}, 0, {d}, {e})",
        f"{v.name}.mT",
        f"torch.tril({v.name})",
    ]
    g.add(g.one_of(options), v.exact)


def join(g: Grower) -> None:
    v = g.pick(lambda v: v.rank > 0)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    kind = g.number(0, 3)
    if kind == 0:
        pads = [g.number(0, 2) for _ in range(2 * min(2, v.rank))]
        if not v.is_bool:
            g.add(f"F.pad({v.name}, {pads}, value={g.one_of(('0', '1'))})", v.exact)
        return
    alike = [w for w in g.values if w.rank == v.rank and w.dtype == v.dtype]
    fits = [w for w in alike if all(a == b or i == d for i, (a, b) in enumerate(zip(v.shape, w.shape, strict=True)))]
    w = g.one_of(fits)
    if kind == 1 and w.tensor.shape == v.tensor.shape:
        g.add(f"torch.stack([{v.name}, {w.name}], {g.number(0, v.rank)})", v.exact and w.exact)
    else:
        g.add(f"torch.cat([{v.name}, {w.name}, {v.name}], {d})", v.exact and w.exact)


def reduce(g: Grower) -> None:
    v = g.pick(lambda v: v.rank > 0)
    if v is None:
        return
    dims = sorted({g.number(0, v.rank - 1) for _ in range(g.number(1, 2))})
    keep = g.one_of(("True", "False"))
    if v.is_bool:
        g.add(f"torch.{g.one_of(('any', 'all'))}({v.name}, dim={dims[0]}, keepdim={keep})", v.exact)
        return
    name = g.one_of(("sum", "sum", "mean", "amax", "amin", "var", "prod", "logsumexp", "norm", "std", "argmax"))
    if not v.is_float:
        name = g.one_of(("sum", "amax", "amin", "prod"))
    if name == "argmax":
        if v.exact and not torch.isnan(v.tensor).any():
            g.add(f"torch.{g.one_of(('argmax', 'argmin'))}({v.name}, dim={dims[0]}, keepdim={keep})", True)
    elif name == "prod":
        g.add(f"torch.prod({v.name}, dim={dims[0]}, keepdim={keep})", not v.is_float and v.exact)
    elif name in ("var", "std"):
        g.add(f"torch.{name}({v.name}, dim={dims}, keepdim={keep}, correction=0)")
    elif name == "norm":
        g.add(f"torch.linalg.vector_norm({v.name}, dim={dims}, keepdim={keep})")
    elif g.number(0, 7) == 0:
        g.add(f"{v.name}.{g.one_of(('sum', 'amax'))}()", False)
    else:
        g.add(f"torch.{name}({v.name}, dim={dims}, keepdim={keep})", v.exact and name in ("amax", "amin"))


def normalise(g: Grower) -> None:
    v = g.pick(lambda v: v.is_float and v.rank > 0)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    tail = list(v.tensor.shape[d:])
    kind = g.number(0, 4)
    if kind < 2 or prod(tail) < LEAST_NORMED:
        g.add(f"torch.{g.one_of(('softmax', 'softmax', 'log_softmax'))}({v.name}, {d})")
    elif kind == 2:
        w, b = g.input(tail, v.tensor.dtype), g.input(tail, v.tensor.dtype)
        g.add(f"F.layer_norm({v.name}, {v.name}.shape[{d}:], {w.name}, {b.name})")
    elif kind == 3:
        g.add(f"F.layer_norm({v.name}, {v.name}.shape[{d}:])")
    else:
        g.add(f"F.rms_norm({v.name}, {v.name}.shape[{d}:])")


def product(g: Grower) -> None:
    v = g.pick(lambda v: v.is_float and v.rank >= 1 and 0 < v.tensor.shape[-1] <= 70)
    if v is None:
        return
    n, k = g.one_of(SIZES), v.tensor.shape[-1]
    kind = g.number(0, 4)
    if kind == 0:
        other = g.pick(
            lambda w: w.is_float and w.tensor.dtype == v.tensor.dtype and w.rank >= 2 and w.tensor.shape[-2] == k
        )
        if other is not None:
            g.add(f"({v.name} @ {other.name}) * 0.3")
    elif kind == 1:
        w = g.input((k, n), v.tensor.dtype, layout=g.one_of(("plain", "transposed")))
        g.add(f"{v.name} @ {w.name} * 0.3")
    elif kind == 2 and v.rank >= 2:
        g.add(f"({v.name} @ {v.name}.transpose(-1, -2)) * 0.3")
    else:
        w, b = g.input((n, k), v.tensor.dtype), g.input((n,), v.tensor.dtype)
        act = g.one_of(("{}", "F.gelu({})", "torch.relu({})", "torch.tanh({})"))
        g.add(act.format(f"F.linear({v.name}, {w.name}, {b.name if g.number(0, 2) else 'None'}) * 0.3"))


def lookup(g: Grower) -> None:
    kind = g.number(0, 3)
    if kind == 0:
        index = g.input((g.one_of(SIZES[:7]), g.one_of(SIZES[:7]))[: g.number(1, 2)], torch.int64, high=9)
        table = g.input((9, g.one_of(SIZES)), torch.float32)
        padding = g.one_of(("", ", padding_idx=2", ", padding_idx=-1"))  # whose row has no gradient
        g.add(f"F.embedding({index.name}, {table.name}{padding})", True)
        return
    v = g.pick(lambda v: v.rank > 0 and min(v.tensor.shape) > 0)
    if v is None:
        return
    d = g.number(0, v.rank - 1)
    n = v.tensor.shape[d]
    if kind == 1:
        index = g.input((g.one_of(SIZES[:7]),), torch.int64, high=n)
        g.add(f"torch.index_select({v.name}, {d}, {index.name})", v.exact)
    elif kind == 2:
        index = g.input(v.tensor.shape, torch.int64, high=n)
        g.add(f"torch.gather({v.name}, {d}, {index.name})", v.exact)
    else:
        index = g.input((g.one_of(SIZES[:5]),), torch.int64, high=n)
        g.add(f"{v.name}[{', '.join([':'] * d + [index.name])}]", v.exact)


def scan(g: Grower) -> None:
    v = g.pick(lambda v: v.rank > 0 and not v.is_bool)
    if v is not None:
        g.add(f"torch.cumsum({v.name}, {g.number(0, v.rank - 1)}) * 0.25")


def attend(g: Grower) -> None:
    v = g.pick(lambda v: v.is_float and v.rank == 4 and 0 < v.tensor.shape[-1] <= 33 and v.tensor.numel() > 0)
    if v is None:
        return
    causal = g.one_of(("True", "False"))
    g.add(f"F.scaled_dot_product_attention({v.name}, {v.name}, {v.name}, is_causal={causal})")


def create(g: Grower) -> None:
    v = g.pick(lambda v: v.rank > 0)
    if v is None:
        return
    options = ("torch.arange({0}.shape[-1], device={0}.device)", "torch.ones_like({0})", "torch.full_like({0}, 2)",
               "torch.zeros({0}.shape[0], 1, device={0}.device)")  # fmt: skip
    g.add(g.one_of(options).format(v.name), True)
