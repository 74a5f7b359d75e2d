# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How long a product takes in a kernel of Kiln's own and as a library's call: the model behind `choice.py`.

Both are a roofline: what a kernel takes besides its loop, and the longest of multiplying, of moving operands and
result, and (the library, whose tiles are not known) of as many steps as a sum has terms. Kiln's tiles come in whole
rounds over the multiprocessors (`schedule.tile_time`); the library has finer ones. What follows a product is part of
Kiln's kernel, and a kernel behind the library's. The machine's file has the rates, the `[model]` of
choices/matmul.toml the ratios.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kiln.lowering.gpu.dot.machine import Machine
from kiln.lowering.gpu.dot.schedule import BYTES, ProductShape, best_tile, tile_time

__all__ = ["Traits", "library_time", "own_time"]

_GRAIN, _LINE = 8, 64
"""Elements of 16 bits in 16 bytes, which hardware moves at once, and in 128."""


@dataclass(frozen=True)
class Traits:
    """What times depend on besides the sizes. grain, result_grain: the powers of two that divide the distances between
    rows of the operands and of the result, in elements. passes: whether a kernel behind a call reads and writes the
    result.
    """

    grain: int
    result_grain: int
    passes: bool


def own_time(shape: ProductShape, traits: Traits, chip: Machine, model: Mapping[str, float]) -> float:
    """Nanoseconds in a kernel of Kiln's own, with what follows."""
    tiles = model["tile_time"] * tile_time(shape, chip, best_tile(shape, chip))
    if _is_wide(shape):
        return chip.kernel_time + model["wide_own"] * tiles
    return chip.kernel_time + max(tiles * _slower(traits, model, "own"), _moved(shape, chip, model))


def library_time(shape: ProductShape, traits: Traits, chip: Machine, model: Mapping[str, float]) -> float:
    """Nanoseconds as a call of cuBLAS, and of a kernel behind it for what follows."""
    m, n, k = _sizes(shape)
    if _is_wide(shape):
        time = model["wide_library"] * tile_time(shape, chip, best_tile(shape, chip))
    else:
        multiplying = m * n * k / (chip.rate_of(shape.dtype) * chip.sms * model["library_rate"])
        time = max(multiplying, _moved(shape, chip, model), k * chip.term_time) * _slower(traits, model, "library")
        time *= model["result_anywhere_library"] if traits.result_grain % _GRAIN else 1.0
    moved = 2 * m * n * BYTES[shape.dtype]
    behind = chip.second_kernel_time + moved / (chip.memory_rate * model["pass_rate"]) if traits.passes else 0.0
    return chip.library_time + time + behind


def _slower(traits: Traits, model: Mapping[str, float], way: str) -> float:
    return model[f"no_lines_{way}"] if traits.grain % _LINE else 1.0


def _moved(shape: ProductShape, chip: Machine, model: Mapping[str, float]) -> float:
    m, n, k = _sizes(shape)
    return BYTES[shape.dtype] * (m * k + k * n + m * n) / (chip.memory_rate * model["read_rate"])


def _sizes(shape: ProductShape) -> tuple[int, int, int]:
    assert shape.m is not None and shape.n is not None and shape.k is not None, "known sizes"
    return shape.m, shape.n, shape.k


def _is_wide(shape: ProductShape) -> bool:
    return shape.dtype in ("f32", "f64")
