# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""kiln-bisect, kiln-reduce and kiln-debug find bugs that are planted in passes and kernels."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import forked_python
import pytest
import torch

from kiln.dialects import create_context, parse
from kiln.passes.numerics.compare import compare
from kiln.passes.numerics.kernels import _copied
from kiln.passes.numerics.sample import random_samples
from kiln.passes.numerics.signature import entry_function, signature_of
from kiln.tools import kiln_bisect, kiln_reduce
from kiln.tools.debugging.attempts import KERNELS, Finding
from kiln.tools.debugging.children import in_child
from kiln.tools.debugging.editing import size_of
from kiln.tools.debugging.reduction import _Reducer, reduce_module
from kiln.tools.debugging.sizes import smaller, tensor_sizes

INPUTS = Path(__file__).parent / "debugging" / "Inputs"
LOAD = f"--load={INPUTS}/planted.py"

SOURCE = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: tensor<8x16xf32>, %y: tensor<16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %v = "kiln.view"(%y) {map = affine_map<(d0) -> (-d0 + 15)>, shape = affine_map<() -> (16)>} : (tensor<16xf32>) -> tensor<16xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8, 16)>} : () -> tensor<8x16xf32>
  %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %v : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0, %v : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %a, %b : f32
    %m = arith.mulf %q, %b : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%1 : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %d = arith.subf %a, %a : f32
    %n = arith.addf %d, %a : f32
    linalg.yield %n : f32
  } -> tensor<8x16xf32>
  return %2, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "in.mlir"
    path.write_text(SOURCE)
    return str(path)


# name of the pass, what is looked for beside errors, kind, the rewrite that is wrong
PLANTED = [
    ("swap-division", ["--verify-numerics"], "numbers", "rewrite 3: arith.divf: arith.divf -> f32"),
    ("shift-map", ["--verify-numerics"], "numbers", "rewrite 1: view: kiln.view -> tensor<16xf32>"),
    ("uncounted-swap", ["--verify-numerics"], "numbers", "rewrite 3: uses of a result replaced: arith.subf -> f32"),
    ("drop-division", ["--verify-numerics"], "numbers", "rewrite 1: arith.divf -> f32"),
    ("break-types", [], "verifier", "rewrite 1: mulf: arith.mulf -> f32"),
    ("raise-error", [], "error", "rewrite 3: linalg.generic"),
    ("abort-process", [], "crash", "rewrite 2: linalg.generic"),
    ("hang", ["--timeout=2"], "hang", "rewrite 1: arith.divf -> f32"),
]


