# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of cuBLASLt out of the launch table, on the emulated GPU: results, settings, errors, threads."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
import kiln.runtime.aten_call as aten_call
import kiln.runtime.cuda.binding as binding
import kiln.runtime.cuda.executor as cuda_executor
from kiln.frontend.report import collect
from kiln.runtime.aten_call import resolve_op
from kiln.runtime.cuda.cublaslt import CublasLt, LibraryError, Matrix, Problem, cublaslt
from kiln.runtime.cuda.driver import CudaError


def compiled(function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False}, **arguments)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return ((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)).item()


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def biased(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_types(gpu, dtype):
    call = compiled(biased)
    w, b = random(512, 520, dtype=dtype), random(512, dtype=dtype)
    limit = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    for _ in range(2):
        x = random(2, 1024, 520, dtype=dtype)
        assert error(call(x, w, b), biased(x.double(), w.double(), b.double())) < limit
    assert gpu.library.calls == [(2048, 512, 520, True)] * 2
    assert gpu.library.streams == [77, 77]
    assert not gpu.launched


def test_operands_wherever_they_lie(gpu):
    """Parts of rows, weights either way round, an intermediate of a kernel, a result that a kernel reads."""

    def run(x, w, u):
        a = F.linear(x[:, 64:576], w)
        return torch.softmax(torch.relu(x[:, :512]) @ u, -1), a

    call = compiled(run)
    x, w, u = random(1152, 640), random(512, 512) / 16, random(512, 512) / 16
    for found, exact in zip(call(x, w, u), run(x.double(), w.double(), u.double()), strict=True):
        assert error(found, exact) < 1e-2
    assert gpu.library.calls == [(1152, 512, 512, False)] * 2
    assert len(gpu.launched) == 2


def test_one_native_call_for_kernels_and_products(gpu):
    def run(x, w, b):
        return F.linear(torch.relu(F.linear(torch.relu(x), w, b)) * 2, w, b)

    call = compiled(run)
    args = random(2048, 512), random(512, 512) / 16, random(512)
    executors = []
    original = cuda_executor.CudaExecutor.__init__

    def keep(self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        executors.append(self)

    cuda_executor.CudaExecutor.__init__ = keep
    try:
        call(*args)
    finally:
        cuda_executor.CudaExecutor.__init__ = original
    assert executors[0].source.count("launch(state.address)") == 1
    assert "call_" not in executors[0].source


@pytest.mark.parametrize(("allow", "sums"), [(False, 68), (True, 77)])
def test_tf32_as_pytorch_is_set(gpu, allow, sums):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow
    try:
        torch._dynamo.reset()
        compiled(torch.mm)(random(512, 512, dtype=torch.float32), random(512, 512, dtype=torch.float32))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    (made,) = gpu.blas._known.values()
    assert gpu.library._things[made.descriptor].sums == sums


@pytest.mark.parametrize("allow", [False, True])
def test_partial_sums_as_pytorch_is_set(gpu, allow):
    before = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = allow
    try:
        torch._dynamo.reset()
        compiled(torch.mm)(random(1152, 512), random(512, 512))
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before
    (preference,) = gpu.library.heuristics
    assert preference.get(3) == (None if allow else 2)


def missing() -> CublasLt:
    raise LibraryError("no cuBLASLt: not there")


def test_without_the_library_products_are_aten_calls(gpu, monkeypatch):
    monkeypatch.setattr(cuda_executor, "cublaslt", missing)

    def run(x, w, b):
        return F.linear(torch.relu(F.linear(torch.relu(x), w, b)), w, b)

    call = compiled(run)
    w, b = random(512, 512) / 16, random(512)
    for _ in range(2):
        x = random(2048, 512)
        assert error(call(x, w, b), run(x.double(), w.double(), b.double())) < 1e-2
    assert not gpu.library.calls and gpu.launched


def test_a_product_that_the_library_refuses_is_an_aten_call(gpu):
    gpu.library.algorithms = 0
    call = compiled(biased)
    w, b = random(512, 520), random(512)
    for _ in range(2):
        x = random(2048, 520)
        assert error(call(x, w, b), biased(x.double(), w.double(), b.double())) < 4e-3
    assert not gpu.library.calls


def test_a_failure_names_the_product(gpu):
    call = compiled(biased)
    args = random(2048, 520), random(512, 520), random(512)
    call(*args)
    gpu.library.fails = 13
    with pytest.raises(CudaError, match=r"aten.linear.default.*execution failed \(status 13\)"):
        call(*args)
    gpu.library.fails = 0
    assert error(call(*args), biased(*(x.double() for x in args))) < 4e-3


def test_threads_with_biases_of_their_own(gpu):
    call = compiled(biased)
    x, w = random(2048, 256), random(512, 256) / 16
    biases = [torch.full((512,), float(i)).bfloat16() for i in range(8)]
    plain = (x.double() @ w.double().mT).bfloat16()
    call(x, w, biases[0])
    with ThreadPoolExecutor(4) as pool:
        for i, found in enumerate(pool.map(lambda b: call(x, w, b), biases)):
            assert error(found, plain.double() + i) < 1e-2


def test_equal_products_are_prepared_once(gpu):
    def run(x, w, u):
        return F.linear(F.linear(x, w), u)

    call = compiled(run)
    call(random(1152, 512), random(512, 512), random(512, 512))
    assert len(gpu.library.calls) == 2 and len(gpu.blas._known) == 1


def test_a_plan_out_of_the_cache(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    args = random(2048, 520), random(512, 520), random(512)
    for _ in range(2):
        torch._dynamo.reset()
        assert error(compiled(biased)(*args), biased(*(x.double() for x in args))) < 4e-3
    assert len(gpu.library.calls) == 2


def test_descriptors_are_encoded_when_an_address_changes(gpu):
    call = compiled(lambda x, w: F.gelu(F.linear(x, w)))
    w, x, y = random(512, 64), random(2048, 64), random(2048, 64)
    for inputs in (x, x, y, y, x):
        assert error(call(inputs, w), F.gelu(F.linear(inputs.double(), w.double()))) < 1e-2
    assert gpu.encoded.count(w.data_ptr()) == 1
    assert gpu.encoded.count(x.data_ptr()) == 2 and gpu.encoded.count(y.data_ptr()) == 1


def test_no_library_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr("kiln.runtime.cuda.cublaslt.loaded_library", lambda name: str(tmp_path / f"{name}.so"))
    with pytest.raises(LibraryError, match="no cuBLASLt: .*libcublasLt.so"):
        cublaslt.__wrapped__()


def test_the_librarys_ranking(gpu):
    """Candidates in order; one past the last is the last."""
    problem = Problem("bfloat16", (1, 64, 32, 16), Matrix(0, 16, 1), Matrix(0, 1, 16), Matrix(0, 32, 1))
    assert gpu.blas.candidates(0, problem) == 4
    assert gpu.blas.candidates(0, problem, 2) == 2
    made = [gpu.blas.prepare(0, problem, i) for i in (0, 3, 9)]
    assert len({id(m) for m in made}) == 3
    assert all(m.workspace == 1000 for m in made)
    assert gpu.blas.prepare(0, problem, 3) is made[1]
    things = len(gpu.library._things)
    del made
    assert len(gpu.library._things) == things - 12
    gpu.library.algorithms = 0
    with pytest.raises(LibraryError, match="no algorithm"):
        gpu.blas.prepare(0, problem, 1)


def test_the_report_tells_what_the_library_does(gpu):
    with collect() as reports:
        compiled(biased)(random(2048, 520), random(512, 520), random(512))
    (kernel,) = reports[0].kernels
    assert (kernel.name, kernel.kind, kernel.ops) == ("cublasLtMatmul", "library", ("aten.linear.default",))
    assert not reports[0].aten_calls


def written_out(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = torch.addmm(b, x.view(-1, x.shape[-1]), w).view(*x.shape[:-1], -1)
    return 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))


def composite(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w.mT, b), approximate="tanh")


@pytest.mark.parametrize("model", [written_out, composite])
@pytest.mark.parametrize("is_there", [True, False])
def test_gelu_belongs_to_the_product(gpu, monkeypatch, model, is_there):
    """Also as an ATen call, where the library is missing: on a CPU that is GELU through erf, 5e-4 away."""
    if not is_there:
        monkeypatch.setattr(cuda_executor, "cublaslt", missing)
    call = compiled(lambda x, w, b: model(torch.relu(x), w, b) * 2)
    w, b = random(1024, 512) / 16, random(512)
    for _ in range(2):
        x = random(2, 3000, 1024)
        assert error(call(x, w, b), model(torch.relu(x).double(), w.double(), b.double()) * 2) < 4e-3
    assert gpu.library.calls == [(6000, 512, 1024, True)] * (2 if is_there else 0)


def test_any_number_of_rows(gpu):
    """One plan; the library is asked once for each number."""
    call = compiled(lambda x, w, b: F.linear(torch.relu(x), w, b))
    w, b = random(1024, 1032) / 32, random(1024)
    for rows in (2, 700, 2, 33):
        x = random(rows, 5, 1032)
        torch._dynamo.mark_dynamic(x, 0)
        exact = F.linear(torch.relu(x).double(), w.double(), b.double())
        assert error(call(x, w, b), exact) < 4e-3
    assert [m for m, *_ in gpu.library.calls] == [10, 3500, 10, 165]
    assert len(gpu.kernels) == 1


def test_no_rows_at_all(gpu):
    call = compiled(lambda x, w: F.linear(x, w))
    w = random(1024, 1024)
    for rows in (3, 0, 2):
        x = random(rows, 1024)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        assert error(call(x, w), F.linear(x.double(), w.double())) < 4e-3
    assert all(m for m, *_ in gpu.library.calls)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_batches_of_matrices(gpu, dtype):
    """Heads side by side, operands either way round, and a softmax behind."""

    def run(q, k, v):
        q, k, v = (t.view(2, 256, 4, 96).transpose(1, 2) for t in (q, k, v))
        return torch.softmax(q @ k.mT / 10, -1) @ v

    call = compiled(run)
    limit = {torch.bfloat16: 2e-2, torch.float32: 1e-5}[dtype]
    for _ in range(2):
        q, k, v = (random(2, 256, 384, dtype=dtype) for _ in range(3))
        assert error(call(q, k, v), run(q.double(), k.double(), v.double())) < limit

    def plain(a, b):
        return a.view(2, 3, 512, 264).mT @ b, torch.bmm(b.flatten(0, 1), b.flatten(0, 1).mT)

    call = compiled(plain)
    a, b = random(6, 512, 264, dtype=dtype), random(2, 3, 512, 520, dtype=dtype)
    for found, exact in zip(call(a, b), plain(a.double(), b.double()), strict=True):
        assert error(found, exact) < limit
    expected = [(264, 520, 512, False), (512, 512, 520, False)]
    assert gpu.library.calls[-2:] == expected if dtype == torch.float32 else gpu.library.calls[-1:] == expected[1:]


def test_products_of_a_gradient(gpu):
    """Weights' gradients: both operands the other way round."""
    x, w = random(4, 1024, 512), (random(768, 512) / 16).requires_grad_()
    call = compiled(lambda x, w: torch.relu(F.linear(x, w)))
    call(x, w).square().mean().backward()
    assert w.grad is not None
    exact = w.detach().double().requires_grad_()
    torch.relu(F.linear(x.double(), exact)).square().mean().backward()
    assert exact.grad is not None
    assert error(w.grad, exact.grad) < 2e-2
    assert (768, 512, 4096, False) in gpu.library.calls or (512, 768, 4096, False) in gpu.library.calls


@pytest.mark.parametrize("columns", [32, 64, 96])
def test_workspaces_start_at_multiples_of_256_bytes(gpu, monkeypatch, columns):
    """cuBLASLt refuses others; the graph's own intermediates in front of them end at multiples of 64."""
    gpu.library.workspace = 1000
    starts = []
    call = binding._call

    def seen(function, parameters):
        starts.append(parameters[-2])
        return call(function, parameters)

    monkeypatch.setattr(binding, "_call", seen)

    def run(x, w):
        return torch.softmax(torch.softmax(x, -1) @ w, -1)

    x, w = torch.randn(300 + columns, 520), torch.randn(520, 512)
    assert error(compiled(run)(x, w), run(x.double(), w.double())) < 1e-5
    assert starts and all(slot and start % 256 == 0 for slot, start in starts)


@pytest.mark.parametrize(("width", "start"), [(80, 4), (76, 0), (76, 3)], ids=["address", "rows", "both"])
def test_attention_of_operands_that_lie_anywhere(gpu, monkeypatch, width, start):
    """Products take them, PyTorch's kernels for attention do not."""
    bytes_apart: list[int] = []

    class Watched:
        """An op; keeps where its operands begin and how far apart their rows are."""

        def __init__(self, name: str) -> None:
            self.op = resolve_op(name)
            self._op = self

        def __getattr__(self, name: str) -> Any:
            return getattr(self.op, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            for x in args[:3]:
                bytes_apart.extend((x.data_ptr(), *(step * x.itemsize for step in x.stride()[:-1])))
            return self.op(*args, **kwargs)

    def run(q, k, v):
        q, k, v = (x[..., start : start + 72] for x in (q, k, v))
        return torch.softmax(q @ k.transpose(-1, -2) * 0.1, -1) @ v

    monkeypatch.setattr(aten_call, "resolve_op", Watched)
    q, k, v = (random(1, 2, 130, width) for _ in range(3))
    options = {"fallback": False, "tensor_maps": False}
    found = torch.compile(run, backend=kiln.backend, fullgraph=True, options=options)(q, k, v)
    assert bytes_apart and not any(n % 16 for n in bytes_apart)
    assert error(found, run(q.double(), k.double(), v.double())) < 4e-3
