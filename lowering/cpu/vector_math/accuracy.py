# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The stated accuracy of the vector math, and how it is measured.

``python -m kiln.lowering.cpu.vector_math.accuracy`` measures everything and rewrites the table in
docs/vector-math.md; test/lowering/cpu/test_vector_math.py asserts the bounds.

An error in ULP is |result - exact| / (spacing of the type at the exact result), so 0.5 is correct rounding.
References: f32 against numpy in float64; f64 against numpy in 80-bit long double, erf and erfc against mpmath.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np

from kiln.functions import Fn
from kiln.lowering.cpu.vector_math.evaluate import compile_op

__all__ = ["BOUNDS", "Measurement", "measure", "render_table", "update"]


class Bound(NamedTuple):
    """Maximum error in ULP, for f32 and f64."""

    f32: float
    f64: float


BOUNDS: dict[str, Bound] = {
    "exp": Bound(1.0, 1.0),
    "exp2": Bound(1.5, 1.5),
    "expm1": Bound(2.0, 2.5),
    "sinh": Bound(2.0, 2.0),
    "cosh": Bound(1.5, 1.5),
    "tanh": Bound(2.5, 3.0),
    "log": Bound(1.0, 1.0),
    "log2": Bound(1.5, 1.5),
    "log10": Bound(1.5, 1.5),
    "log1p": Bound(2.0, 2.0),
    "asinh": Bound(2.0, 2.0),
    "acosh": Bound(2.5, 2.0),
    "atanh": Bound(2.0, 2.0),
    "sin": Bound(2.0, 2.5),
    "cos": Bound(2.0, 2.5),
    "tan": Bound(3.0, 4.0),
    "asin": Bound(2.5, 2.5),
    "acos": Bound(1.5, 1.5),
    "atan": Bound(2.5, 2.5),
    "atan2": Bound(2.5, 2.5),
    "erf": Bound(3.0, 2.5),
    "erfc": Bound(4.0, 4.0),
    "powf": Bound(0.51, 1.5),
    "rsqrt": Bound(1.5, 1.5),
    "cbrt": Bound(1.0, 1.0),
    "remf": Bound(0.0, 0.0),
}

_BINARY = ("atan2", "powf", "remf")
_DTYPE = {"f32": np.float32, "f64": np.float64}
# 80-bit on x86; where long double is double the f64 bounds cannot be checked.
_WIDE = {"f32": np.float64, "f64": np.longdouble}
_SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 0.25, 1e-45, 5e-324, 1e-38, 1e-308, 3e38, 1.7e308, np.inf, np.nan, 16777217.0]


