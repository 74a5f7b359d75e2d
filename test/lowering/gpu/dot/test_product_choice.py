# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Choices between Kiln's products and cuBLAS's: judged by the times that were measured of both."""

import json
from math import exp, log
from pathlib import Path

import pytest
from torch_mlir import ir

from benchmarks.gpu.products import Case, program
from kiln.dialects import kiln
from kiln.dialects.context import create_context
from kiln.errors import KilnError
from kiln.lowering.gpu.dot.choice import TABLE, ProductCase, product_reason
from kiln.lowering.gpu.dot.measured import FOLDER, read_table

RESULTS = Path(__file__).resolve().parents[4] / "benchmarks" / "results" / "performance" / "h200-products.json"
CONTEXT = create_context()
ROWS = json.loads(RESULTS.read_text())["rows"]


def reason(case: Case) -> str | None:
    with CONTEXT, ir.Location.unknown(CONTEXT):
        module = kiln.parse(program(case))
        block = module.body.operations[0].regions[0].blocks[0]
        op = next(op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul")
        return product_reason(op, case.tensor_maps, "sm_90")


def regret(row: dict) -> float:
    """Of what is chosen: its time over that of the faster way."""
    times = row["times"]
    case = Case(**{name: row[name] for name in ("m", "n", "k", "dtype", "behind", "tensor_maps")})
    own = times.get("parts", times["own"])  # split-products splits what stays
    return (own if reason(case) is None else times["library"]) / min(times.values())


def test_choices_cost_little_over_the_better_of_both() -> None:
    """Of two ways that were both timed. Always the one costs 1.3 in the mean, always the other 1.1."""
    found = [(regret(row), i) for i, row in enumerate(ROWS)]
    mean = exp(sum(log(r) for r, _ in found) / len(found))
    worst, which = max(found)
    assert len(found) > 600
    assert mean < 1.015, mean
    assert worst < 1.65, (worst, ROWS[which])
    assert sum(r > 1.1 for r, _ in found) < 36, sorted(found)[-45:]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('winner = "own"', 'winner = "mine"', "winner must be 'own' or 'library', found 'mine'"),
        ("rows = { most = 16 }", "row = { most = 16 }", "'row' is none of dtype, kind"),
        ("rows = { most = 16 }", "rows = { max = 16 }", "rows must have 'least' or 'most'"),
        ('origin = "sweep"', 'origin = "somewhere"', "origin must be one of sweep, gradients, rules"),
        ("date = 2026-11-23", 'date = "today"', "an origin must have machine, date"),
        ("own = 11.66,", "", "measured must be a list"),
        ('path = "few rows"\n', "", "missing path"),
        ("[model]", "[modle]", "unknown modle"),
    ],
)
def test_wrong_tables_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (FOLDER / "matmul.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "wrong.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(KilnError, match=message):
        read_table(tmp_path / "wrong.toml", ProductCase)


def test_rows_say_what_the_times_say() -> None:
    """Each row's winner is the faster one in the geometric mean of the row's measurements."""
    for row in TABLE.rows:
        if row.measured:
            gain = sum(log(t.library / t.own) for t in row.measured)
            assert (gain > 0) == (row.winner == "own"), row.path


GRADIENT = """
func.func @main(%g: tensor<{m}x{k}xbf16>, %w: tensor<{k}x384xbf16>, %x: tensor<{m}x384xbf16>) -> tensor<{m}x384xbf16> {{
  %0 = "kiln.matmul"(%g, %w) {{transpose_lhs = false, transpose_rhs = false}}
    : (tensor<{m}x{k}xbf16>, tensor<{k}x384xbf16>) -> tensor<{m}x384xbf16>
  %e = "kiln.empty"() {{shape = affine_map<() -> ({m}, 384)>}} : () -> tensor<{m}x384xbf16>
  %1 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%x : tensor<{m}x384xbf16>) outs(%e : tensor<{m}x384xbf16>) {{
  ^bb0(%a: bf16, %o: bf16):
    %p = math.erf %a : bf16
    %q = math.exp %a : bf16
    %s = arith.addf %p, %q : bf16
    linalg.yield %s : bf16
  }} -> tensor<{m}x384xbf16>
  %2 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%0, %1 : tensor<{m}x384xbf16>, tensor<{m}x384xbf16>) outs(%e : tensor<{m}x384xbf16>) {{
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %s = arith.mulf %a, %b : bf16
    linalg.yield %s : bf16
  }} -> tensor<{m}x384xbf16>
  return %2 : tensor<{m}x384xbf16>
}}
"""


@pytest.mark.parametrize(("rows", "terms", "is_library"), [(12544, 96, True), (784, 96, False)])
def test_functions_behind_short_sums(rows: int, terms: int, is_library: bool) -> None:
    """A gradient of GELU behind a product: its functions are on the way to the other operand."""
    with CONTEXT, ir.Location.unknown(CONTEXT):
        module = kiln.parse(GRADIENT.format(m=rows, k=terms))
        block = module.body.operations[0].regions[0].blocks[0]
        op = next(op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul")
        assert (product_reason(op, True, "sm_90") is not None) == is_library
