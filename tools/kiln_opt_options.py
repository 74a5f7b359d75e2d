# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The command line of ``kiln-opt``."""

import argparse
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kiln.errors import KilnError, did_you_mean
from kiln.inserts import Insert

__all__ = ["Options", "parse_arguments"]


@dataclass
class Options:
    """What was asked for; field names follow the options."""

    input: str = "-"
    output: str = "-"
    passes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """In the order given: ("pipeline", the name of a target's) and ("pass_pipeline", text)."""
    until: str = ""
    inserts: list[Insert] = field(default_factory=list[Insert])
    start: str = ""
    print_pipeline: bool = False
    cpu: str = ""
    gpu: str = ""
    load: list[str] = field(default_factory=list[str])
    list_passes: str = ""
    split_input_file: bool = False
    verify_diagnostics: str = ""
    verify_each: bool = True
    allow_unregistered_dialect: bool = False
    verify_numerics: bool = False
    verify_kernels: str = ""
    inputs: str = ""
    check_stage: str = ""
    print_before: list[str] = field(default_factory=list[str])
    print_after: list[str] = field(default_factory=list[str])
    print_before_all: bool = False
    print_after_all: bool = False
    print_after_change: bool = False
    debug_info: bool = False
    generic: bool = False
    local_scope: bool = False
    emit: str = ""
    timing: bool = False
    statistics: bool = False
    remarks: bool = False
    dump_stages: str = ""
    reproducer_dir: str = ""


# Options whose value may be left out; argparse's own way of that would take the input file for the value.
_BARE = {"--list-passes": "long", "--verify-diagnostics": "all"}


class _Passes(argparse.Action):
    """``--pass-pipeline`` and ``--pipeline``, in their order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        kind = str(option_string).removeprefix("--").replace("-", "_")
        earlier = dict(namespace.passes)
        if kind == "pipeline" and kind in earlier:
            raise KilnError(f"--pipeline is given twice: {earlier[kind]!r} and {values!r}")
        namespace.passes = [*namespace.passes, (kind, values)]


class _Inserts(argparse.Action):
    """``--insert-after=PASS:TEXT`` and ``--insert-before``, in their order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        place, colon, text = str(values).partition(":")
        if not (place and colon and text):
            raise KilnError(f"{option_string} expects PASS:TEXT, found {values!r}")
        where = str(option_string).removeprefix("--insert-")
        namespace.inserts = [*namespace.inserts, Insert(text, **{where: place})]


