# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass options and pipeline text."""

import contextlib
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_mlir import ir

from kiln.errors import KilnError, PassOptionError, PipelineParseError, UnknownPassError
from kiln.passes import Pass, PipelineStep, parse_pipeline, pipeline_parser, register_pass
from kiln.passes.core import registered_passes
from kiln.passes.mlir_pass import MlirPass
from kiln.passes.options import options_of, parse_options


@register_pass
@dataclass
class ParserProbe(Pass):
    """A pass with every kind of option."""

    name = "parser-probe"
    flag: bool = False
    count: int = 3
    scale: float = 0.5
    label: str = ""
    tiles: list[int] = field(default_factory=list)
    pair: tuple[float, ...] = (1.0, 2.0)
    limit: int | None = None
    mode: Literal["greedy", "none"] = "greedy"
    callback: object = None

    def run(self, module: ir.Module) -> None: ...


def probe(text: str) -> ParserProbe:
    (step,) = parse_pipeline(text)
    assert isinstance(step.pass_, ParserProbe)
    return step.pass_


def test_defaults_and_types() -> None:
    assert [o.name for o in options_of(ParserProbe)] == [
        "flag", "count", "scale", "label", "tiles", "pair", "limit", "mode",
    ]  # fmt: skip
    assert [o.type_name for o in options_of(ParserProbe)][4:] == ["list[int]", "list[float]", "int|none", "greedy|none"]
    assert probe("parser-probe") == ParserProbe()
    assert probe("parser-probe{}") == ParserProbe()


def test_every_kind() -> None:
    made = probe("parser-probe{flag count=-7 scale=1e-3 label='a b,c' tiles=8,16 pair=[3] limit=4 mode=none}")
    assert made == ParserProbe(True, -7, 1e-3, "a b,c", [8, 16], (3.0,), 4, "none")
    assert probe("parser-probe{flag=false limit=none tiles={1 2 3}}") == ParserProbe(tiles=[1, 2, 3])


@given(
    st.builds(
        ParserProbe,
        flag=st.booleans(),
        count=st.integers(),
        scale=st.floats(allow_nan=False),
        label=st.text(st.sampled_from("ab ={}[],.-")),
        tiles=st.lists(st.integers()),
        limit=st.none() | st.integers(),
        mode=st.sampled_from(["greedy", "none"]),
    )
)
def test_spec_is_parsed_back(made: ParserProbe) -> None:
    assert probe(made.spec()) == made


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("coun=1", "pass 'parser-probe': unknown option 'coun'; did you mean 'count'?"),
        ("zzz=1", "unknown option 'zzz'; it has flag, count, scale"),
        ("count=x", "option 'count' expects int, found 'x'"),
        ("count", "option 'count' needs a value: count=<int>"),
        ("count=1 count=2", "option 'count' is given twice"),
        ("flag=maybe", "option 'flag' expects bool, found 'maybe'"),
        ("mode=gredy", "option 'mode' expects greedy|none, found 'gredy'"),
        ("tiles=1,x", "option 'tiles' expects list[int], found '1,x'"),
        ("callback=1", "unknown option 'callback'"),
        ("=3", "cannot read options at '=3'; write name=value"),
        ("label='a'b", "cannot read options at"),
    ],
)
def test_option_errors(options: str, message: str) -> None:
    with pytest.raises(PassOptionError) as caught:
        parse_options(ParserProbe, options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mixed_pipeline_is_flattened() -> None:
    steps = parse_pipeline("builtin.module(canonicalize, parser-probe{count=1}, func.func( cse )), any(cse)")
    assert [s.pass_.spec() for s in steps] == ["canonicalize", "parser-probe{count=1}", "func.func(cse)", "any(cse)"]
    assert parse_pipeline("  ") == []


def test_mlir_pass_on_functions_is_nested() -> None:
    (step,) = parse_pipeline("convert-torch-to-linalg")
    assert isinstance(step.pass_, MlirPass)
    assert step.pass_.pipeline == "builtin.module(func.func(convert-torch-to-linalg))"
    assert step.name == "convert-torch-to-linalg"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("parser-prob", UnknownPassError, "unknown pass 'parser-prob'; did you mean 'parser-probe'"),
        ("cse,canonicalise", UnknownPassError, "at column 5 of 'cse,canonicalise'; did you mean 'canonicalize'?"),
        ("cse,", PipelineParseError, "column 5 of 'cse,': expected a pass name, found the end"),
        ("cse)", PipelineParseError, "column 4 of 'cse)': unexpected ')'"),
        ("func.func(cse", PipelineParseError, "column 10 of 'func.func(cse': this '(' is never closed"),
        ("func.func(cse}", PipelineParseError, "expected ',', '(' or '{' after 'cse', found '}'"),
        ("cse{a", PipelineParseError, "column 4 of 'cse{a': this '{' is never closed"),
        ("cse{a(]}", PipelineParseError, "']' does not close '('"),
        ("cse canonicalize", PipelineParseError, "expected ',', '(' or '{' after 'cse', found 'c'"),
        ("$", PipelineParseError, "expected a pass name, found '$'"),
        ("func.func(parser-probe)", PipelineParseError, "Kiln pass 'parser-probe' works on the module"),
        ("canonicalize{nope=1}", PassOptionError, "pass 'canonicalize': no such option nope"),
    ],
)
def test_pipeline_errors(text: str, kind: type[KilnError], message: str) -> None:
    with pytest.raises(kind) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(st.sampled_from("ab-(){}[],= '\"."), max_size=12))
def test_parser_raises_its_own_errors_only(text: str) -> None:
    with contextlib.suppress(PipelineParseError):
        pipeline_parser._parse_items(text, 0, nested=False)


def test_step_from_text() -> None:
    step = PipelineStep("parser-probe{count=2}", "because", stage="fused")
    assert (step.name, step.why, step.stage) == ("parser-probe", "because", "fused")
    with pytest.raises(PipelineParseError, match="a step is one pass, found 2"):
        PipelineStep("cse,canonicalize")


def test_registration_rules() -> None:
    with pytest.raises(TypeError, match="needs a docstring"):
        register_pass(type("NoDoc", (Pass,), {"name": "no-doc"}))
    with pytest.raises(TypeError, match="lower-case dashed"):
        register_pass(type("Bad", (Pass,), {"name": "Bad_Name", "__doc__": "x"}))
    with pytest.raises(ValueError, match="'parser-probe' is defined by both"):
        register_pass(type("Other", (Pass,), {"name": "parser-probe", "__doc__": "x"}))
    assert registered_passes()["parser-probe"] is ParserProbe
