# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The functions whose conversions are checked for their numbers: every rule, with the values that go wrong first."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401 - registers quantized_decomposed
from harness import Case

aten = torch.ops.aten
F = torch.nn.functional
INF, NAN = float("inf"), float("nan")

EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 6.0, 30.0, -30.0, 1e-6, NAN, INF, -INF]
)


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Seeded normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def ints(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64, seed: int = 0) -> torch.Tensor:
    """Seeded integers."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X = noise(4, 6)
UNIT = torch.linspace(-0.95, 0.95, 24).reshape(4, 6)
POSITIVE = X.abs() + 0.1
I64, I32, I8, U8 = (
    ints(4, 6),
    ints(4, 6, dtype=torch.int32),
    ints(4, 6, dtype=torch.int8),
    ints(4, 6, low=0, dtype=torch.uint8),
)
BOOLS = ints(4, 6, low=0, high=2).bool()
GRAD = noise(4, 6, seed=7)

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
        call = lambda g, x, name=name, rest=rest: getattr(aten, name)(g, x, *rest)  # noqa: E731
        yield Case(name, call, (GRAD, 3 * X), 1e-5, dynamic="shrink" not in name)
    for kind in ("none", "tanh"):
        yield Case(
            f"gelu_backward_{kind}", lambda g, x, k=kind: aten.gelu_backward(g, x, approximate=k), (GRAD, 3 * X), 1e-5
        )
    for result in (False, True):
        call = lambda g, x, r=result: aten.elu_backward(g, 0.7, 1.1, 0.9, r, x)  # noqa: E731
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


def quantization_cases() -> Iterator[Case]:
    """Halves between two steps, values past both bounds, and every type there and back."""
    q = torch.ops.quantized_decomposed
    x = torch.cat([torch.linspace(-9, 9, 73), torch.tensor([1e9, -1e9, 0.0, -0.0])])
    for dtype in (torch.int8, torch.uint8, torch.int16):
        bounds = torch.iinfo(dtype)
        args = (0.05, 7, bounds.min, bounds.max, dtype)
        yield Case(f"quantize_{dtype}", lambda x, args=args: q.quantize_per_tensor(x, *args), (x,))
        integers = q.quantize_per_tensor(x, *args)
        yield Case(f"dequantize_{dtype}", lambda x, args=args: q.dequantize_per_tensor(x, *args), (integers,))
    for half in (torch.bfloat16, torch.float16):
        args = (0.05, 7, -128, 127, torch.int8)
        yield Case(f"quantize_{half}", lambda x, args=args: q.quantize_per_tensor(x, *args), (X.to(half),))
        yield Case(
            f"dequantize_{half}",
            lambda x, args=args, half=half: q.dequantize_per_tensor(x, *args, out_dtype=half),
            (I8,),
            tol=8e-3,
        )
    for axis in (0, 1):
        scales, zeros = POSITIVE.amax(1 - axis), ints(X.shape[axis])
        args = (axis, -128, 127, torch.int8)
        yield Case(
            f"per_channel_{axis}",
            lambda x, n, s, z, args=args: (
                q.quantize_per_channel(x, s, z, *args),
                q.dequantize_per_channel(n, s, z, *args),
                q.dequantize_per_channel(n, s, None, *args),
            ),
            (X, I8, scales, zeros),
        )


DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def dtype_cases() -> Iterator[Case]:
    for dtype, tol in {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}.items():
        name = str(dtype).removeprefix("torch.")
        x, y = noise(4, 6, dtype=dtype), noise(6, dtype=dtype, seed=3)
        yield Case(
            f"pointwise_{name}",
            lambda x, y: (x * y + 0.1, F.gelu(x), x > 0.3, x / y, torch.where(x > y, x, y)),
            (x, y),
            tol,
        )
        yield Case(f"promote_{name}", lambda x, y, z, i: (x + y, x * z, x + i), (x, noise(6), noise(), I64[0]), tol)
        yield Case(f"reduce_{name}", lambda x: (x.sum(0), x.mean(), x.amax(1), x.var(1), x.norm()), (x,), tol)
        yield Case(f"softmax_{name}", lambda x: (x.softmax(-1), x.log_softmax(0)), (x,), tol)
        yield Case(f"casts_{name}", lambda x: [(x * 4).to(t) for t in DTYPES if t != torch.uint8], (x,), tol)
        yield Case(
            f"norm_{name}", lambda x, y: (F.layer_norm(x, (6,), y, y), F.rms_norm(x, (6,), y, 1e-5)), (x, y), tol
        )
        yield Case(f"mm_{name}", lambda x, y: x @ y, (x, noise(6, 5, dtype=dtype, seed=4)), tol)


def reduction_cases() -> Iterator[Case]:
    x = noise(3, 4, 5)
    bad = x.clone()
    bad[0, 1, 2], bad[1, 2, 3], bad[2, 0, :] = NAN, INF, -INF
    for name, v in {"plain": x, "edges": bad}.items():
        yield Case(
            f"sum_{name}",
            lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(-1, dtype=torch.float64)),
            (v,),
        )
        yield Case(f"mean_{name}", lambda x: (x.mean(), x.mean(1), x.mean((0, -1), keepdim=True)), (v,))
        yield Case(
            f"extrema_{name}", lambda x: (x.amax(1), x.amin((0, 1), keepdim=True), x.max(), x.min(), x.aminmax()), (v,)
        )
        yield Case(f"max_dim_{name}", lambda x: (*x.max(1), *x.min(-1, keepdim=True)), (v,))
        yield Case(f"argmax_{name}", lambda x: (x.argmax(), x.argmin(), x.argmax(1), x.argmin(0, keepdim=True)), (v,))
        yield Case(f"any_{name}", lambda x: (x.any(), (x > 0).all(1), (x > 1).any((0, 2), keepdim=True)), (v,))
        yield Case(f"logsumexp_{name}", lambda x: (x.logsumexp(1), x.logsumexp((0, 2), keepdim=True)), (v,))
        yield Case(f"softmax_{name}", lambda x: (x.softmax(1), x.log_softmax(-1)), (v,))
    yield Case("argmax_ties", lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), (ints(4, 6, low=0, high=3),))
    yield Case("prod", lambda x: (x.prod(), x.prod(1), x.prod(0, keepdim=True)), (x,))
    yield Case(
        "var",
        lambda x: (x.var(), x.std(1), x.var((0, 2), correction=0, keepdim=True), x.var(1, correction=4)),
        (x,),
        1e-5,
    )
    yield Case("var_mean", lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 1), keepdim=True)), (x,), 1e-5)
    for order in (0, 1, 2, 3, INF, -INF):
        yield Case(
            f"norm_{order}",
            lambda x, p=order: (torch.linalg.vector_norm(x, p), torch.linalg.vector_norm(x, p, 1, True)),
            (x,),
        )
    yield Case("count_nonzero", lambda x: (aten.count_nonzero(x > 0), aten.count_nonzero(x.round(), [1])), (x,))
    yield Case(
        "zero_dim_reductions", lambda x: (x.sum(), x.amax(), x.argmax(), x.max(), x.softmax(0), x.mean()), (noise(),)
    )
    yield Case("empty_reductions", lambda x: (x.sum(1), x.mean(1), x.prod(1), x.any(1), x.var(1)), (noise(3, 0),))
    yield Case(
        "softmax_backward", lambda g, y: aten._softmax_backward_data(g, y, 1, torch.float32), (GRAD, X.softmax(1))
    )
    yield Case(
        "log_softmax_backward",
        lambda g, y: aten._log_softmax_backward_data(g, y, 1, torch.float32),
        (GRAD, X.log_softmax(1)),
    )
    yield Case("nansum", lambda x: (x.nansum(), x.nansum(1), x.nansum((0, 2), keepdim=True)), (bad,))
    yield Case("dist", lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), (X, GRAD))
    rows = X.clone()
    rows[1] = -INF
    yield Case("safe_softmax", lambda x: aten._safe_softmax(x, 1), (rows,))
    yield Case("cumsum", lambda x: (x.cumsum(1), x.cumprod(0), (x > 0).cumsum(-1)), (x,))


def norm_cases() -> Iterator[Case]:
    x, w, b = noise(2, 3, 6), noise(6, seed=1), noise(6, seed=2)
    yield Case("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), (x, w, b), 1e-5)
    yield Case("layer_norm_2d", lambda x: F.layer_norm(x, (3, 6)), (x,), 1e-5)
    yield Case("layer_norm_bias", lambda x, b: F.layer_norm(x, (6,), None, b), (x, b), 1e-5)
    yield Case("native_layer_norm", lambda x, w, b: aten.native_layer_norm(x, [6], w, b, 1e-5), (x, w, b), 1e-5)
    yield Case("rms_norm", lambda x, w: (F.rms_norm(x, (6,), w, 1e-6), F.rms_norm(x, (6,))), (x, w), 1e-5)
    yield Case("fused_rms_norm", lambda x, w: aten._fused_rms_norm(x, [6], w, 1e-5), (x, w), 1e-5)
    # Without eps: that of float32, which these squares are not far above.
    small = (noise(2, 3, 6) * 0.02).bfloat16(), noise(6, seed=1).bfloat16()
    yield Case("fused_rms_norm_bf16", lambda x, w: aten._fused_rms_norm(x, [6], w, None)[0], small, 1e-2)
    image, c = noise(2, 6, 3, 3), noise(6, seed=5).abs() + 0.5
    yield Case("group_norm", lambda x, w, b: (F.group_norm(x, 3, w, b), F.group_norm(x, 2)), (image, w, b), 1e-5)
    native = lambda x, w, b: aten.native_group_norm(x, w, b, 2, 6, 9, 3, 1e-5)  # noqa: E731
    yield Case("native_group_norm", native, (image, w, b), 1e-5, dynamic=False)
    yield Case("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (image, b, c, w, b), 1e-5)
    yield Case("batch_norm_plain", lambda x, m, v: F.batch_norm(x, m, v), (image, b, c), 1e-5)


def matmul_cases() -> Iterator[Case]:
    a, b = noise(2, 3, 4), noise(2, 4, 5, seed=1)
    bias = noise(5, seed=2)
    yield Case("mm", lambda a, b: a[0] @ b[0], (a, b))
    yield Case("bmm", torch.bmm, (a, b))
    yield Case(
        "addmm",
        lambda v, a, b: (torch.addmm(v, a[0], b[0]), torch.addmm(v, a[0], b[0], beta=0.5, alpha=2)),
        (bias, a, b),
    )
    yield Case("addmm_beta_0", lambda v, a, b: torch.addmm(v, a[0], b[0], beta=0), (bias * NAN, a, b))
    yield Case("baddbmm", lambda v, a, b: torch.baddbmm(v, a, b, beta=0.5), (bias, a, b))
    yield Case("linear", lambda a, w, v: (F.linear(a, w, v), F.linear(a[0, 0], w)), (a, noise(5, 4), bias))
    yield Case("matmul", lambda a, b: (a @ b, a @ b[0], a[:, None] @ b[0]), (a, b))
    yield Case("vectors", lambda a, b: (a[0, 0] @ a[0, 1], a[0] @ b[0, :, 0], a[0, 0] @ b[0]), (a, b))
    yield Case("addmv", lambda v, a, x: torch.addmv(v, a, x, alpha=2), (noise(3), a[0], noise(4)))
    yield Case("addbmm", lambda m, a, b: torch.addbmm(m, a, b, beta=2), (noise(3, 5), a, b))
    yield Case("addr", lambda m, x, y: torch.addr(m, x, y, beta=2), (noise(3, 4), noise(3, seed=1), noise(4, seed=2)))
    yield Case("outer", torch.outer, (noise(3), noise(4)))
    yield Case("mm_int", lambda a, b: a @ b, (ints(3, 4), ints(4, 5)))
    yield Case("mm_empty", lambda a, b: a @ b, (noise(3, 0), noise(0, 5)))
    q, k, v = noise(2, 4, 5, 8), noise(2, 4, 7, 8, seed=1), noise(2, 4, 7, 8, seed=2)
    sdpa = F.scaled_dot_product_attention
    yield Case("attention", lambda q, k, v: sdpa(q, k, v), (q, k, v), 1e-5, dynamic=False)
    yield Case("attention_scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v), 1e-5)
    yield Case(
        "attention_causal", lambda q, k: sdpa(q, k[:, :, :5], k[:, :, :5], is_causal=True), (q, k), 1e-5, dynamic=False
    )
    yield Case("attention_mask", lambda q, k, v, m: sdpa(q, k, v, m), (q, k, v, noise(5, 7)), 1e-5, dynamic=False)
    yield Case(
        "attention_bool", lambda q, k, v, m: sdpa(q, k, v, m), (q, k, v, noise(2, 1, 5, 7) > -1), 1e-5, dynamic=False
    )


def creation_cases() -> Iterator[Case]:
    yield Case(
        "full",
        lambda x: (torch.full((2, 3), 2.5) + 0, torch.full_like(x, 3), x.new_full((2,), 1), torch.ones_like(x) * x),
        (X,),
    )
    yield Case(
        "zeros",
        lambda x: (torch.zeros(2, 3), torch.zeros_like(x, dtype=torch.int32), x.new_zeros(4), torch.ones(3)),
        (X,),
    )
    yield Case(
        "arange",
        lambda x: (torch.arange(5), torch.arange(2, 9), torch.arange(1, 9, 3), torch.arange(0, 1, 0.1) + x[0, 0]),
        (X,),
    )
    yield Case("arange_down", lambda x: torch.arange(9, 1, -2) + x[0, 0], (X,))
    yield Case("eye", lambda x: (torch.eye(3), torch.eye(3, 5), torch.scalar_tensor(2.5)), (X,))
    yield Case("linspace", lambda x: torch.linspace(-1, 2, 7) * x[0, 0], (X,))
    yield Case("dropout_eval", lambda x: F.dropout(x, 0.5, training=False) + 1, (X,))
    yield Case("sizes", lambda x: (x / x.shape[0], x * x.shape[1], torch.full((x.shape[1],), x.shape[0])), (X,))


def all_cases() -> list[Case]:
    """Every case, in a fixed order."""
    makers = (
        elementwise_cases,
        integer_cases,
        quantization_cases,
        dtype_cases,
        reduction_cases,
        norm_cases,
        matmul_cases,
        creation_cases,
    )
    return [case for make in makers for case in make()]
