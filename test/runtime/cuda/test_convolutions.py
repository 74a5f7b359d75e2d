# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of cuDNN out of the launch table, on the emulated GPU: results, layouts, settings, errors, threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
import kiln.lowering.gpu.dot.conv_choice as conv_choice
import kiln.runtime.aten_call as aten_call
import kiln.runtime.cuda.executor as cuda_executor
from kiln.frontend.report import collect
from kiln.lowering.host import gpu_kernels
from kiln.runtime.cuda.cublaslt import LibraryError
from kiln.runtime.cuda.cudnn import ConvolutionProblem, Cudnn, cudnn
from kiln.runtime.cuda.driver import CudaError
from kiln.runtime.cuda.libraries import prepare_ahead


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """The rules leave convolutions of little work or short sums to kernels of their own: these stand for large ones."""
    small = ("little work", "short sums with something behind")
    rows = tuple(row for row in conv_choice.TABLE.rows if row.path not in small)
    monkeypatch.setattr(conv_choice, "TABLE", replace(conv_choice.TABLE, rows=rows))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False})


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return ((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)).item()


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, last: bool = True) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    found = torch.randn(shape).to(dtype)
    return found.contiguous(memory_format=formats[len(shape)]) if last and len(shape) in formats else found


LIMIT = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-6, torch.float64: 1e-14}


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", list(LIMIT))
def test_types_and_layouts(gpu, dtype, last):
    def run(x, w):
        return F.conv2d(x, w, None, (2, 1), (1, 2), (1, 2))

    call = compiled(run)
    w = random(24, 16, 3, 3, dtype=dtype, last=last)
    for _ in range(2):
        x = random(3, 16, 13, 15, dtype=dtype, last=last)
        found, exact = call(x, w), run(x.double(), w.double())
        assert error(found, exact) < LIMIT[dtype]
        assert found.stride() == run(x, w).stride()
    is_called = not (last and dtype == torch.float64)  # ATen copies these
    assert gpu.dnn_library.calls == [((3, 16, 13, 15), (24, 16, 3, 3), 0)] * (2 if is_called else 0)
    if is_called:
        assert gpu.dnn_library.strides[0] == list(x.stride())
        assert gpu.dnn_library.streams == [77, 77]


