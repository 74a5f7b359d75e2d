# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``options={"freezing": True}``: same results, the model untouched, and never the results of other parameters."""

import copy

import pytest
import torch
from torch import nn

import kiln

FREEZING = {"freezing": True, "fallback": False}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def compiled(model, **options):
    return torch.compile(model, backend="kiln", options=FREEZING, fullgraph=True, **options)


def relative_error(result, model, *inputs):
    exact = copy.deepcopy(model).double()(*(i.double() for i in inputs))
    return float((result.double() - exact).norm() / exact.norm())


def trained(model):
    """`model` in eval mode, with statistics that are no identity."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.3, 3)
            if module.affine:
                module.weight.normal_()
                module.bias.normal_()
    return model.eval()


CONVOLUTIONS = {
    "plain": (nn.Conv2d(3, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), (2, 3, 7, 9)),
    "bias": (nn.Conv2d(4, 6, 3, stride=2), nn.BatchNorm2d(6), (1, 4, 11, 11)),
    "grouped": (nn.Conv2d(6, 9, (1, 3), groups=3), nn.BatchNorm2d(9, eps=1e-2), (2, 6, 5, 8)),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.BatchNorm2d(8, affine=False), (1, 8, 6, 5)),
    "1d": (nn.Conv1d(3, 7, 5, dilation=2), nn.BatchNorm1d(7), (3, 3, 17)),
    "3d": (nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3), (1, 2, 4, 5, 3)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), nn.BatchNorm2d(6), (2, 4, 5, 6)),
    "transposed_grouped": (nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6), (2, 4, 5, 6)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_batch_norm_goes_into_the_convolution(case):
    convolution, norm, shape = CONVOLUTIONS[case]
    model = trained(nn.Sequential(convolution, norm, nn.ReLU()))
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(shape)
    expected = model(x)
    result = compiled(model)(x)
    assert result.stride() == expected.stride()
    assert relative_error(result, model, x) < 3e-7
    freezing = kiln.explain(model, x, options=FREEZING).graphs[0].freezing
    assert (freezing.convolutions, freezing.scales) == (1, 0)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_batch_norm_alone_is_a_scale_and_a_shift():
    model = trained(nn.Sequential(nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 3, 1)))
    x = torch.randn(2, 5, 7, 3)
    explanation = kiln.explain(model, x, options=FREEZING)
    assert (explanation.graphs[0].freezing.convolutions, explanation.graphs[0].freezing.scales) == (0, 1)
    assert "1 as scale and shift" in explanation.to_text()
    assert relative_error(compiled(model)(x), model, x) < 3e-7


def test_a_convolution_that_is_read_twice_keeps_its_weight():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            return y + self.norm(y)

    model = trained(Model())
    x = torch.randn(2, 3, 6, 6)
    assert kiln.explain(model, x, options=FREEZING).graphs[0].freezing.convolutions == 0
    assert relative_error(compiled(model)(x), model, x) < 3e-7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    convolution = nn.Conv2d(3, 8, 3, bias=False)
    model = trained(nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 7)).to(dtype))
    x = torch.randn(3, 3, 6, 6, dtype=dtype)
    result = compiled(model)(x)
    assert result.dtype == dtype
    assert relative_error(result, model, x) < (1e-14 if dtype == torch.float64 else 1e-2)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_not_rounded_twice(dtype, target):
    """Where the terms of a convolution cancel, what is left is as exact as its weights are."""
    model = trained(nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)).to(dtype))
    model[0].weight.copy_(torch.tensor([1.0, -3.0]).reshape(1, 2, 1, 1).expand(4, 2, 1, 1))
    model[1].weight.copy_(torch.tensor([1.1, 0.9, -1.3, 0.7]))
    x = torch.tensor([3.0, 1.0]).reshape(1, 2, 1, 1).expand(2, 2, 3, 5).to(dtype) * 100
    options = {**FREEZING, "target": target}
    freezing = kiln.explain(model, x, options=options).graphs[0].freezing
    assert (freezing.convolutions, freezing.scales) == (0, 1)
    result = torch.compile(model, backend="kiln", options=options)(x)
    assert relative_error(result, model, x) < torch.finfo(dtype).eps
    assert result.dtype == dtype


def test_what_is_computed_from_parameters_alone_is_computed_once():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)
            self.register_buffer("steps", torch.arange(6.0))

        def forward(self, x):
            weight = torch.cat([self.q.weight, self.k.weight * 2]).to(torch.float64).float()
            return (x @ weight.t()) * torch.cos(self.steps)[:, None]

    model = Model()
    x = torch.randn(6, 8)
    torch.testing.assert_close(compiled(model)(x), model(x))
    report = kiln.explain(model, x, options=FREEZING).graphs[0]
    assert {decision.op for decision in report.decisions} <= {"torch.aten.mm", "torch.aten.mul.Tensor"}
    assert report.freezing.inputs == 3
    assert report.freezing.new_bytes == 4 * (16 * 8 + 6)


def test_a_parameter_alone_is_no_new_memory():
    model = nn.Linear(32, 16)
    report = kiln.explain(model, torch.randn(3, 32), options=FREEZING).graphs[0]
    assert (report.freezing.new_bytes, report.freezing.bytes) == (0, 4 * (32 * 16 + 16))


def test_broadcasts_of_parameters_are_not_stored():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(1, 1024))

        def forward(self, x):
            return x + self.w.expand(1024, 1024).clone()

    model = Model()
    x = torch.randn(1024, 1024)
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert kiln.explain(model, x, options=FREEZING).graphs[0].freezing.new_bytes == 0


def test_replaced_parameters_are_seen():
    model = nn.Linear(5, 4)
    x = torch.randn(3, 5)
    run = compiled(model)
    torch.testing.assert_close(run(x), model(x))
    for _ in range(2):
        model.weight = nn.Parameter(torch.randn(4, 5))
        torch.testing.assert_close(run(x), model(x))


def test_parameters_changed_in_place_are_seen():
    model = nn.Linear(5, 4)
    x = torch.randn(3, 5)
    run = compiled(model)
    torch.testing.assert_close(run(x), model(x))
    model.weight.mul_(2)
    torch.testing.assert_close(run(x), model(x))
    model.load_state_dict({"weight": torch.ones(4, 5), "bias": torch.zeros(4)})
    torch.testing.assert_close(run(x), model(x))


def test_layers_that_share_their_code():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x):
            return torch.relu(self.linear(x))

    layers = [Layer() for _ in range(12)]  # more than are compiled for
    for layer in layers:
        layer.compile(backend="kiln", options=FREEZING)
    for _ in range(2):
        x = torch.randn(2, 6)
        for layer in layers:
            torch.testing.assert_close(layer(x), layer.forward(x))


def test_mutated_buffers_are_not_frozen():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 8))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.proj = nn.Linear(8, 8)

        def forward(self, x, row):
            self.cache.index_copy_(0, row, self.proj(x)[None])
            self.count += 1
            return self.cache.sum(0) * self.count

    eager, ours = Cache(), None
    ours = copy.deepcopy(eager)
    run = compiled(ours)
    for row in torch.tensor([[1], [2], [1]]):
        x = torch.randn(8)
        torch.testing.assert_close(run(x, row), eager(x, row))
        torch.testing.assert_close(ours.cache, eager.cache)
        assert int(ours.count) == int(eager.count)


def test_training_statistics_are_not_frozen():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    eager = copy.deepcopy(model)
    run = compiled(model)
    for _ in range(3):
        x = torch.randn(4, 3, 6, 6)
        torch.testing.assert_close(run(x), eager(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[1].running_var, eager[1].running_var)
    assert int(model[1].num_batches_tracked) == 3


def test_outputs_that_are_parameters_or_computed_from_them():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x), self.linear.weight, self.linear.weight.t(), self.linear.bias * 2

    model = Model()
    run = compiled(model)
    _, weight, transposed, doubled = run(torch.randn(2, 4))
    assert weight is model.linear.weight
    assert transposed.data_ptr() == model.linear.weight.data_ptr()
    doubled.zero_()
    torch.testing.assert_close(run(torch.randn(2, 4))[3], model.linear.bias * 2)


def test_tied_weights():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.embedding(tokens)))

    model = Model()
    tokens = torch.randint(20, (2, 5))
    torch.testing.assert_close(compiled(model)(tokens), model(tokens))
    freezing = kiln.explain(model, tokens, options=FREEZING).graphs[0].freezing
    assert (freezing.bytes, freezing.new_bytes) == (4 * 20 * 8, 0)


@pytest.mark.parametrize("dynamic", [True, None])
def test_dynamic_shapes(dynamic):
    model = trained(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()))
    run = compiled(model, dynamic=dynamic)
    for batch, size in ((1, 8), (3, 9), (2, 5)):
        x = torch.randn(batch, 3, size, size + 1)
        assert relative_error(run(x), model, x) < 3e-7


def test_with_gradients_nothing_is_frozen():
    model = nn.Linear(4, 3)
    x = torch.randn(2, 4)
    with torch.enable_grad():
        run = compiled(model)
        run(x).sum().backward()
        text = kiln.explain(model, x, options=FREEZING).to_text()
    assert "not frozen: grad mode is on" in text
    torch.testing.assert_close(model.weight.grad, x.sum(0).expand(3, 4))


def test_inference_mode():
    with torch.inference_mode():
        model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))  # inference tensors have no version
        run = compiled(model)
        for _ in range(2):
            x = torch.randn(1, 3, 5, 5)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_random_ops_are_not_frozen():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(64))

        def forward(self, x):
            return x + torch.bernoulli(self.w * 0.5)

    run = compiled(Model())
    assert not torch.equal(run(torch.zeros(64)), run(torch.zeros(64)))


@pytest.mark.parametrize("groups, kernel", [(1, 3), (2, 3), (12, 3), (1, 1)])
def test_packed_weights(groups, kernel):
    """Kernels read frozen weights in their own order, through the plan, from a cache as well."""
    model = nn.Sequential(nn.Conv2d(3, 12, 3), nn.Conv2d(12, 12, kernel, groups=groups), nn.ReLU(), nn.Conv2d(12, 5, 1))
    for shape in ((2, 3, 9, 8), (1, 3, 6, 7)):
        x = torch.randn(shape)
        assert relative_error(compiled(model, dynamic=False)(x), model, x) < 5e-7
        torch._dynamo.reset()
        assert relative_error(compiled(model, dynamic=False)(x), model, x) < 5e-7


class Gated(nn.Module):
    """A gated unit and a norm behind products: kernels of several phases."""

    def __init__(self, size, hidden):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(size, hidden),
            nn.Linear(size, hidden, bias=False),
            nn.Linear(hidden, size),
        )
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return self.norm(x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x)))


class Projections(nn.Module):
    """Products of one input in one kernel, of different widths; a matrix stored [k, n]; one weight read twice."""

    def __init__(self, size):
        super().__init__()
        self.q, self.k = nn.Linear(size, size), nn.Linear(size, size // 2 + 3, bias=False)
        self.w = nn.Parameter(torch.randn(size, 70))

    def forward(self, x):
        return torch.cat([self.q(x), self.k(x), x @ self.w, self.q(torch.tanh(x))], -1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(4,), (1, 37), (2, 17), (3, 64)])
@pytest.mark.parametrize("model", [lambda: Gated(96, 176), lambda: Projections(64)], ids=["gated", "projections"])
def test_packed_products(model, shape, threads):
    model, x = model(), torch.randn(*shape, 96 if model().__class__ is Gated else 64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        report = kiln.explain(model, x, options={**FREEZING, "cache": False}).graphs[0]
        assert report.stages["pack-constants"] > 0
        # Panels are padded to what registers hold: not at all where that divides the columns.
        assert report.constant_bytes >= sum(p.nbytes for p in model.parameters())
        assert relative_error(compiled(model)(x), model, x) < 5e-7
    finally:
        torch.set_num_threads(before)


def test_products_with_dynamic_rows_read_the_weight_as_it_is():
    model = nn.Linear(64, 96)
    run = compiled(model, dynamic=True)
    for rows in (1, 5, 200):
        x = torch.randn(rows, 64)
        assert relative_error(run(x), model, x) < 5e-7
