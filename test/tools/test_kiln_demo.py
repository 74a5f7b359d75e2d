# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The command line of kiln-demo."""

import pytest

from kiln.tools.kiln_demo import main


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--layers=-1", "argument --layers: a positive number expected, found '-1'"),
        ("--batch=0", "argument --batch: a positive number expected, found '0'"),
        ("--repeat=many", "argument --repeat: a positive number expected, found 'many'"),
        ("--width=200", "argument --width: a multiple of 64, the width of a head, expected, found 200"),
    ],
)
def test_sizes_that_no_model_has(argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as found:
        main([argument])
    assert found.value.code == 2
    assert capsys.readouterr().err.endswith(f"kiln-demo: error: {message}\n")
