# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is printed of the rows: a line each as it comes, the summary, and Markdown for docs/performance.md."""

import statistics
from collections.abc import Iterable, Sequence

from benchmarks.gpu.row import Row

__all__ = ["header", "line", "markdown", "summary"]

OTHERS = ("eager", "inductor", "max-autotune")


def header(contenders: Sequence[str]) -> str:
    cells = [
        f"{'us per call':34}",
        *(f"{c:>10.10}" for c in contenders),
        *(f"{'/' + c[:5]:>6}" for c in contenders if c != "kiln"),
    ]
    cells += [f"{'err eag':>8}", f"{'err kiln':>8}", *(f"{'cpu ' + c[:4]:>8}" for c in contenders)]
    return " ".join([*cells, *(f"{'s ' + c[:4]:>6}" for c in contenders)])


def line(row: Row, contenders: Sequence[str]) -> str:
    us = _times(row)
    cells = [f"{row['case']:34}"]
    cells += [f"{us[c]:10.2f}" if c in us else f"{'-':>10}" for c in contenders]
    cells += [
        f"{us[c] / us['kiln']:6.2f}" if c in us and "kiln" in us else f"{'-':>6}" for c in contenders if c != "kiln"
    ]
    cells += [f"{row['error'][c]:8.1e}" if c in row["error"] else f"{'-':>8}" for c in ("eager", "kiln")]
    cells += [f"{row['cpu_us'][c]:8.0f}" if c in row["cpu_us"] else f"{'-':>8}" for c in contenders]
    cells += [f"{row['first_s'][c]:6.1f}" if c in row["first_s"] else f"{'-':>6}" for c in contenders]
    rate = [f"{row[k]:.0f} {k}" if k == "TFLOP/s" else f"{row[k]:.2f} {k}" for k in ("TFLOP/s", "TB/s") if k in row]
    return " ".join([*cells, *rate])


def summary(rows: Sequence[Row]) -> list[str]:
    """Geometric means of how much faster Kiln is than others, and of the shares of its calls and first calls.

    "As called" is what models are judged by, "on the GPU" the replays of CUDA graphs.
    """
    found = []
    for name, is_model in (("single operations", False), ("models", True)):
        group = [row for row in rows if row["is_model"] == is_model]
        for key, how in (("wall_us", "as called"), ("us", "on the GPU")):
            over = [_ratio(row, key, ("inductor",)) for row in group]
            best = [_ratio(row, key, OTHERS) for row in group]
            tuned = [_ratio(row, key, ("kiln-max-autotune",)) for row in group]
            found += _mean(f"{name}, {how}: Inductor / Kiln", over)
            found += _mean(f"{name}, {how}: best of {', '.join(OTHERS)} / Kiln", best)
            found += _mean(f"{name}, {how}: tuned Kiln / Kiln", tuned)
    models = [row for row in rows if row["is_model"]]
    for key, title in (("cpu_us", "CPU time of a call"), ("first_s", "first call")):
        shares = [row[key]["kiln"] / row[key]["inductor"] for row in models if {"kiln", "inductor"} <= row[key].keys()]
        if shares:
            mean = statistics.geometric_mean(shares)
            found.append(f"models, {title}: Kiln / Inductor {mean:.2f}, largest {max(shares):.2f} ({len(shares)} rows)")
    return found


def markdown(rows: Sequence[Row], contenders: Sequence[str]) -> str:
    """A table of the models; times as called in ms, on the GPU alone in brackets, first calls in s."""
    names = [c for c in contenders if any(c in row["wall_us"] for row in rows)]
    heads = ["case", *names, "Inductor / Kiln", "best of others / Kiln", "CPU of a call", "first call", "error"]
    lines = [_row(heads), _row("---" for _ in heads)]
    for row in rows:
        cells = [row["case"]]
        for name in names:
            wall, alone = row["wall_us"].get(name), row["us"].get(name)
            cells.append("-" if wall is None else _ms(wall) + (f" ({_ms(alone)})" if alone is not None else ""))
        cells += [_two(_ratio(row, "wall_us", ("inductor",))), _two(_ratio(row, "wall_us", OTHERS))]
        cells.append(_share(row, "cpu_us", 1e-3))
        cells.append(_share(row, "first_s", 1.0))
        errors = row["error"]
        cells.append(f"{errors['kiln'] / errors['eager']:.2f}" if {"kiln", "eager"} <= errors.keys() else "-")
        lines.append(_row(cells))
    return "\n".join(lines)


def _times(row: Row) -> dict[str, float]:
    """Contender -> microseconds per call: what the table compares."""
    return row["wall_us"] if row["is_model"] else row["us"]


def _ratio(row: Row, key: str, others: Sequence[str]) -> float | None:
    """The fastest of `others` over Kiln."""
    times = [row[key][c] for c in others if c in row[key]]
    return min(times) / row[key]["kiln"] if times and "kiln" in row[key] else None


def _mean(title: str, ratios: Iterable[float | None]) -> list[str]:
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return []
    return [f"{title} {statistics.geometric_mean(known):.2f}, least {min(known):.2f} ({len(known)} rows)"]


def _share(row: Row, key: str, unit: float) -> str:
    """Inductor's figure, Kiln's, and Kiln's over Inductor's."""
    if not {"kiln", "inductor"} <= row[key].keys():
        return "-"
    theirs, ours = row[key]["inductor"], row[key]["kiln"]
    return f"{theirs * unit:.3g}, {ours * unit:.3g}: {ours / theirs:.2f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g}" if us < 10e3 else f"{us / 1e3:.2f}"


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
