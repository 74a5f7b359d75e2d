# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``mode=`` and ``options=`` of ``torch.compile(..., backend="kiln")``, typed and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import typing_extensions

from kiln.errors import BackendOptionError, KilnError
from kiln.frontend import knobs
from kiln.frontend.report.trace.session import is_gathering
from kiln.inserts import Insert, installed
from kiln.lowering.cpu import isa
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import is_built_in, target_names
from kiln.lowering.ttcpu.settings import Settings
from kiln.schedules import Rule

__all__ = ["CHECKS", "MODES", "VERIFY", "Options", "matmul_precision"]

#: The modes ``torch.compile`` knows. On the CPU there are no CUDA graphs: ``reduce-overhead`` is ``default``, and the
#: two others try schedules (``passes/autotune_cpu.py``).
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


#: What is verified after each pass.
VERIFY = ("", "numerics", "stages")


#: What checked execution does with a kernel that is off (``kiln.runtime.checked``); empty: there is none.
CHECKS = ("", "error", "warn")


def _tf32() -> bool:
    """Whether PyTorch's own products may use TF32 now (torch.set_float32_matmul_precision)."""
    import torch

    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # settings of the older and the newer interface are mixed
        return False


def matmul_precision() -> str:
    """PyTorch's settings of how exact products of f32 are, as text: of all, and of those on the CPU."""
    import torch

    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:
        general = "mixed"
    return f"{general}, CPU {_cpu_precision()}"


