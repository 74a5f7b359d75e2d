# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``docs/algebra.md`` is what the rules say."""

from pathlib import Path

from kiln.passes.algebra.document import document

PAGE = Path(__file__).resolve().parents[2] / "docs" / "algebra.md"


def test_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), (
        "run python -m kiln.passes.algebra.document > docs/algebra.md"
    )