def _vectorised(f: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """mpmath's ``f`` on an array, to long double."""

    def call(x: np.ndarray) -> np.ndarray:
        with mpmath.workdps(40):
            values = [f(mpmath.mpf(float(v))) for v in x]
            result = np.array([np.longdouble(mpmath.nstr(v, 25)) for v in values])
            return np.where(result == 0, np.copysign(result, x), result)  # mpmath has no -0

    return call


def _torch(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """torch's float64 function: 1e-16, enough for f32."""

    def call(x: np.ndarray) -> np.ndarray:
        import torch

        return getattr(torch, name)(torch.from_numpy(x)).numpy()

    return call


_REFERENCE: dict[str, Fn[np.ndarray, np.ndarray]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt")},
    **{name: getattr(np, name.replace("a", "arc", 1)) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2": np.arctan2,
    "powf": np.power,
    "remf": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def _reference(name: str, element: str) -> Fn[np.ndarray, np.ndarray]:
    if name in ("erf", "erfc"):
        return _torch(name) if element == "f32" else _vectorised(getattr(mpmath, name))
    return _REFERENCE[name]


def samples(name: str, element: str) -> list[np.ndarray]:
    """Deterministic operands: all exponents of both signs, dense where functions bend, and special values."""
    dtype, rng = _DTYPE[element], np.random.default_rng(20)
    bits = 32 if element == "f32" else 64
    count = (1 << 20) if element == "f32" else (4096 if name in ("erf", "erfc") else 100_000)
    unsigned = np.uint32 if bits == 32 else np.uint64

    def everywhere(n: int) -> np.ndarray:
        return rng.integers(0, 1 << bits, n, dtype=np.uint64).astype(unsigned).view(dtype)

    def near(n: int) -> np.ndarray:
        parts = [rng.normal(0, 3, n // 4), rng.uniform(-1.01, 1.01, n // 4), rng.uniform(-110, 110, n // 4)]
        return np.concatenate([*parts, rng.uniform(-720, 720, n // 8), 2.0 ** rng.uniform(-30, 17, n // 8)])

    special = np.array([s * v for v in _SPECIAL for s in (1, -1)])
    with np.errstate(over="ignore"):
        if name not in _BINARY:
            x = near(count)
            if name in ("erf", "erfc") and element == "f64":
                x = np.clip(x, -30, 30)  # mpmath takes long beyond, where the results are 0, 1 and 2
                return [_padded(np.concatenate([x, special[np.abs(special) < 30]]).astype(dtype))]
            return [_padded(np.concatenate([x.astype(dtype), everywhere(count), special.astype(dtype)]))]
        first, second = (v.ravel() for v in np.meshgrid(special, special))
        integers = np.where(rng.random(count) < 0.3, rng.integers(-20, 20, count), rng.normal(0, 5, count))
        x = np.concatenate([first.astype(dtype), near(count)[:count].astype(dtype), everywhere(count)])
        y = np.concatenate(
            [second.astype(dtype), integers[: x.size - first.size - count].astype(dtype), everywhere(count)]
        )
        return [_padded(x), _padded(y)]


def _padded(x: np.ndarray) -> np.ndarray:
    """Lengthened by ones to a multiple of 16."""
    return np.concatenate([x, np.ones(-x.size % 16, x.dtype)])


class Measurement(NamedTuple):
    """Maximum error in ULP, the operands where it occurs, and operands with a wrong special value or sign."""

    ulp: float
    where: tuple[float, ...]
    wrong: list[tuple[float, ...]]


def measure(name: str, element: str, width: int) -> Measurement:
    """Compile ``name`` for ``width`` lanes (0: scalar), run it on :func:`samples`, and compare."""
    operands = samples(name, element)
    op = "arith.remf" if name == "remf" else f"math.{name}"
    got = compile_op(op, [element] * len(operands), element, width)(*operands)
    with np.errstate(all="ignore"):
        exact = _reference(name, element)(*(x.astype(_WIDE[element]) for x in operands))
        rounded = exact.astype(_DTYPE[element])
        finite = np.isfinite(got) & np.isfinite(rounded)
        spacing = np.abs(np.spacing(np.where(finite, rounded, 1))).astype(_WIDE[element])
        ulp = np.where(finite, np.abs(got.astype(_WIDE[element]) - exact) / spacing, 0).astype(np.float64)
        same = np.where(finite, True, (got == rounded) | (np.isnan(got) & np.isnan(rounded)))
        same &= np.isnan(rounded) | (np.signbit(got) == np.signbit(rounded))
    worst = int(ulp.argmax())
    wrong = [tuple(float(x[i]) for x in operands) for i in np.nonzero(~same)[0][:10]]
    return Measurement(float(ulp[worst]), tuple(float(x[worst]) for x in operands), wrong)


def render_table(widths: tuple[int, int] = (8, 4)) -> str:
    """The Markdown table of bounds and measured errors (``widths``: lanes for f32 and f64)."""
    lines = ["| op | f32 bound | f32 measured | f64 bound | f64 measured |", "|---|---|---|---|---|"]
    for name, bound in BOUNDS.items():
        f32, f64 = (measure(name, element, w).ulp for element, w in zip(("f32", "f64"), widths, strict=True))
        lines.append(f"| `{name}` | {bound.f32:g} | {f32:.2f} | {bound.f64:g} | {f64:.2f} |")
    return "\n".join(lines)


BEGIN, END = "<!-- accuracy table: begin -->", "<!-- accuracy table: end -->"


def update(document: Path) -> None:
    """Replaces the table between the markers of ``document``."""
    head, _, rest = document.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    document.write_text(f"{head}{BEGIN}\n{render_table()}\n{END}{tail}")


if __name__ == "__main__":
    update(Path("docs") / "vector-math.md")
