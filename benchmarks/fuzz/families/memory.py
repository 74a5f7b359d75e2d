# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where elements lie in memory, by ops that count them there and by calls that read copies."""

import torch

from benchmarks.fuzz.families.movement import rows
from benchmarks.fuzz.growing import Grower, Value


def in_memory(g: Grower) -> None:
    """Elements of a computed tensor by their places in memory: all in another shape, all written, or some of them."""
    v = g.pick(lambda v: rows(v) and not v.is_bool)
    if v is None:
        return
    made = g.add(f"{v.name}.abs().contiguous()", v.exact)
    if made is None:
        return
    shape = g.one_of(((v.tensor.numel(),), (1, v.tensor.numel()), (v.tensor.numel() // v.shape[-1], v.shape[-1])))
    strides = tuple(torch.empty(shape, device="meta").stride())
    few = max(1, shape[-1] // 2)
    options = [
        f"torch.as_strided({made.name}, {shape}, {strides})",
        f"torch.as_strided({made.name}, {(*shape[:-1], few)}, {strides})",
        f"torch.as_strided_scatter({made.name}, {g.input(shape, v.dtype).name}, {shape}, {strides})",
        f"torch.as_strided_scatter({made.name}, {g.input((few,), v.dtype).name}, ({few},), (2,))",
    ]
    g.add(g.one_of(options), v.exact)
    g.keep(made)


def read_copies(g: Grower) -> None:
    """What calls of ATen read by themselves: a copy, which may have stayed a view."""
    v = g.pick(lambda v: rows(v) and v.dtype in (torch.float32, torch.float64, torch.int64, torch.int32))
    if v is None:
        return
    if v.is_float and min(v.shape[-2:]) >= 3 and g.chance(3):
        corner = f"{v.name}[..., :3, :3]"
        # Far from singular: sizes below 1 beside 4 on the diagonal.
        made = g.add(f"{corner} / (1 + {corner}.abs()) + torch.diag_embed(torch.full_like({v.name}[..., :3, 0], 4))")
        if made is not None:
            g.add(f"torch.linalg.slogdet({made.name}.transpose(-1, -2).contiguous()).logabsdet")
        return
    start = g.one_of((0, 0, 1))
    copy = g.one_of(
        ("{}.transpose(-1, -2).contiguous()", f"{{}}.flatten()[{start}:].clone()", "{}.movedim(0, -1).contiguous()")
    )
    made = g.add(copy.format(v.name), v.exact)
    if made is not None:
        options = _readers(g, made) if v.is_float else _bits(made)
        if options:
            g.add(g.one_of(options), v.exact and not v.is_float)


def _bits(v: Value) -> list[str]:
    """Integers as those of another size."""
    if v.dtype == torch.int32:
        return [f"{v.name}.view(torch.int16)"] + [f"{v.name}.view(torch.int64)"] * (v.shape[-1] % 2 == 0)
    return [f"{v.name}.view(torch.int32)"]


def _readers(g: Grower, v: Value) -> list[str]:
    pairs = v.tensor.numel() // 2
    options = [f"torch.view_as_real(torch.view_as_complex({v.name}.flatten()[:{2 * pairs}].view({pairs}, 2)) * 2j)"]
    if v.shape[-1] == 2:
        options = [f"torch.view_as_real(torch.view_as_complex({v.name}) * 2j)"]
    if v.rank == 2 and v.tensor.numel():
        index = g.input((g.one_of((3, 40)),), torch.int64, high=v.shape[0])
        offsets = g.input((1,), torch.int64, high=1)
        mode = g.one_of(("sum", "mean", "max"))
        options.append(f'F.embedding_bag({index.name}, {v.name}, {offsets.name}, mode="{mode}")')
    return options
