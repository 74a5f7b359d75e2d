# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers in a module's text: the sizes of tensors, and all that agrees with them.

A size stands in types, index maps, lists and calls; a module in which one of them changed alone does not verify. So a
size is exchanged for a smaller one, with its multiples, wherever an integer stands.
"""

import re
from collections.abc import Callable, Iterator

__all__ = ["simpler_numbers", "smaller", "tensor_sizes"]

# In the order in which they are looked for: floats and names stay as they are.
_TOKEN = re.compile(
    r"""(?P<keep>[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|0x[0-9A-Fa-f]+|[%@#^!"]?[A-Za-z_][\w.$-]*|%\d+(?:\#\d+)?|\#\d+)"""
    r"""|(?P<shape>(?:(?:\d+|\?)x)+(?=[A-Za-z!*]))|(?P<number>\d+)"""
)
_SHAPE = re.compile(r"(?:tensor|memref|vector)<((?:(?:\d+|\?)x)+)")
_TORCH_SHAPE = re.compile(r"vtensor<\[([\d,?]+)\]")
_FLOAT = re.compile(r"(arith\.constant |torch\.constant\.float )([-+]?\d+\.\d*(?:[eE][-+]?\d+)?)")


def tensor_sizes(text: str) -> list[int]:
    """Sizes in types, the largest first; those of one element aside."""
    shapes = [*_SHAPE.findall(text), *_TORCH_SHAPE.findall(text)]
    numbers = {int(n) for shape in shapes for n in re.findall(r"\d+", shape)}
    return sorted((n for n in numbers if n > 1), reverse=True)


def smaller(text: str, size: int) -> Iterator[str]:
    """The text with this size made smaller, the most promising first: very small, or halved.

    A kernel's mistake often shows from some size on only, a tile's or a block's: halves find it in few steps, and one
    more than a half keeps what ends inside of a tile.
    """
    for new in dict.fromkeys((1, 2, 3, size // 8, size // 4, size // 2, size // 2 + 1, size * 3 // 4)):
        if 0 < new < size:
            yield _renumbered(text, _scaled(size, new))
            yield _renumbered(text, _exchanged(size, new))


def simpler_numbers(text: str) -> Iterator[str]:
    """The text with one floating point constant made 1."""
    for found in _FLOAT.finditer(text):
        if float(found[2]) not in (0.0, 1.0):
            yield f"{text[: found.start(2)]}1.000000e+00{text[found.end(2) :]}"


def _scaled(size: int, new: int) -> Callable[[int], int]:
    return lambda n: n // size * new if n and n % size == 0 else n


def _exchanged(size: int, new: int) -> Callable[[int], int]:
    return lambda n: new if n == size else n


def _renumbered(text: str, change: Callable[[int], int]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["keep"] is not None:
            return found[0]
        return re.sub(r"\d+", lambda n: str(change(int(n[0]))), found[0])

    return _TOKEN.sub(replace, text)