@pytest.mark.parametrize(("name", "options", "kind", "rewrite"), PLANTED)
def test_bisect_names_pass_and_rewrite(
    name: str, options: list[str], kind: str, rewrite: str, source: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert kiln_bisect.main([LOAD, *options, f"--pass-pipeline=compose-views,{name},fuse", source]) == 0
    first, second, third = capfd.readouterr().out.splitlines()
    assert first == f"first pass: {name} (step 2 of 3)"
    assert second.startswith(f"{kind}: ")
    assert third.startswith(f"first rewrite: {rewrite}")


def test_bisect_by_a_command(source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Status 0 is fine, another one is broken: here, a module without a division."""
    script = tmp_path / "test.py"
    script.write_text("import sys; sys.exit('arith.divf' not in open(sys.argv[1]).read())")
    test = f"--test={sys.executable} {script}"
    assert kiln_bisect.main([LOAD, test, "--pass-pipeline=cse,swap-division,drop-division,fuse", source]) == 0
    assert capfd.readouterr().out.startswith("first pass: drop-division (step 3 of 4)\ntest: ")
    assert kiln_bisect.main([LOAD, "--test=/nowhere/x", "--pass-pipeline=cse", source]) == 1
    assert "kiln-bisect: error: --test=/nowhere/x" in capfd.readouterr().err


def test_bisect_of_what_is_right(source: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert kiln_bisect.main(["--verify-numerics", "--pipeline=cpu", source]) == 2
    assert capfd.readouterr().out == "nothing is broken\n"


@pytest.mark.parametrize(("name", "options", "kind", "rewrite"), [p for p in PLANTED if p[2] != "hang"])
def test_reduced_module_is_small_and_fails(
    name: str, options: list[str], kind: str, rewrite: str, source: str, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out.mlir"
    pipeline = f"--pass-pipeline=compose-views,{name},fuse"
    assert kiln_reduce.main([LOAD, *options, pipeline, source, "-o", str(out)]) == 0
    with create_context():
        module = parse(out.read_text())
        assert 1 <= size_of(module) <= (3 if name == "raise-error" else 2)
    assert kiln_bisect.main([LOAD, *options, pipeline, str(out)]) == 0
    assert f"first pass: {name} " in capfd.readouterr().out


def test_reduce_by_a_command_alone(source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "test.py"
    script.write_text("import sys; sys.exit('arith.divf' in open(sys.argv[1]).read())")
    assert kiln_reduce.main([f"--test={sys.executable} {script}", source]) == 0
    text = capfd.readouterr().out
    assert "arith.divf" in text and "arith.addf" not in text and "tensor<8x" not in text


def test_sizes_shrink_together() -> None:
    text = 'tensor<8x16xf32> map<() -> (8, 16)> "[8, 32]" 1.600000e+01 %16 f16 vector<16xi8>'
    assert 'tensor<8x1xf32> map<() -> (8, 1)> "[8, 2]" 1.600000e+01 %16 f16 vector<1xi8>' in list(smaller(text, 16))
    assert tensor_sizes(text) == [16, 8]


def test_children_die_alone() -> None:
    assert in_child(lambda tell: 7, 10).value == 7
    assert in_child(lambda tell: os.abort(), 10).message == "the process died of SIGABRT"
    assert in_child(lambda tell: [tell(1), os._exit(3)], 10).events == [1]
    assert in_child(lambda tell: [None for _ in iter(int, 1)], 0.5).kind == "hang"


def test_what_a_child_imports_later_ones_have() -> None:
    name = "kiln.lowering.ttcpu.ttgir.schedule"
    sys.modules.pop(name, None)
    assert in_child(lambda tell: importlib.import_module(name).__name__, 10).value == name
    assert name in sys.modules


def test_reduction_ends_when_its_time_is_over() -> None:
    asked: list[str] = []
    assert reduce_module(SOURCE, lambda text: bool(asked.append(text)), seconds=0.0) == SOURCE
    assert not asked


@pytest.mark.parametrize(("terms", "share", "is_wrong"), [(64, 0.0005, False), (64, 0.005, True), (1, 0.0005, True)])
def test_few_sums_of_huge_terms_may_be_no_numbers(terms: int, share: float, is_wrong: bool) -> None:
    exact = torch.ones(10_000, dtype=torch.float64)
    after = exact.float()
    after[: int(share * 10_000)] = torch.nan
    assert bool(compare([exact], [exact.float()], [after], terms=terms, specials=True)) == is_wrong
    assert compare([exact], [exact.float()], [after], terms=terms) is not None


@pytest.mark.parametrize(
    ("tame", "after", "is_wrong"),
    [(1e19, torch.inf, False), (torch.nan, torch.inf, True), (1e19, 3.0, True), (1e19, torch.nan, False)],
)
def test_not_a_number_may_be_infinite_where_infinities_made_it(tame: float, after: float, is_wrong: bool) -> None:
    exact, found = torch.ones(8, dtype=torch.float64), torch.ones(8)
    calm = exact.clone()
    exact[3], found[3], calm[3] = torch.nan, after, tame
    assert bool(compare([exact], [exact.float()], [found], specials=True, tame=[calm])) == is_wrong


def test_mean_of_a_row_with_an_infinity() -> None:
    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (16,), w)

    run = torch.compile(norm, backend="kiln", options={"fallback": False, "verify": "numerics"})
    x, w = torch.randn(64, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    torch.testing.assert_close(run(x, w), norm(x, w))


@pytest.mark.parametrize(("sizes", "strides"), [((4, 5), (9, 1)), ((3, 5), (0, 1)), ((0, 5), (5, 1)), ((2, 3), (1, 2))])
def test_a_kernel_gets_the_strides_that_it_is_compiled_for(sizes: tuple[int, int], strides: tuple[int, int]) -> None:
    given = torch.empty_strided(sizes, strides).fill_(7.0)
    copy = _copied(given, "cpu")
    assert copy.stride() == strides and torch.equal(copy, given)
    assert not given.numel() or copy.data_ptr() != given.data_ptr()


def test_kinds_of_inputs_for_kernels() -> None:
    with create_context():
        module = parse(SOURCE)
        signature = signature_of(entry_function(module))
        negative, wide = next(random_samples(signature, ("negative", "wide")))
    assert bool((negative.tensors[0] < 0).all())
    assert float(wide.tensors[0].abs().max()) > 8.0


def test_an_edit_that_ends_its_process_is_not_taken() -> None:
    with create_context():
        reducer = _Reducer(SOURCE, lambda text: True, 10, 10.0)
        assert not reducer._try(lambda module: os.abort())
        assert reducer.text == SOURCE


def test_an_access_outside_and_an_error_are_not_alike() -> None:
    wrong, outside, error = (Finding(kind, 1, KERNELS) for kind in ("numbers", "memory", "error"))
    assert outside.is_like(wrong) and wrong.is_like(outside)
    assert not error.is_like(outside)


VECTOR = """
func.func @k(%x: memref<?xf32>, %y: memref<?xf32>, %scratch: memref<?xi8>, %thread: index, %threads: index)
    attributes {kiln.scratch_bytes = affine_map<() -> (0)>, kiln.work = affine_map<() -> (64)>} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c64 step %c8 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
    %e = math.exp %v : vector<8xf32>
    %s = arith.addf %e, %v : vector<8xf32>
    %d = arith.divf %s, %v : vector<8xf32>
    vector.store %d, %y[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}
"""

TT = """
"tt.func"() ({
^bb0(%p: !tt.ptr<f32>):
  %0 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %1 = "tt.addptr"(%p, %0) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
  %2 = "tt.load"(%1) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<f32>) -> f32
  %3 = math.exp %2 : f32
  %4 = arith.addf %3, %2 : f32
  %5 = arith.divf %4, %2 : f32
  "tt.store"(%1, %5) : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {function_type = (!tt.ptr<f32>) -> (), kiln.grid = affine_map<() -> (8)>, sym_name = "k",
    sym_visibility = "public"} : () -> ()
"""


@pytest.mark.parametrize(("text", "first"), [(VECTOR, "expand-vector-math"), (TT, "cse")], ids=["vector", "tt"])
def test_kernels_on_memory(text: str, first: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a kernel leaves in its buffers is its result."""
    path, out = tmp_path / "k.mlir", tmp_path / "out.mlir"
    path.write_text(text)
    assert kiln_bisect.main(["--verify-numerics", f"--pass-pipeline={first},canonicalize", str(path)]) == 2
    pipeline = f"--pass-pipeline={first},swap-division"
    assert kiln_bisect.main([LOAD, "--verify-numerics", pipeline, str(path)]) == 0
    found = capfd.readouterr().out
    assert "first pass: swap-division (step 2 of 2)\nnumbers: " in found
    assert re.search(r"first rewrite: rewrite \d+: arith.divf", found)
    # A candidate may take the loop's step away and run for ever.
    arguments = [LOAD, "--verify-numerics", "--timeout=4", "--pass-pipeline=swap-division", str(path)]
    assert kiln_reduce.main([*arguments, "-o", str(out)]) == 0
    reduced = out.read_text()
    assert "arith.divf" in reduced and "arith.addf" not in reduced
    with create_context():
        assert size_of(parse(reduced)) <= 10


# ------------------------------------------------------------------------------------------------------- whole models

MODEL = """
    import torch

    def forward(x, w):
        y = torch.softmax(x @ w, dim=-1) - x.relu()
        return -torch.relu(y + 1) / (2 + x.sigmoid()), y * 3

    def make():
        torch.manual_seed(0)
        return forward, (torch.randn(24, 40), torch.randn(40, 40))
"""

FRONT = "torch-cse,simplify-wrong,convert-torch-to-kiln,compose-views,expand-named-ops{keep=matmul},canonicalize,cse"


def _debug(tmp_path: Path, *arguments: str, kernels: str = "") -> subprocess.CompletedProcess[str]:
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL))
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "PLANTED_KERNELS": kernels}
    command = [sys.executable, "-m", "kiln.tools.kiln_debug", "model:make", *arguments]
    return forked_python.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)


