# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import torch
import torch.nn.functional as F

import kiln
from kiln.runtime.profile import current_recording


def model(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    hidden = F.gelu(x @ w)
    return torch.softmax(torch.linalg.matrix_exp(hidden @ v), -1)


def test_every_launch_and_call_is_timed() -> None:
    torch.manual_seed(0)
    x, w, v = torch.randn(48, 32), torch.randn(32, 64), torch.randn(64, 48) / 64
    profile = kiln.profile(model, x, w, v, calls=3)
    kinds = [launch.kind for launch in profile.launches]
    assert "aten" in kinds and kinds.count("matmul") == 2
    assert all(len(launch.seconds) == 3 for launch in profile.launches)
    first = next(launch for launch in profile.launches if launch.kind == "matmul")
    assert first.results == ((48, 64),) and first.work == 48 * 64 * 32
    assert profile.kernels > 0 and profile.call > 0
    text = profile.to_text()
    assert f"{len(kinds)} launches" in text and "48x64" in text and "aten.linalg_matrix_exp" in text
    assert current_recording() is None


def test_what_is_timed_computes_the_same() -> None:
    """Launches that are called one by one, from a table each, give the results of the graph as a whole."""
    from kiln.runtime.profile import recording

    torch.manual_seed(0)
    x, w, v = torch.randn(48, 32), torch.randn(32, 64), torch.randn(64, 48) / 64
    with recording() as recorded:
        timed = torch.compile(model, backend="kiln", options={"fallback": False, "cache": False}, dynamic=True)
        for rows in (48, 5):
            found = timed(x[:rows], w, v[:, :rows])
            torch.testing.assert_close(found, model(x[:rows], w, v[:, :rows]))
    assert {launch.results[0] for launch in recorded.launches if launch.kind == "matmul"} >= {(48, 64), (5, 64)}
