# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention: over separate tensors, and over heads of one value's rows, with all kinds of masks."""

from math import prod

import torch

from benchmarks.fuzz.families.sizes import FLOATS, HEAD_SIZES, HEADS, INSIDE, TOKENS
from benchmarks.fuzz.growing import Grower, Value


def attend(g: Grower) -> None:
    """Queries, keys and values of their own: grouped heads, head sizes, lengths, a scale, an epilogue."""
    dtype, batch, heads, depth = g.one_of(FLOATS), g.one_of((1, 1, 2, 4)), g.one_of(HEADS), g.one_of(HEAD_SIZES)
    limit = min(g.budget.work / (2 * batch * heads * depth), g.budget.elements / (batch * heads))
    queries = g.at_most(TOKENS, limit**0.5 if g.chance(2) else limit)
    keys = queries if g.chance(2) else g.at_most(TOKENS, limit / queries)
    if not g.spend(2 * batch * heads * depth * queries * keys):
        return
    shared = g.one_of([h for h in (1, 2, 4, heads, heads) if heads % h == 0])
    turned = g.chance(2)  # [batch, tokens, heads, depth] in memory

    more = INSIDE if g.chance(6) else 0  # heads that are parts of wider ones

    def rows(heads: int, count: int) -> str:
        x = g.input((batch, count, heads, depth + more) if turned else (batch, heads, count, depth + more), dtype)
        part = f"{x.name}[..., {more // 2}:{more // 2 + depth}]" if more else x.name
        return f"{part}.transpose(1, 2)" if turned else part

    names = [rows(heads, queries), rows(shared, keys), rows(shared, keys)]
    if g.chance(16):
        names[2] = names[1]
    has_infinities = not g.for_gpu and g.chance(12)  # queries whose scores all are minus infinity, by no mask
    if has_infinities:
        removed = g.input((batch, 1, queries, 1), torch.bool).name
        names[:2] = f"torch.where({removed}, -inf, {names[0]}.abs())", f"({names[1]}.abs() + 0.1)"
    extra = ", enable_gqa=True" if shared != heads else ""
    extra += masked(g, names[0], batch, heads, queries, keys, dtype)
    scale = g.one_of(("", "", ", scale=0.5", ", scale=-0.1"))
    # PyTorch's kernel for the CPU fills with minus infinity before it scales: NaN with a negative scale.
    extra += scale.replace("-", "") if "is_causal" in extra or has_infinities else scale
    made = g.add(f"F.scaled_dot_product_attention({', '.join(names)}{extra})")
    if made is None:  # eager's attention on a GPU does not take operands that begin anywhere
        q, k, v = names
        made = g.add(f"torch.softmax(({q} @ {k}.transpose(-1, -2)) * {depth**-0.5!r}, -1) @ {v}")
    if made is not None and g.number(0, 2):
        behind(g, made)


def masked(g: Grower, query: str, batch: int, heads: int, queries: int, keys: int, dtype: torch.dtype) -> str:
    """Arguments for a mask: causal, of both types, with rows that it removes whole, of every broadcast shape, computed
    from constants.
    """
    kind = g.number(0, 5)
    shapes = ((queries, keys), (batch, 1, queries, keys), (batch, heads, queries, keys), (batch, 1, 1, keys), (1, keys))
    if kind <= 1:
        return ", is_causal=True" if queries == keys or kind else ""
    if kind == 2:
        # PyTorch's kernels for CUDA leave small gradients, in place of 0, where a query has no key.
        g.is_for_inference = g.for_gpu
        return f", attn_mask={g.input(g.one_of(shapes), torch.bool).name}"
    if kind == 3:
        return f", attn_mask={g.input(g.one_of(shapes), dtype).name}"
    if kind == 4:
        rows, columns = f"torch.arange({queries})[:, None]", f"torch.arange({keys})"
        constant = (
            f"({columns} <= {rows})",
            f"({rows} >= 0).expand({batch}, 1, -1, {keys})",
            f"({columns} != {rows} + 1)",
        )
        return f", attn_mask={constant[(heads + queries) % 3]}.to({query}.device)"
    return ""


def behind(g: Grower, v: Value) -> None:
    """Heads next to each other, a gate, a product."""
    batch, heads, queries, depth = v.shape
    kind = g.number(0, 3)
    if kind == 0:
        g.add(f"{v.name} * torch.sigmoid({g.input(v.shape, v.dtype).name})")
        return
    flat = g.add(f"{v.name}.transpose(1, 2).reshape({batch}, {queries}, {heads * depth})")
    if flat is None or kind == 1 or not g.spend(prod(flat.shape) * heads * depth):
        return
    w = g.weight((heads * depth, heads * depth), v.dtype, heads * depth)
    g.add(f"F.linear({flat.name}, {w.name})")


def heads_of_rows(g: Grower) -> None:
    """Self-attention of a value [batch, tokens, width], written out or not; window attention with a bias."""
    v = g.pick(lambda v: v.is_float and v.rank == 3 and v.shape[-1] % 8 == 0 and v.tensor.numel() > 0)
    if v is None:
        return
    batch, tokens, width = v.shape
    heads = g.one_of([h for h in HEADS if width % (8 * h) == 0] or [1])
    work = batch * tokens * width * (3 * width + 2 * tokens)
    if batch * heads * tokens * tokens > g.budget.elements or not g.spend(work):
        return
    w = g.weight((3 * width, width), v.dtype, width)
    split = f"view({batch}, {tokens}, 3, {heads}, {width // heads}).permute(2, 0, 3, 1, 4)"
    qkv = g.add(f"F.linear({v.name}, {w.name}).{split}")
    if qkv is None:
        return
    if g.chance(3):
        g.add(f"F.scaled_dot_product_attention({qkv.name}[0], {qkv.name}[1], {qkv.name}[2])")
        return
    bias, windows = "", g.one_of([n for n in (1, 2, 4) if batch % n == 0])
    if g.number(0, 3):
        bias = f" + {g.input((heads, tokens, tokens), v.dtype).name}"
    scores = f"({qkv.name}[0] @ {qkv.name}[1].transpose(-2, -1)) * {(width // heads) ** -0.5!r}"
    text = f"{scores}{bias}"
    if g.chance(3):  # of shifted windows
        mask = g.input((windows, tokens, tokens), torch.bool)
        parts = f"view({batch // windows}, {windows}, {heads}, {tokens}, {tokens})"
        text = f"({text}).{parts}.masked_fill({mask.name}[:, None], -100.0).view({batch}, {heads}, {tokens}, {tokens})"
    weights = g.add(f"torch.softmax({text}, -1)")
    if weights is not None:
        g.add(f"({weights.name} @ {qkv.name}[2]).transpose(1, 2).reshape({batch}, {tokens}, {width})")
