# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cases of elementwise functions, of numbers and of integers."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from case_tensors import BOOLS, DTYPES, EDGES, GRAD, I8, I32, I64, INF, NAN, POSITIVE, U8, UNIT, X, noise
from harness import Case

aten = torch.ops.aten
F = torch.nn.functional

UNARY: dict[str, torch.Tensor] = {
    **dict.fromkeys(("exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh"), X),
    **dict.fromkeys(("asin", "acos", "atanh", "erf", "erfc"), UNIT),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"), POSITIVE),
    "acosh": POSITIVE + 1,
    **dict.fromkeys(
        (
            *("neg", "abs", "square", "floor", "ceil", "trunc", "round", "frac", "sign", "sgn", "sigmoid", "angle"),
            *("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not", "nan_to_num"),
            *("deg2rad", "rad2deg", "relu"),
        ),
        EDGES,
    ),
}

# Every activation, on the edges of its pieces as well as at NaN and infinities.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    # At infinity eager's own result is Inf or NaN, by the instructions that the machine has: test_gelu_at_infinity.
    "gelu": lambda x: F.gelu(x.clamp(-40, 40)),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -2, 2.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
    "softshrink": lambda x: F.softshrink(x, 0.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "softplus": lambda x: F.softplus(x, beta=2, threshold=5),
    "threshold": lambda x: F.threshold(x, 0.5, -7),
    "log_sigmoid": F.logsigmoid,
    "clamp": lambda x: torch.clamp(x, -1, 2.5),
    "clamp_min": lambda x: torch.clamp(x, min=0.5),
    "clamp_max": lambda x: torch.clamp_max(x, 0.5),
    "clamp_nan": lambda x: torch.clamp(x, min=NAN),
    "clamp_crossed": lambda x: torch.clamp(x, 2, 1),
    "logit_eps": lambda x: torch.logit(x, 0.1),
    "round_decimals": lambda x: torch.round(x, decimals=1),
    "nan_to_num": lambda x: torch.nan_to_num(x, 3.0, 7.0, -7.0),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x**0.5,
    "pow_minus_half": lambda x: x**-0.5,
    "pow_minus_2": lambda x: x**-2,
    "pow0": lambda x: x**0,
    "two_pow": lambda x: 2**x,
    "one_pow": lambda x: 1**x,
}

# aten.NAME(grad, x, *rest)
BACKWARD: dict[str, tuple[Any, ...]] = {
    "threshold_backward": (0,),
    "leaky_relu_backward": (0.1, False),
    "hardtanh_backward": (-1, 1),
    "hardsigmoid_backward": (),
    "hardswish_backward": (),
    "hardshrink_backward": (0.5,),
    "softshrink_backward": (0.5,),
    "silu_backward": (),
    "mish_backward": (),
    "softplus_backward": (2, 5),
}

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, y: torch.add(x, y, alpha=3),
    "sub": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "xlogy": torch.xlogy,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "heaviside": torch.heaviside,
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "pow": torch.pow,
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"logical_{name}": getattr(torch, f"logical_{name}") for name in ("and", "or", "xor")},
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp_tensor": lambda x, y: torch.clamp(x, y, y + 1),
    "isclose": lambda x, y: torch.isclose(x, y, rtol=0.5, atol=0.1, equal_nan=True),
}


# What eager itself gets wrong in PyTorch 2.11: the NaN is used or not, by the place in the tensor; no broadcasting.
if not torch.clamp(torch.ones(1), min=NAN).isnan():
    del ACTIVATIONS["clamp_nan"]
try:
    BINARY["isclose"](torch.ones(2, 1), torch.ones(1, 2))
except RuntimeError:
    del BINARY["isclose"]


