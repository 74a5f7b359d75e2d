# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is printed of the rows, and the counts that stand in the table of runs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.gpu.breadth.row import STATUSES, Row

__all__ = ["counts", "line", "summary"]


def line(row: Row) -> str:
    """One row, as it is printed when it comes."""
    figures = ""
    if "error" in row:
        figures = f" {row['error']:.1e} (eager {row['eager_error']:.1e}) {row['share']:.2f} of the limit"
    reason = f": {row['reason']}" if row.get("reason") else ""
    where = f" [{row['where']}]" if row.get("reason") and row.get("where") else ""
    return f"{row['status']:8} {row['job']:48} {row['seconds']:5.1f} s{figures}{reason[:400]}{where}"


def counts(rows: Iterable[Row]) -> dict[str, int]:
    """Rows by status, architectures, and what else the table of runs shows."""
    rows = list(rows)
    by_status = Counter(row["status"] for row in rows)
    ran = [row for row in rows if row["status"] != "not run"]
    return {
        "architectures": len({row["entry"] for row in ran}),
        "jobs": len(ran),
        **{status.replace(" ", "_"): by_status[status] for status in STATUSES},
        "fallback_graphs": sum(len(row.get("fallbacks", [])) for row in ran),
        "recompiles": sum(row.get("recompiles", 0) for row in ran),
        "graph_breaks": sum(row.get("breaks", 0) for row in ran),
        "kernels": sum(row.get("kernels", 0) for row in ran),
        "aten_calls": sum(sum(row.get("aten", {}).values()) for row in ran),
    }


def summary(rows: Sequence[Row], characters: int = 11000) -> str:
    """Counts by family, then every row that is not right, cut to `characters`: what is wrong comes last."""
    lines = ["", "family: " + ", ".join(STATUSES)]
    for family in sorted({row["family"] for row in rows}):
        found = Counter(row["status"] for row in rows if row["family"] == family)
        lines.append(f"  {family:24}" + "".join(f"{found[status]:9}" for status in STATUSES))
    total = counts(rows)
    lines.append("; ".join(f"{name.replace('_', ' ')} {number}" for name, number in total.items()))
    lines += _shares(rows) + _fallbacks(rows) + _calls(rows)
    tail = []
    for status in ("not run", "hung", "failed", "crashed", "wrong"):
        chosen = [row for row in rows if row["status"] == status]
        width = 160 if status == "not run" else 420
        tail += [line(row)[:width] for row in sorted(chosen, key=lambda row: row["job"])]
    room = max(0, characters - sum(len(text) + 1 for text in lines))
    kept: list[str] = []
    for text in reversed(tail):
        room -= len(text) + 1
        if room < 0:
            kept.append(f"({len(tail) - len(kept)} more rows)")
            break
        kept.append(text)
    return "\n".join([*lines, *reversed(kept)])


def _shares(rows: Sequence[Row]) -> list[str]:
    found = []
    for dtype in ("bf16", "f16", "f32"):
        ratios = [
            row["error"] / row["eager_error"]
            for row in rows
            if row["dtype"] == dtype and row["status"] == "right" and row["error"] > 0 and row["eager_error"] > 0
        ]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            found.append(f"{dtype}: error over eager's {mean:.2f} in the mean, at most {max(ratios):.2f}")
    return found


def _fallbacks(rows: Sequence[Row]) -> list[str]:
    reasons = Counter(reason[:150] for row in rows for reason in row.get("fallbacks", []))
    return [f"fell back {times} times: {reason}" for reason, times in reasons.most_common(12)]


def _calls(rows: Sequence[Row]) -> list[str]:
    calls: Counter[str] = Counter()
    for row in rows:
        calls.update(row.get("aten", {}))
    return ["ATen calls: " + ", ".join(f"{times} {op}" for op, times in calls.most_common(16))] if calls else []
