# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The newest ptxas of Triton's assembles Kiln's kernels, and nobody else's."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kiln.lowering.gpu import assembler
from kiln.lowering.gpu.assembler import assembler_version, newest_assembler
from kiln.lowering.gpu.compile import compile_ttir, triton_problem

pytestmark = pytest.mark.skipif(triton_problem() is not None, reason="needs Triton")

OLD = SimpleNamespace(path="/nowhere/ptxas", version="12.8")
COPY = """"builtin.module"() ({
  "tt.func"() ({ "tt.return"() : () -> () }) {sym_name = "nothing", sym_visibility = "public", function_type = () -> (),
    arg_attrs = [], noinline = false} : () -> ()
}) : () -> ()
"""


@pytest.fixture
def triton_with_an_old_one(monkeypatch: pytest.MonkeyPatch) -> Any:
    from triton.backends.nvidia import compiler

    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    monkeypatch.setattr(compiler, "get_ptxas", lambda arch: OLD)
    return compiler


def test_releases_that_make_wrong_code_are_not_used() -> None:
    assert assembler_version(80) >= (12, 9)
    assert assembler_version(90) >= (12, 9)


def test_the_newer_one_is_taken_for_kernels_of_this_thread_alone(triton_with_an_old_one: Any) -> None:
    found: list[Any] = []
    with newest_assembler():
        with newest_assembler():
            pass
        mine = triton_with_an_old_one.get_ptxas(90)
        other = threading.Thread(target=lambda: found.append(triton_with_an_old_one.get_ptxas(90)))
        other.start()
        other.join()
    assert mine.version != OLD.version
    assert found == [OLD]
    assert triton_with_an_old_one.get_ptxas(90) is OLD


def test_a_kernel_is_assembled_by_it(
    triton_with_an_old_one: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert compile_ttir(COPY, "sm_90").binary, "the old one is nowhere"


def test_the_user_s_choice_is_respected_with_a_warning(
    triton_with_an_old_one: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", OLD.path)
    assembler._warn_of.cache_clear()
    assert assembler_version(90) == (12, 8)
    assert assembler_version(90) == (12, 8)
    assert [r.message for r in caplog.records].count(
        "TRITON_PTXAS_PATH is ptxas 12.8, which makes wrong code of some kernels: take 12.9"
    ) == 1


def test_the_user_s_choice_is_part_of_the_cache_s_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from kiln.frontend.cache.graph_key import version_text

    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    before = version_text.__wrapped__()
    monkeypatch.setenv("TRITON_PTXAS_PATH", OLD.path)
    assert version_text.__wrapped__() != before
