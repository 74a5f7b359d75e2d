# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The functions whose conversions are checked for their numbers: every rule, with the values that go wrong first."""

from collections.abc import Iterator

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401 - registers quantized_decomposed
from case_tensors import DTYPES, GRAD, I8, I64, INF, NAN, POSITIVE, X, ints, noise
from elementwise_cases import elementwise_cases, integer_cases
from harness import Case

aten = torch.ops.aten
F = torch.nn.functional


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
    native = lambda x, w, b: aten.native_group_norm(x, w, b, 2, 6, 9, 3, 1e-5)
    yield Case("native_group_norm", native, (image, w, b), 1e-5, dynamic=False)
    yield Case("batch_norm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (image, b, c, w, b), 1e-5)
    short = image.bfloat16()  # with parameters in float32
    yield Case("batch_norm_mixed", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (short, b, c, w, b), 1e-2)
    yield Case("batch_norm_mixed_plain", lambda x, m, v: F.batch_norm(x, m, v), (short, b, c), 1e-2)
    yield Case("group_norm_mixed", lambda x, w, b: F.group_norm(x, 3, w, b), (short, w, b), 1e-2)
    yield Case("fused_rms_norm_mixed", lambda x, w: aten._fused_rms_norm(x, [6], w, 1e-5)[0], (x.bfloat16(), w), 1e-2)
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