def _cpu_precision() -> str:
    """PyTorch's setting for products of f32 on the CPU alone: ieee, tf32, bf16 or none."""
    import torch

    return str(getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", "none"))


def _deterministic() -> bool:
    """Whether PyTorch is asked for deterministic algorithms now (torch.use_deterministic_algorithms)."""
    import torch

    return torch.are_deterministic_algorithms_enabled()


@dataclass(frozen=True)
class Options(PipelineOptions):
    """Settings of one compilation; the fields are the keys of ``options=`` (``mode`` as well: ``torch.compile`` takes
    ``mode=`` or ``options=``, not both).
    """

    fallback: bool = field(
        default_factory=knobs.fallback,
        metadata={"help": "run a graph that fails to compile with ATen (warning once) instead of raising"},
    )
    debug_dir: str = field(
        default_factory=lambda: str(knobs.dump_dir() or ""),
        metadata={"help": "folder for the IR of every stage of every graph; empty: none"},
    )
    override: str = field(
        default_factory=lambda: str(knobs.override_dir() or ""),
        metadata={"help": "folder of a dump: its edited files are compiled in place of what passes make; empty: none"},
    )
    trace_html: str = field(
        default_factory=knobs.trace_html,
        metadata={"help": "an HTML file to write the trace of every graph to (docs/trace.md); empty: none"},
    )
    freezing: bool = field(
        default=False,
        metadata={"help": "parameters and buffers become constants of inference graphs (grad mode off)"},
    )
    cache: bool = field(
        default_factory=knobs.cache,
        metadata={"help": "load graphs that were compiled before, in any process, and keep those compiled now"},
    )
    trace: bool = field(default_factory=knobs.verbose, metadata={"help": "print one line per compiled graph to stderr"})
    pipeline: str = field(default="", metadata={"help": "a pass pipeline that replaces the target's"})
    passes: tuple[Insert, ...] = field(
        default=(), metadata={"help": "own passes in the pipeline: a list of kiln.Insert"}
    )
    cpu: str = field(
        default="",
        metadata={"help": "the processor to make code for: native (the default), x86-64, x86-64-v2, -v3, -v4[+SET]"},
    )
    target: str = field(
        default_factory=knobs.target,
        metadata={"help": "one of the targets' names; empty: by where the graph's tensors are"},
    )
    tt_cpu: str = field(
        default_factory=knobs.tt_cpu,
        metadata={"help": "what target tt-cpu does like a GPU, as in 'order=reversed seed=3'; see docs/tt-cpu.md"},
    )
    tf32: bool = field(
        default_factory=_tf32,
        metadata={
            "help": "tensor cores of a GPU may round f32 operands, and a CPU's AMX may multiply them as parts in bf16; "
            "by default as PyTorch's settings say"
        },
    )
    deterministic: bool = field(
        default_factory=_deterministic,
        metadata={"help": "a GPU adds in the same order each time; by default as PyTorch's settings say"},
    )
    replays: bool = field(
        default=True,
        metadata={"help": "a GPU's launches at addresses that earlier calls had are replayed as one CUDA graph"},
    )
    nvtx: bool = field(
        default_factory=knobs.nvtx,
        metadata={"help": "a GPU's kernels are launched one by one, in NVTX ranges with the model's lines"},
    )

    verify: str = field(
        default="",
        metadata={
            "help": "after each pass: stages: what may be in a stage is checked; numerics: numbers are compared, too. "
            "The first pass that breaks something is an error"
        },
    )
    check: str = field(
        default_factory=knobs.check,
        metadata={"help": "compare what each kernel writes with its IR: True or error, warn, or empty: off"},
    )

    @property
    def inserts(self) -> tuple[Insert, ...]:
        """Own passes: those of installed packages, and those that were given."""
        return (*installed(), *self.passes)

    @property
    @typing_extensions.override
    def is_strict(self) -> bool:
        return not self.fallback

    @property
    @typing_extensions.override
    def shares_kernels(self) -> bool:
        if self.debug_dir or self.override:  # a dump has the code of all kernels
            return False
        return not (self.trace_html or is_gathering())

    @property
    def float_parts(self) -> bool:
        """Whether products of f32 on the CPU are to be made of bf16 (`contraction/parts.py`): their error is that of
        f32, but with "highest" precision PyTorch promises f32 itself.
        """
        setting = _cpu_precision()
        return setting in ("tf32", "bf16") or self.tf32 and not (setting == "ieee" and _tf32())

    @classmethod
    def build(cls, mode: str | None = None, options: Mapping[str, Any] | None = None) -> "Options":
        """Check and collect what ``torch.compile`` passed on.

        Raises:
            BackendOptionError: an unknown mode or option (naming the near ones) or a value of the wrong type.
        """
        known = {f.name: f for f in fields(cls)}
        if options is not None and not isinstance(options, Mapping):
            raise BackendOptionError(f"options must be a dict, found {type(options).__name__}")
        values: dict[str, Any] = {} if mode is None else {"mode": mode}
        for name, value in (options or {}).items():
            if name not in known:
                raise BackendOptionError(f"unknown option {name!r}; options are {', '.join(known)}", str(name), known)
            expected = known[name].type
            if name == "passes":
                values[name] = _inserts(value)
                continue
            if name == "schedules":
                values[name] = _rules(value)
                continue
            if name == "check" and isinstance(value, bool):
                value = "error" if value else ""
            accepted = _PYTHON_TYPES[str(getattr(expected, "__name__", expected))]
            if not isinstance(value, accepted) or (isinstance(value, bool) and accepted is not bool):
                raise BackendOptionError(
                    f"option {name!r} must be a {getattr(expected, '__name__', expected)}, found {value!r}"
                )
            if name == "mode" and mode not in (None, value):
                raise BackendOptionError(f"mode is {mode!r}, and {value!r} among the options")
            values[name] = value
        found = cls(**values)
        if found.mode not in MODES:
            message = f"unknown mode {found.mode!r}; modes are {', '.join(MODES)}"
            raise BackendOptionError(message, str(found.mode), MODES)
        if found.target and not is_built_in(found.target) and found.target not in target_names():
            message = f"unknown target {found.target!r}; targets are {', '.join(target_names())}"
            raise BackendOptionError(message, found.target, target_names())
        Settings.parse(found.tt_cpu)
        if found.verify not in VERIFY:
            message = f"option 'verify' must be one of {', '.join(map(repr, VERIFY))}, found {found.verify!r}"
            raise BackendOptionError(message, found.verify, VERIFY)
        if found.verify or found.trace_html:  # passes do not run for a graph that is loaded
            found = replace(found, cache=False)
        if found.check not in CHECKS:
            message = f"option 'check' must be True, False, 'error' or 'warn', found {found.check!r}"
            raise BackendOptionError(message, found.check, CHECKS)
        if found.cpu:
            isa.named(found.cpu)
        if not found.tune_seconds > 0:
            raise BackendOptionError(f"option 'tune_seconds' must be above 0, found {found.tune_seconds}")
        if "pipeline" in (options or {}):
            _check_pipeline(found.pipeline)
        if "debug_dir" in (options or {}):
            _check_folder(found.debug_dir)
        if found.override and not Path(found.override).is_dir():
            raise BackendOptionError(f"option 'override': there is no folder {found.override}")
        return found


def _inserts(value: Any) -> tuple[Insert, ...]:
    found: list[Any] = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else [value]
    for insert in found:
        if not isinstance(insert, Insert):
            raise BackendOptionError(
                f"option 'passes' must be a list of kiln.Insert(MyPass(), after=...), found {insert!r}"
            )
        if isinstance(insert.passes, str):
            _check_pipeline(insert.passes, "passes")
    return tuple(found)


def _rules(value: Any) -> tuple[Rule, ...]:
    found: list[Any] = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else [value]
    for rule in found:
        if not callable(rule):
            raise BackendOptionError(f"option 'schedules' must be a list of functions of a fusion, found {rule!r}")
    return tuple(found)


def _check_pipeline(text: str, option: str = "pipeline") -> None:
    """A pipeline that does not parse is the user's mistake, no reason to run graphs with ATen."""
    if not text:
        return
    from kiln.dialects import create_context
    from kiln.passes import parse_pipeline

    with create_context():
        try:
            parse_pipeline(text)
        except KilnError as error:
            raise BackendOptionError(f"option {option!r}: {error}") from error


def _check_folder(path: str) -> None:
    if not path:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendOptionError(f"option 'debug_dir': cannot make the folder {path}: {error.strerror}") from error


_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {"bool": bool, "str": str, "int": int, "float": (int, float)}