class _Once(argparse.Action):
    """An option of which the last one would silently count."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier not in (self.default, values):
            raise KilnError(f"{option_string} is given twice: {earlier!r} and {values!r}")
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise KilnError(message)


def parse_arguments(argv: list[str]) -> Options:
    """Raises :class:`KilnError` for a wrong command line, naming near options."""
    parser = _make_parser()
    argv = [f"{a}={_BARE[a]}" if a in _BARE else a for a in argv]
    namespace, rest = parser.parse_known_args(argv)
    if rest:
        known = [o for a in parser._actions for o in a.option_strings]
        if rest[0].startswith("-") and rest[0] != "-":
            name = rest[0].split("=", 1)[0]
            raise KilnError(f"unknown option {name!r}{did_you_mean(name, known) or '; see kiln-opt --help'}")
        raise KilnError(f"one input file at most, found {rest[0]!r} as well")
    return Options(**vars(namespace))


def _make_parser() -> argparse.ArgumentParser:
    p = _Parser(
        prog="kiln-opt",
        allow_abbrev=False,
        description="Run Kiln's and MLIR's passes on .mlir text.",
        epilog="example: kiln-opt --pass-pipeline='func.func(canonicalize),fuse{strategy=search}' in.mlir",
    )
    add = p.add_argument
    once: dict[str, Any] = {"default": "", "action": _Once}
    add("input", nargs="?", default="-", help="input file; - or nothing reads standard input")
    add(
        "-o", dest="output", action=_Once, default="-", metavar="FILE", help="output file; standard output unless given"
    )
    several = "passes to run; may be repeated, and stand before or behind --pipeline"
    add("--pass-pipeline", dest="passes", action=_Passes, default=[], metavar="TEXT", help=several)
    whole = "run the whole pipeline of a target: cpu, gpu, tt-cpu, or one that a package or --load brings"
    add("--pipeline", dest="passes", action=_Passes, default=[], metavar="NAME", help=whole)
    add("--until", **once, metavar="STAGE", help="stop that pipeline when this stage is complete")
    start = "start it behind this stage; by default as the input's name says (x.fused.mlir), else with its first pass"
    add("--from", dest="start", **once, metavar="STAGE", help=start)
    behind = "passes behind a pass, or a stage, of that pipeline; may be repeated"
    add("--insert-after", dest="inserts", action=_Inserts, default=[], metavar="PASS:TEXT", help=behind)
    add("--insert-before", dest="inserts", action=_Inserts, default=[], metavar="PASS:TEXT", help="passes before it")
    add("--print-pipeline", action="store_true", help="print the passes as text for --pass-pipeline, and exit")
    cpu = "make schedules and kernels for this CPU, which need not be there: x86-64-v4+amx-tile+amx-bf16+l2=2097152"
    add("--cpu", **once, metavar="NAME", help=cpu)
    add(
        "--gpu",
        **once,
        metavar="NAME",
        help="the GPU of --pipeline=gpu, which need not be there: sm_80, sm_100, gfx942",
    )
    add("--load", action="append", default=[], metavar="FILE.py", help="a Python file that registers more passes")
    add(
        "--list-passes",
        default="",
        choices=["long", "names"],
        help="list Kiln's passes with their options, types and defaults, and exit",
    )
    add("--split-input-file", action="store_true", help="process the parts between '// -----' lines separately")
    add(
        "--verify-diagnostics",
        default="",
        choices=["all", "only-expected"],
        help="check diagnostics against the expected-error/-warning/-remark/-note comments",
    )
    add(
        "--verify-each",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the verifier after each pass (on unless --no-verify-each)",
    )
    add(
        "--verify-numerics",
        action="store_true",
        help="run the module before and after each pass on random inputs; a pass that changes numbers fails",
    )
    add(
        "--verify-kernels",
        **once,
        choices=["cpu", "tt-cpu", "cuda"],
        help="behind the pipeline, compile the module's kernels for a target, run them, and compare numbers",
    )
    add(
        "--inputs",
        **once,
        metavar="FILE.pt",
        help="compare numbers on these inputs as well (a list of tensors)",
    )
    add("--allow-unregistered-dialect", action="store_true", help="accept ops of unknown dialects")
    add(
        "--check-stage",
        **once,
        metavar="STAGE",
        help="check the result against the invariants of a stage",
    )
    add("--print-ir-before", dest="print_before", action="append", default=[], metavar="PASS", help="print before PASS")
    add("--print-ir-after", dest="print_after", action="append", default=[], metavar="PASS", help="print after PASS")
    add("--print-ir-before-all", dest="print_before_all", action="store_true", help="print before every pass")
    add("--print-ir-after-all", dest="print_after_all", action="store_true", help="print after every pass")
    add("--print-ir-after-change", dest="print_after_change", action="store_true", help="print after changes")
    add("--mlir-print-debuginfo", dest="debug_info", action="store_true", help="print locations")
    add("--mlir-print-op-generic", dest="generic", action="store_true", help="print ops in generic form")
    add(
        "--mlir-print-local-scope", dest="local_scope", action="store_true", help="print attributes in full, no aliases"
    )
    add(
        "--emit",
        "--print-kernels",
        dest="emit",
        **once,
        choices=["asm", "obj", "ttir", "ttgir", "llir", "ptx", "sass"],
        help="print machine code of each kernel, as it runs: assembly for CPUs, one of Triton's stages, or SASS; "
        "obj writes objects to the folder that -o names",
    )
    add("--timing", action="store_true", help="print the wall time of each pass")
    add("--statistics", action="store_true", help="print what passes counted")
    add("--remarks", action="store_true", help="report passes' remarks (why an op was or was not rewritten)")
    add("--dump-stages", **once, metavar="DIR", help="write NN-<pass>.mlir to DIR after each pass")
    add(
        "--reproducer-dir",
        **once,
        metavar="DIR",
        help="on failure write the failing pass's input to DIR",
    )
    return p
