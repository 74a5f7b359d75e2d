# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Results whose size depends on data: in graphs of their own, and inside of one graph; on a GPU where there is one."""

from collections.abc import Callable

import pytest
import torch
from torch._dynamo import config

import kiln

_NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
_BF16, _F16, _F32 = torch.bfloat16, torch.float16, torch.float32
_PLACES = [
    pytest.param("cpu", "cpu", _F32, id="cpu"),
    pytest.param("cpu", "tt-cpu", _BF16, id="loops"),
    *(pytest.param("cuda", "", dtype, id=f"gpu-{dtype}", marks=_NO_GPU) for dtype in (_BF16, _F16, _F32)),
]


def _written(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[mask] = x[mask] * 3
    return y


_PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "nonzero": lambda x, mask: torch.nonzero(x.relu() > 0.5) * 2,
    "mask": lambda x, mask: x[mask] * 2 + 1,
    "unique": lambda x, mask: torch.unique((x * 2).round()) + 1,
    "masked_select": lambda x, mask: torch.masked_select(x * 2, mask).relu() + 1,
    "argwhere": lambda x, mask: torch.argwhere(mask.logical_not()) + 1,
    "cumsum of a mask": lambda x, mask: x[mask].cumsum(0) * 0.5,
    "least of a number": lambda x, mask: torch.min(x, torch.tensor(0.5, dtype=x.dtype, device=x.device)) + 1,
    "written through a mask": _written,
}


@pytest.mark.parametrize("in_one_graph", [False, True], ids=["graph break", "one graph"])
@pytest.mark.parametrize(("device", "target", "dtype"), _PLACES)
@pytest.mark.parametrize("name", _PROGRAMS)
def test_as_eager(name: str, device: str, target: str, dtype: torch.dtype, in_one_graph: bool) -> None:
    """Nothing but the backend's own errors is caught by its fallback: an assertion out of it would end the program."""
    program = _PROGRAMS[name]
    torch._dynamo.reset()
    settings = {"capture_dynamic_output_shape_ops": in_one_graph, "capture_scalar_outputs": in_one_graph}
    with config.patch(settings):
        options = {"cache": False} | ({"target": target} if target else {})
        call = torch.compile(program, backend=kiln.backend, fullgraph=in_one_graph, options=options)
        for seed, bound in ((0, 0.3), (1, -0.4), (2, 100.0)):  # the last mask hides all
            x = torch.randn(37, 50, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
            mask = x > bound
            expected, found = program(x, mask), call(x, mask)
            assert found.shape == expected.shape and found.dtype == expected.dtype
            if expected.is_floating_point():
                # CUDA's running sums of 16 bits are rounded at each step: eager is no measure there.
                expected = program(x.double(), mask).to(dtype)
            limit = {_BF16: 2e-2, _F16: 3e-3, _F32: 1e-5}[dtype]
            torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