def test_depthwise_weights_that_lie_anywhere(gpu, monkeypatch):
    """cuDNN's kernels for them read 16 bytes at once, and PyTorch copies no weight that is dense already."""
    starts: list[int] = []
    resolve = aten_call.resolve_op

    class Watched:
        """An op; keeps where its operands begin."""

        def __init__(self, name: str) -> None:
            self.op = resolve(name)
            self._op = self

        def __getattr__(self, name: str) -> Any:
            return getattr(self.op, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            starts.extend(x.data_ptr() for x in args if isinstance(x, torch.Tensor))
            return self.op(*args, **kwargs)

    monkeypatch.setattr(aten_call, "resolve_op", Watched)
    x, w = random(2, 24, 20, 20), random(24 * 49 + 1)[1:].view(24, 1, 7, 7)
    found = compiled(lambda x, w: F.conv2d(x, w, groups=24).relu())(x, w)
    assert starts and not any(n % 16 for n in starts)
    assert error(found, F.conv2d(x.double(), w.double(), groups=24).relu()) < 4e-3


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 4])
def test_dims_and_groups(gpu, rank, groups):
    run = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    call = compiled(lambda x, w: run(torch.relu(x), w, None, 2, 1, 1, groups) * 2)
    last = rank == 2  # on a CPU, PyTorch's results of three dims are planar
    w = random(32, 16 // groups, *([3] * rank), dtype=torch.float32, last=last)
    x = random(2, 16, *([9, 7, 5][:rank]), dtype=torch.float32, last=last)
    exact = run(torch.relu(x).double(), w.double(), None, 2, 1, 1, groups) * 2
    assert error(call(x, w), exact) < 1e-6
    assert len(gpu.dnn_library.calls) == 1
    assert len(gpu.launched) == 2


@pytest.mark.parametrize("rank", [2, 3])
def test_sizes_of_one(gpu, rank):
    """Strides of dims of size 1 say nothing; the library gets dense ones."""
    run = {2: F.conv2d, 3: F.conv3d}[rank]
    call = compiled(lambda x, w: run(x, w, None, 1, 1))
    w = random(8, 1, *([3] * rank), last=rank == 2)
    x = random(1, 1, *([5] * (rank - 1)), 1, last=rank == 2)
    assert error(call(x, w), run(x.double(), w.double(), None, 1, 1)) < 4e-3
    assert len(gpu.dnn_library.calls) == 1


def executors_of(call: Callable[[], Any]) -> list[Any]:
    made = []
    original = cuda_executor.CudaExecutor.__init__

    def keep(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        made.append(self)

    cuda_executor.CudaExecutor.__init__ = keep
    try:
        call()
    finally:
        cuda_executor.CudaExecutor.__init__ = original
    return made


def block(x, w, u, b):
    y = torch.relu(F.conv2d(torch.relu(x), w, b, 1, 1))
    return torch.relu(F.conv2d(y, u, None, 2) + 1)


def test_one_native_call_for_kernels_and_convolutions(gpu):
    call = compiled(block)
    args = random(2, 16, 12, 12), random(24, 16, 3, 3), random(32, 24, 2, 2), random(24)
    (made,) = executors_of(lambda: call(*args))
    assert made.source.count("launch(state.address)") == 1
    assert "call_" not in made.source
    assert error(call(*args), block(*(t.double() for t in args))) < 1e-2
    assert len(gpu.dnn_library.calls) == 4


def missing() -> Cudnn:
    raise LibraryError("no cuDNN: not there")


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("how", ["missing", "refused"])
def test_without_the_library_they_are_aten_calls(gpu, monkeypatch, how, last):
    if how == "missing":
        monkeypatch.setattr(cuda_executor, "cudnn", missing)
    gpu.dnn_library.refused = {0, 1, 2}
    call = compiled(block)
    w, u, b = random(24, 16, 3, 3, last=last), random(32, 24, 1, 1, last=last), random(24)
    for _ in range(2):
        x = random(2, 16, 12, 12, last=last)
        assert error(call(x, w, u, b), block(*(t.double() for t in (x, w, u, b)))) < 1e-2
    assert not gpu.dnn_library.calls and gpu.launched


def test_a_failure_names_the_convolution(gpu):
    call = compiled(lambda x, w: F.conv2d(x, w, None, 1, 1))
    args = random(2, 16, 12, 12), random(24, 16, 3, 3)
    call(*args)
    things = len(gpu.dnn_library.things)
    gpu.dnn_library.fails = 5001
    with pytest.raises(CudaError, match=r"aten.convolution.default.*cuDNN says: execution failed \(status 5001\)"):
        call(*args)
    gpu.dnn_library.fails = 0
    assert error(call(*args), F.conv2d(args[0].double(), args[1].double(), None, 1, 1)) < 4e-3
    assert len(gpu.dnn_library.things) == things


def settings(*, benchmark: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Any:
    return torch.backends.cudnn.flags(True, benchmark, deterministic=deterministic, allow_tf32=allow_tf32)


def test_engines_as_pytorch_is_set(gpu):
    """The first one that can be planned, that is deterministic, that does without tensor cores."""
    gpu.dnn_library.engines = [[0], [0, 4], [1], [], [4]]

    def chosen(dtype: torch.dtype, refused: set[int] = frozenset()) -> int:
        torch._dynamo.reset()
        gpu.dnn._known.clear()
        gpu.dnn_library.refused = set(refused)
        compiled(lambda x, w: F.conv2d(x, w))(random(1, 8, 5, 5, dtype=dtype), random(8, 8, 3, 3, dtype=dtype))
        return gpu.dnn_library.calls[-1][2]

    with settings():
        assert chosen(torch.bfloat16) == 0
        assert chosen(torch.bfloat16, {0}) == 1
        assert chosen(torch.float32) == 0
    with settings(allow_tf32=False):
        assert chosen(torch.float32) == 3
        assert chosen(torch.bfloat16, {0, 1}) == 2
    with settings(allow_tf32=False, deterministic=True):
        assert chosen(torch.bfloat16, {0}) == 2
        assert chosen(torch.float16, {0, 2}) == 3


def test_benchmarking_is_pytorchs(gpu):
    x, w = random(1, 8, 5, 5), random(8, 8, 3, 3)
    with settings(benchmark=True):
        found = compiled(lambda x, w: F.conv2d(x, w))(x, w)
    assert error(found, F.conv2d(x.double(), w.double())) < 4e-3
    assert not gpu.dnn_library.calls


def test_equal_convolutions_are_prepared_once(gpu):
    def run(x, w, u):
        return F.conv2d(F.conv2d(x, w, None, 1, 1), u, None, 1, 1)

    call = compiled(run)
    call(random(1, 16, 9, 9), random(16, 16, 3, 3), random(16, 16, 3, 3))
    assert len(gpu.dnn_library.calls) == 2 and len(gpu.dnn._known) == 1
    kinds = sorted(thing.kind for thing in gpu.dnn_library.things.values())
    assert kinds == [1, 3, 5, 10, 15, 17, 17, 17]  # a plan, and what it was made from


def test_descriptors_go_with_their_last_user(gpu):
    problem = ConvolutionProblem("bfloat16", (1, 8, 5, 5), (8, 8, 3, 3), (1, 8, 3, 3), (1, 1), (0, 0), (1, 1), True)
    made = gpu.dnn.prepare(0, problem)
    assert gpu.dnn.prepare(0, problem) is made and gpu.dnn_library.things
    del made
    assert not gpu.dnn_library.things
    gpu.dnn_library.refused = {0, 1, 2}
    with pytest.raises(LibraryError, match="none of cuDNN's engines takes"):
        gpu.dnn.prepare(0, problem)
    assert not gpu.dnn_library.things


def test_any_size(gpu):
    """One plan of the graph; the library is asked once for each size."""
    call = compiled(lambda x, w: F.conv2d(torch.relu(x), w, None, 1, 1))
    w = random(24, 16, 3, 3)
    for batch in (3, 2, 5, 2):
        x = random(batch, 16, 9, 9)
        torch._dynamo.mark_dynamic(x, 0)
        assert error(call(x, w), F.conv2d(torch.relu(x).double(), w.double(), None, 1, 1)) < 4e-3
    assert [image[0] for image, _, _ in gpu.dnn_library.calls] == [3, 2, 5, 2]
    assert len(gpu.kernels) == 1 and len(gpu.dnn._known) == 3


def test_threads(gpu):
    call = compiled(lambda x, w: F.conv2d(x, w, None, 1, 1))
    w = random(8, 16, 3, 3)
    images = [random(1, 16, 9, 9) for _ in range(8)]
    call(images[0], w)
    with ThreadPoolExecutor(4) as pool:
        for x, found in zip(images, pool.map(lambda x: call(x, w), images), strict=True):
            assert error(found, F.conv2d(x.double(), w.double(), None, 1, 1)) < 4e-3


def test_each_stream(gpu, monkeypatch):
    call = compiled(lambda x, w: F.conv2d(x, w))
    args = random(1, 16, 9, 9), random(8, 16, 3, 3)
    for stream in (77, 78, 0, 77):
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index, s=stream: s)
        torch._dynamo.reset()
        call(*args)
    assert gpu.dnn_library.streams == [77, 78, 0, 77]


def test_a_recording(gpu):
    def run(x, w):
        return torch.relu(F.conv2d(torch.relu(x), w))

    call = torch.compile(run, backend=kiln.backend, fullgraph=True, mode="reduce-overhead")
    w = random(8, 16, 3, 3)
    for _ in range(4):
        x = random(1, 16, 9, 9)
        found = call(x, w).clone()
        assert error(found, torch.relu(F.conv2d(torch.relu(x).double(), w.double()))) < 4e-3
    assert len(gpu.dnn_library.calls) >= 4


def test_what_stays_atens(gpu):
    """Transposed and depthwise ones, and those of which ATen copies an operand."""
    cases: list[tuple[Any, torch.Tensor, torch.Tensor]] = [
        (lambda x, w: F.conv_transpose2d(x, w), random(1, 8, 5, 5), random(8, 4, 3, 3)),
        (lambda x, w: F.conv2d(x, w, groups=8), random(1, 8, 5, 5), random(8, 1, 3, 3)),
        (lambda x, w: F.conv2d(x, w), random(1, 8, 5, 5), random(8, 8, 3, 3, last=False)),
        (lambda x, w: F.conv2d(x[:, :, ::2], w), random(1, 8, 10, 5), random(8, 8, 3, 3)),
    ]
    for run, x, w in cases:
        torch._dynamo.reset()
        assert error(compiled(run)(x, w), run(x.double(), w.double())) < 4e-3
    assert not gpu.dnn_library.calls


def test_a_plan_out_of_the_cache(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    args = random(2, 16, 12, 12), random(24, 16, 3, 3), random(32, 24, 2, 2), random(24)
    for _ in range(2):
        torch._dynamo.reset()
        assert error(compiled(block)(*args), block(*(t.double() for t in args))) < 1e-2
    assert len(gpu.dnn_library.calls) == 4


def test_the_report_tells_what_the_library_does(gpu):
    with collect() as reports:
        compiled(lambda x, w: F.conv2d(x, w))(random(1, 16, 9, 9), random(8, 16, 3, 3))
    (kernel,) = reports[0].kernels
    assert (kernel.name, kernel.kind, kernel.ops) == ("cudnnBackendExecute", "library", ("aten.convolution.default",))
    assert not reports[0].aten_calls


def test_too_large_for_one_call(gpu):
    sizes = (1 << 12, 1 << 10, 32, 32), (8, 1 << 10, 1, 1), (1 << 12, 8, 32, 32)
    problem = ConvolutionProblem("bfloat16", *sizes, (1, 1), (0, 0), (1, 1), True)
    with pytest.raises(LibraryError, match="too many elements"):
        gpu.dnn.prepare(0, problem)


def test_no_library_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr("kiln.runtime.cuda.cudnn.loaded_library", lambda name: str(tmp_path / f"{name}.so"))
    with pytest.raises(LibraryError, match="no cuDNN: .*libcudnn.so"):
        cudnn.__wrapped__()


def test_prepared_while_kernels_compile(gpu, monkeypatch):
    """With the sizes, places and settings that the executor asks with."""
    done = []

    def meanwhile(plan: Any) -> None:
        done.append((prepare_ahead(plan, lambda: gpu.dnn), len(gpu.dnn._known)))

    monkeypatch.setattr(gpu_kernels, "meanwhile", meanwhile)
    args = random(2, 16, 12, 12), random(24, 16, 3, 3), random(32, 24, 2, 2), random(24)
    with settings(deterministic=True):
        compiled(block)(*args)
    assert done == [(2, 2)] and len(gpu.dnn._known) == 2
    assert len(gpu.dnn_library.calls) == 2


def test_what_cannot_be_prepared_is_left(gpu, monkeypatch):
    gpu.dnn_library.refused = {0, 1, 2}
    done = []
    monkeypatch.setattr(gpu_kernels, "meanwhile", lambda plan: done.append(prepare_ahead(plan, lambda: gpu.dnn)))
    x, w = random(1, 16, 9, 9), random(8, 16, 3, 3)
    assert error(compiled(lambda x, w: F.conv2d(x, w))(x, w), F.conv2d(x.double(), w.double())) < 4e-3
    assert done == [0]
