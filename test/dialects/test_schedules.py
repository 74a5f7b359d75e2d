# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every class of schedules: what is printed is parsed again, and what no schedule has is a verifier's error."""

import json
from dataclasses import MISSING, fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.context import create_context
from kiln.dialects.schedules import (
    InvalidSchedule,
    Schedule,
    from_attribute,
    from_plain,
    kernels,
    to_attribute,
    to_plain,
)
from kiln.dialects.schedules.base import IsPowerOfTwo

CONTEXT = create_context()
SETTINGS = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
PLACES = ("another", "missing", "unknown", "text")
"""Ways to make a schedule wrong: a value that its field does not allow, a field left out, one too many, an entry that is
no value of any."""


def values(type_: Any, depth: int) -> st.SearchStrategy[Any]:
    """Values that a field of this type may have."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        power = any(isinstance(rule, IsPowerOfTwo) for rule in arguments[1:])
        likely = st.sampled_from([16, 32, 1])  # few others are a register tile together
        return likely | (st.integers(0, 14).map(lambda n: 1 << n) if power else st.integers(1, 1 << 20))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0], depth), min_size=1, max_size=3).map(tuple)
    if origin in (Union, UnionType):
        return st.one_of(*(values(x, depth) for x in arguments))
    if type_ is type(None):
        return st.none()
    if isinstance(type_, type) and issubclass(type_, Schedule):
        return schedules_of(type_, depth + 1)
    return {bool: st.booleans(), int: st.integers(-100, 100), str: st.text(max_size=5), float: st.floats(-9, 9)}[type_]


def schedules_of(class_: type[Schedule], depth: int = 0) -> st.SearchStrategy[Any]:
    """Schedules of a class, or of the classes below it that have names."""
    below = [each for each in kernels().values() if issubclass(each, class_)] if not class_.kernel else []
    if below:
        leaves = [each for each in below if not any(nested(h) for h in get_type_hints(each).values())]
        return st.one_of(*(schedules_of(each, depth) for each in (below if depth < 2 else leaves)))
    hints = get_type_hints(class_, include_extras=True)
    made = st.builds(class_, **{field.name: values(hints[field.name], depth) for field in fields(class_)})
    return made.filter(is_consistent)


def nested(type_: Any) -> bool:
    """Whether values of a type hold schedules."""
    return isinstance(type_, type) and issubclass(type_, Schedule) or any(nested(x) for x in get_args(type_))


def is_consistent(schedule: Schedule) -> bool:
    try:
        schedule.check()
    except InvalidSchedule:
        return False
    return True


def module_text(schedule: str, parts: int = 1) -> str:
    several = f"parts = array<i64: {', '.join(map(str, range(parts)))}>, " if parts > 1 else ""
    results = ", ".join(["tensor<4xf32>"] * parts)
    names = ", ".join(f"%r{i}" for i in range(parts))
    generics = "".join(
        f"""
    %r{i} = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]}} ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {{
    ^bb1(%x{i}: f32, %o{i}: f32):
      %n{i} = arith.negf %x{i} : f32
      linalg.yield %n{i} : f32
    }} -> tensor<4xf32>"""
        for i in range(parts)
    )
    return f"""func.func @main(%x: tensor<4xf32>) {{
  %z:{parts} = "kiln.fusion"(%x) ({{
  ^bb0(%a: tensor<4xf32>):
    %e = "kiln.empty"() {{shape = affine_map<() -> (4)>}} : () -> tensor<4xf32>{generics}
    "kiln.yield"({names}) : ({results}) -> ()
  }}) {{kind = "pointwise", name = "negate", {several}schedule = {schedule}}} : (tensor<4xf32>) -> ({results})
  return
}}"""


def verified(schedule: str, parts: int = 1) -> Any:
    """The schedule of a fusion whose text has it. Raises what the verifier says."""
    with CONTEXT, ir.Location.unknown(CONTEXT):
        module = kiln.parse(module_text(schedule, parts))
        module.operation.verify()
        block = module.body.operations[0].regions[0].blocks[0]
        return from_attribute(block.operations[0].operation.attributes["schedule"])


def text_of(schedule: Schedule) -> str:
    with CONTEXT:
        return str(to_attribute(schedule))


@pytest.mark.parametrize("name", kernels())
def test_what_is_printed_is_parsed(name: str) -> None:
    @SETTINGS
    @given(schedules_of(kernels()[name]))
    def run(schedule: Any) -> None:
        assert from_plain(to_plain(schedule)) == schedule
        assert from_plain(json.loads(json.dumps(to_plain(schedule)))) == schedule
        count = len(schedule.parts) if name == "parts" else 1
        if name != "parts" or count > 1:
            assert verified(text_of(schedule), count) == schedule

    run()


@pytest.mark.parametrize("name", kernels())
def test_what_no_schedule_has_is_an_error(name: str) -> None:
    @SETTINGS
    @given(schedules_of(kernels()[name]), st.data())
    def run(schedule: Any, data: st.DataObject) -> None:
        plain = to_plain(schedule)
        way = data.draw(st.sampled_from(PLACES))
        required = [f.name for f in fields(schedule) if f.default is MISSING]
        if way == "missing" and required:
            del plain[data.draw(st.sampled_from(required))]
        elif way == "another":
            field = data.draw(st.sampled_from([f.name for f in fields(schedule)]))
            plain[field] = data.draw(st.sampled_from([-1, 1.5, "no such", {"kernel": "no.such"}, [{"kernel": 3}]]))
        elif way == "text":
            plain["kernel"] = data.draw(st.sampled_from(["", "cpu.gemm.none", 3, True]))
        else:
            plain["no_such_field"] = 1
        with pytest.raises(InvalidSchedule, match="expected .*, found "):
            from_plain(plain)

    run()


@pytest.mark.parametrize("kernel", ["cpu.gemm.dot", "cpu.gemm.int8_dot"])
@pytest.mark.parametrize(("nr", "rule"), [(3, "a power of two"), (16, "at most the lanes of a vector, 8")])
def test_sums_along_k_are_folded_to_lanes_of_one_vector(kernel: str, nr: int, rule: str) -> None:
    plain = {"kernel": kernel, "mr": 3, "nr": nr, "width": 8, "mc": 12, "nc": 16}
    with pytest.raises(InvalidSchedule, match=f"nr.*: expected {rule}, found {nr}"):
        from_plain(plain | ({"kc": 64} if kernel == "cpu.gemm.dot" else {}))


ATTENTION = {"mr": 16, "nv": 2, "width": 16, "queries": 64, "keys": 64}
TILES = {"mr": 32, "nv": 2, "width": 16, "mc": 256, "nc": 512, "kc": 512}
X3 = TILES | {"ks": 128, "transposed": False}


@pytest.mark.parametrize(
    ("kernel", "right", "wrong", "message"),
    [
        ("cpu.attention.flash", ATTENTION, {"mr": 17}, "at most the lanes of a vector, 16, found 17"),
        ("cpu.attention.flash", ATTENTION, {"width": 8}, "at most the lanes of a vector, 8, found 16"),
        ("cpu.attention.amx_bf16", ATTENTION, {"mr": 8}, "expected 16, found 8"),
        ("cpu.attention.amx_bf16", ATTENTION, {"width": 32}, "expected 16, found 32"),
        ("cpu.gemm.amx_bf16x3", X3, {"mr": 24}, "a multiple of the rows of a tile, 16, found 24"),
        ("cpu.gemm.amx_bf16x3", X3, {"width": 8}, "one of 16, found 8"),
        ("cpu.gemm.amx_bf16x3", X3, {"nv": 4}, "in 8 registers, found 4"),
        ("cpu.gemm.amx_bf16", TILES | {"ks": 64, "pack_lhs": True}, {"mr": 64}, "in 8 registers, found 2"),
        ("cpu.gemm.amx_int8", TILES, {"mr": 1}, "a multiple of the rows of a tile, 16, found 1"),
    ],
)
def test_register_tiles_fit_vectors_and_tile_registers(
    kernel: str, right: dict[str, Any], wrong: dict[str, int], message: str
) -> None:
    """Emitters rely on it: wrong rows of attention write behind their scratch memory."""
    assert to_plain(from_plain({"kernel": kernel} | right)) == {"kernel": kernel} | right
    with pytest.raises(InvalidSchedule, match=message):
        from_plain({"kernel": kernel} | right | wrong)


def test_a_wrong_schedule_is_an_error_of_the_verifier() -> None:
    for name, class_ in kernels().items():
        if name != "parts":
            with pytest.raises(Exception, match=f"schedule {name} field '{fields(class_)[0].name}'.*expected"):
                verified(f'{{kernel = "{name}", {fields(class_)[0].name} = unit}}')
    with pytest.raises(Exception, match="a schedule for each of 1 parts"):
        verified('{kernel = "parts", parts = [{}, {}]}')