def _check_test(path: Path, tmp_path: Path, kernels: str = "") -> None:
    """The test has few ops, fails with the bug, and passes without it where that can be taken away."""
    text = path.read_text()
    with create_context():
        assert 1 <= size_of(parse(text)) <= 10
    run = re.search(r"RUN: kiln-opt (.*)", text)
    assert run is not None
    words = shlex.split(run[1].replace("%s", str(path)))
    for value, status in ((kernels, 1), *([("", 0)] if kernels else [])):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PLANTED_KERNELS": value}
        command = [sys.executable, "-m", "kiln.tools.kiln_opt", *words]
        done = forked_python.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == status, done.stderr


def test_debug_finds_a_wrong_rule(tmp_path: Path) -> None:
    done = _debug(tmp_path, LOAD, f"--pass-pipeline={FRONT},fuse,assign-layouts,schedule-cpu", "-o", "found.mlir")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong: pass simplify-wrong, rewrite 1: neg-of-relu: torch.aten.neg" in done.stdout
    _check_test(tmp_path / "found.mlir", tmp_path)


@pytest.mark.parametrize(
    ("target", "module"), [("cpu", "kiln.lowering.cpu.emit"), ("tt-cpu", "kiln.lowering.gpu.emit")]
)
def test_debug_finds_a_wrong_kernel(target: str, module: str, tmp_path: Path) -> None:
    done = _debug(tmp_path, LOAD, f"--target={target}", "-o", "found.mlir", kernels=module)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"wrong: kernel \w*(softmax|sub)", done.stdout)
    _check_test(tmp_path / "found.mlir", tmp_path, module)


def test_debug_of_what_is_right(tmp_path: Path) -> None:
    done = _debug(tmp_path)
    assert done.returncode == 2 and "nothing is wrong" in done.stdout, done.stdout + done.stderr