def elementwise_cases() -> Iterator[Case]:
    for name, x in UNARY.items():
        yield Case(name, getattr(aten, name), (x,))
    for name, fn in ACTIVATIONS.items():
        yield Case(f"activation_{name}", fn, (EDGES,))
    for name, rest in BACKWARD.items():
        call = lambda g, x, name=name, rest=rest: getattr(aten, name)(g, x, *rest)
        yield Case(name, call, (GRAD, 3 * X), 1e-5, dynamic="shrink" not in name)
    for kind in ("none", "tanh"):
        yield Case(
            f"gelu_backward_{kind}", lambda g, x, k=kind: aten.gelu_backward(g, x, approximate=k), (GRAD, 3 * X), 1e-5
        )
    for result in (False, True):
        call = lambda g, x, r=result: aten.elu_backward(g, 0.7, 1.1, 0.9, r, x)
        yield Case(f"elu_backward_{result}", call, (GRAD, X))
    yield Case("sigmoid_backward", aten.sigmoid_backward, (GRAD, X))
    yield Case("tanh_backward", aten.tanh_backward, (GRAD, UNIT))
    yield Case("logit_backward", lambda g, x: aten.logit_backward(g, x, 0.1), (GRAD, UNIT))
    yield Case("log_sigmoid_backward", lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())), (GRAD, 3 * X))
    yield Case("prelu", lambda x, w: aten._prelu_kernel(x, w), (X, noise(1, 6)))
    pairs = (EDGES[:, None], EDGES[None, :])
    for name, fn in BINARY.items():
        yield Case(f"binary_{name}", fn, pairs, 1e-5)
    yield Case("ldexp", torch.ldexp, (X, I64))
    yield Case("lerp", torch.lerp, (X, GRAD, UNIT))
    yield Case("lerp_scalar", lambda x, y: torch.lerp(x, y, 0.75), (X, GRAD))
    yield Case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), (X, GRAD, UNIT))
    yield Case("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), (X, GRAD, POSITIVE))
    yield Case("glu", lambda x: F.glu(x, -1), (X,))
    yield Case("masked_fill", lambda x, m: x.masked_fill(m, -INF), (X, BOOLS))
    yield Case("broadcast", lambda x, y: x + y * 2, (noise(3, 1, 5), noise(4, 1)))
    yield Case("zero_dim", lambda x, y: (x + y) * 2, (noise(), noise(seed=1)))


def integer_cases() -> Iterator[Case]:
    for name, x in {"i64": I64, "i32": I32, "i8": I8, "u8": U8, "bool": BOOLS}.items():
        yield Case(f"arith_{name}", lambda x: (x + 3, x * 2, x + True, x * 0.5, x / 3), (x,))
        yield Case(f"compare_{name}", lambda x: (x > 2, x == 1.0, x != 3, x < 2.5), (x,))
        yield Case(f"casts_{name}", lambda x: [x.to(t) for t in DTYPES], (x,))
        yield Case(f"reduce_{name}", lambda x: (x.sum(), x.sum(1), x.amax(0), x.any(), x.all(1), x.prod(1)), (x,))
        yield Case(f"mask_{name}", lambda x: (x & 1, x | x, x ^ 3, ~x), (x,))
        if name != "bool":
            yield Case(
                f"floor_{name}",
                lambda x: (x // 3, x % 3, torch.fmod(x, 3), torch.div(x, 3, rounding_mode="trunc")),
                (x,),
            )
            yield Case(f"shift_{name}", lambda x, y: (x << 2, x >> 1, x << y, x >> y), (x, (I64 * 5).to(x.dtype)))
            yield Case(
                f"unary_{name}", lambda x: (-x, x.abs(), x.sign(), x**3, x.clamp(1, 4), x.floor(), x.exp()), (x,)
            )
    for name, x in {"i64": I64, "i32": I32, "i8": I8}.items():
        yield Case(f"floor_negative_{name}", lambda x: (x // -3, x % -3, x // -1, x % -1, torch.fmod(x, -3)), (x,))
    yield Case("where_int", lambda c, x, y: torch.where(c, x, y), (BOOLS, I64, X))
    yield Case("maximum_u8", torch.maximum, (U8 + 200, U8))
    yield Case(
        "float_to_int", lambda x: [x.to(t) for t in (torch.int64, torch.int32, torch.int8, torch.bool)], (X * 10,)
    )
    yield Case("float_to_u8", lambda x: x.to(torch.uint8), (POSITIVE * 20,))
