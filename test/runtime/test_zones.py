# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Guard zones: writes past a buffer are found that no kernel reports."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kiln
import kiln.runtime.executor as executor
from kiln.errors import AccessError
from kiln.runtime.checked.zones import PATTERN, ZONE


def compiled(function: Callable[..., Any], target: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    options = {"target": target, "check": True, "cache": False, "fallback": False}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


def chain(x: torch.Tensor) -> torch.Tensor:
    """Two running sums with a workspace between them."""
    return torch.cumsum(torch.cumsum(x, 0), 1) + 1


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(("place", "found"), [(None, ""), (-4, "in front of its start"), (0, "behind its end")])
@pytest.mark.parametrize("kind", ["tensor", "workspace"])
def test_a_write_past_a_buffer(
    target: str, place: int | None, found: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a library could do: behind a launch, one word beside a buffer is another one."""
    load = executor.Executor._load

    def loaded(self: executor.Executor, parts: Any) -> Any:
        binder, launch = load(self, parts)
        assert launch is not None

        def wrong(address: int) -> None:
            launch(address)
            zones = self._zones
            assert zones is not None
            if kind == "tensor":
                spots = [(r().ctypes.data + ZONE, n) for r, n in zones._tensors.values() if r() is not None]
            else:
                spots = list(written)
            for start, size in spots if place is not None else []:
                ctypes.c_int.from_address(start + (place or size)).value = 0

        return binder, wrong

    written: list[tuple[int, int]] = []
    before = executor.Executor._device_functions

    def functions(self: executor.Executor) -> dict[str, Any]:
        given = before(self)
        fill = given["fill_zones"]

        def filled(part: int, workspaces: Any, binding: Any) -> None:
            fill(part, workspaces, binding)
            assert self._zones is not None
            in_use = self._zones._in_use(part, workspaces, binding)
            written[:] = [(w.data_ptr() + start, size) for w, start, size, _ in in_use]

        return {**given, "fill_zones": filled}

    monkeypatch.setattr(executor.Executor, "_load", loaded)
    monkeypatch.setattr(executor.Executor, "_device_functions", functions)
    x = torch.randn(33, 33)
    run = compiled(chain, target)
    if place is None:
        torch.testing.assert_close(run(x), chain(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(run(x), chain(x), rtol=1e-4, atol=1e-4)
        return
    with pytest.raises(AccessError, match=f"kernel @.*test_zones.* writes at byte .*{found}"):
        run(x)


def test_tensors_with_zones() -> None:
    from kiln.runtime.checked.zones import Zones
    from kiln.runtime.plan import Plan

    zones = Zones(Plan("", 0, "cpu"))
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64):
        x = zones.empty((3, 5), (7, 1), dtype)
        assert x.stride() == (7, 1) and x.dtype == dtype and x.storage_offset() == 0
        assert x.data_ptr() % ZONE == 0 and ctypes.c_ubyte.from_address(x.data_ptr() - 1).value == PATTERN
    assert zones.empty((0, 5), (5, 1), torch.float32).shape == (0, 5)
