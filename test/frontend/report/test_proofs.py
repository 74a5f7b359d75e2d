# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution proves each kernel of a GPU while it is compiled."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import kiln
import kiln.lowering.gpu.validate.proofs as proofs
from kiln.errors import AccessError, ProofError
from kiln.frontend.report import collect
from kiln.lowering.gpu.builder import Builder


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    chosen = {"target": "tt-cpu", "cache": False, "check": True, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=chosen)


def test_a_kernel_whose_proof_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler with a defect: stores lose their masks. With the fallback to ATen, too, it is no silent one."""
    store = Builder.store
    monkeypatch.setattr(
        Builder, "store", lambda b, pointer, value, mask=None, *rest: store(b, pointer, value, None, *rest)
    )
    with pytest.raises(BackendCompilerFailed) as caught:
        compiled(lambda x: torch.exp(x) + 1)(torch.randn(1000))
    error = caught.value.inner_exception.__cause__
    assert isinstance(error, ProofError) and "exp" in error.kernel
    assert 'bounds refuted: "tt.store"' in error.finding and "elements are 0 to 999" in error.finding
    assert "test_proofs.py:" in error.location and error.location in str(caught.value)
    message = r"kernel @.*test_proofs.py.*bounds refuted"
    with pytest.warns(RuntimeWarning, match=message), pytest.raises(AccessError):
        compiled(lambda x: torch.exp(x) + 1, check="warn")(torch.randn(1000))


def test_what_is_not_known_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time nothing is proved of stores, and a prover that fails proves nothing."""
    make = proofs.Proofs
    monkeypatch.setattr(proofs, "Proofs", lambda policy: make(policy, seconds=-1.0))
    with collect() as reports, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(lambda x: x + 1)(torch.ones(40)).sum() == 80
        monkeypatch.setattr(proofs, "validate_kernel", lambda *given: 1 // 0)
        assert compiled(lambda x: x + 2)(torch.ones(40)).sum() == 120
    first, second = (report.proved for report in reports)
    assert first is not None and first.kernels == 1
    assert any("disjoint unknown" in line and "no time left" in line for line in first.unknown)
    assert str(first).endswith(f"{len(first.unknown)} not known")
    assert second is not None and "no proof: ZeroDivisionError" in second.unknown[0]


def test_a_result_whose_elements_share_memory() -> None:
    with collect() as reports:
        compiled(lambda x: torch.arange(128).expand(2, 128))(torch.ones(2))
    proved = reports[0].proved
    assert proved is not None and proved.proved and ["share memory" in line for line in proved.unknown] == [True]


@pytest.mark.parametrize("options", [{"check": False}, {"target": "cpu"}])
def test_nothing_is_proved_where_nobody_asks(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "validate_kernel", lambda *given: pytest.fail("a kernel was looked at"))
    with collect() as reports:
        compiled(lambda x: x + 1, **options)(torch.randn(40))
    assert reports[0].executor == "kiln" and reports[0].proved is None


def test_a_stored_graph_keeps_what_was_proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    with collect() as reports:
        for _ in range(2):
            compiled(lambda x: x.exp() + 1, cache=True)(torch.randn(40))
    assert [report.cache for report in reports] == ["stored", "loaded"]
    assert reports[0].proved == reports[1].proved != None  # noqa: E711 - of both
