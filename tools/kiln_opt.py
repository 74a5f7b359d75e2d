# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-opt``: run passes on ``.mlir`` text, as mlir-opt does, with Kiln's passes and MLIR's in one pipeline.

Bad input is a one-line error on stderr and exit status 1, never a crash.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from kiln.errors import CompileError, KilnError, did_you_mean
from kiln.lowering.cpu.disassembly import DISASSEMBLERS
from kiln.tools.kiln_opt_options import Options, parse_arguments
from kiln.tools.short_lived import collect_rarely

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.lowering.host.objects import Code
    from kiln.passes.diagnostics import Diagnostic
    from kiln.passes.instruments import Instrument
    from kiln.passes.manager import PipelineStep

__all__ = ["main"]

_SEPARATOR = "// -----"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status: 0, or 1 after an error was printed."""
    if argv is None:
        collect_rarely()
    try:
        options = parse_arguments(sys.argv[1:] if argv is None else list(argv))
        with _cpu(options):
            return _run(options)
    except KilnError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader of stdout has gone (`kiln-opt ... | head`).
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130


def _cpu(options: Options) -> AbstractContextManager[None]:
    """Inside, schedules and kernels are made for the CPU that was named."""
    if not options.cpu:
        return nullcontext()
    from kiln.lowering.cpu import isa

    return isa.compiling_for(isa.other(options.cpu))


def _run(options: Options) -> int:
    from kiln.passes.registry import load_passes_from

    for path in options.load:
        load_passes_from(path)
    if options.list_passes:
        from kiln.tools.list_passes import list_passes

        print(list_passes(options.list_passes == "names"))
        return 0
    steps = _steps(options)
    if options.print_pipeline:
        print(",".join(step.pass_.spec() for step in steps))
        return 0
    name, text = _read(options.input)
    chunks = _split(text) if options.split_input_file else [(0, text)]
    outputs: list[str] = []
    status = 0
    for first_line, chunk in chunks:
        # Blank lines in front keep the line numbers of the file.
        ok, output = _process(options, steps, name, "\n" * first_line + chunk)
        status = status if ok else 1
        if output is not None:
            outputs.append(output)
    if outputs or status == 0:
        _write("-" if options.emit == "obj" else options.output, f"{_SEPARATOR}\n".join(outputs))
    return status


def _process(options: Options, steps: "list[PipelineStep]", name: str, text: str) -> "tuple[bool, str | None]":
    """One chunk: whether it went as it should, and the text to print (None after an error)."""
    from torch_mlir import ir

    from kiln.dialects import create_context, parse
    from kiln.passes.diagnostics import diagnostics_of, from_info
    from kiln.passes.invariants import check_stage
    from kiln.passes.manager import PassManager

    reported: list[Diagnostic] = []
    context = create_context()
    context.allow_unregistered_dialects = options.allow_unregistered_dialect

    def collect(info: "ir.Diagnostic") -> bool:
        reported.append(from_info(info))
        return True

    handler = context.attach_diagnostic_handler(collect)
    output = None
    failure: Exception | None = None
    try:
        with context, ir.Location.unknown():
            module = parse(text)
            PassManager(steps, _instruments(options, reported)).run(module)
            if options.verify_kernels:
                from kiln.passes.numerics.kernels import verify_kernels

                verify_kernels(module, options.verify_kernels)
            if options.check_stage:
                check_stage(module, options.check_stage)
            wanted = options.emit or ("ptx" if options.until == "ptx" else "")
            output = _emitted(options, module, wanted) if wanted else _print(options, module)
    except (KilnError, ir.MLIRError) as error:
        failure = error
        reported += diagnostics_of(error)
    finally:
        handler.detach()
    for diagnostic in reported:
        _name_file(diagnostic, name)
    if options.verify_diagnostics:
        return _verify(options, name, text, reported), output
    for diagnostic in reported:
        print(diagnostic, file=sys.stderr)
    if isinstance(failure, CompileError):
        print(f"note: in pass {failure.pass_name!r}", file=sys.stderr)
        if failure.command:
            print(f"note: to reproduce: {failure.command}", file=sys.stderr)
    return failure is None, output


def _verify(options: Options, name: str, text: str, reported: "list[Diagnostic]") -> bool:
    from kiln.tools.verify_diagnostics import verify

    errors = verify(text, reported, only_expected=options.verify_diagnostics == "only-expected")
    for error in errors:
        error.file = error.file or name
        print(error, file=sys.stderr)
    return not errors


def _steps(options: Options) -> "list[PipelineStep]":
    from kiln.passes.pipeline_parser import parse_pipeline
    from kiln.tools.stderr_capture import captured_stderr

    steps: list[PipelineStep] = []
    # MLIR's option parser writes part of its complaint to file descriptor 2.
    with captured_stderr():
        for kind, text in options.passes:
            steps += _named(options, text) if kind == "pipeline" else parse_pipeline(text)
    wanted = (
        *(("--until", options.until), ("--from", options.start), ("--insert-...", options.inserts)),
        ("--gpu", options.gpu),
    )
    for option, value in wanted:
        if value and "pipeline" not in dict(options.passes):
            raise KilnError(f"{option} needs --pipeline")
    names = [step.name for step in steps]
    for option, wanted in (("--print-ir-before", options.print_before), ("--print-ir-after", options.print_after)):
        for name in wanted:
            if name not in names:
                raise KilnError(f"{option}: no pass {name!r} in this pipeline{did_you_mean(name, names)}")
    return steps


def _named(options: Options, name: str) -> "list[PipelineStep]":
    """The pipeline of a target, from where the input is to where it is to end."""
    from kiln.passes.manager import behind, inserted, until
    from kiln.passes.pipelines import named_pipeline

    whole = inserted(named_pipeline(name, options.gpu), options.inserts)
    code = _code_stage(whole, options.emit) if options.emit else ""
    end = options.until or ("sched" if options.verify_kernels else code)
    steps = until(whole, end) if end else whole
    start = options.start or _stage_of(options.input, {step.stage for step in whole})
    if not start:
        return steps
    left = len(behind(whole, start)) - (len(whole) - len(steps))
    if left < 0:
        raise KilnError(f"the input is at stage {start!r}, which is behind {end!r}")
    return steps[len(steps) - left :]


def _code_stage(steps: "list[PipelineStep]", ending: str) -> str:
    """The stage at which kernels have machine code, or are Triton IR that becomes loops on a CPU."""
    stages = [step.stage for step in steps]
    if ending == "ttir" and "ttir" in stages and "ptx" not in stages:
        return "ttir"
    return next((stage for stage in reversed(stages) if stage in ("object", "ptx")), "")


def _stage_of(file: str, stages: set[str]) -> str:
    """The stage that the name of a file ends in, as a dump's does; none for `graph`, the ending of imported graphs."""
    parts = Path(file).name.split(".")
    return parts[-2] if len(parts) > 2 and parts[-1] == "mlir" and parts[-2] in stages - {"graph", ""} else ""


def _instruments(options: Options, reported: "list[Diagnostic]") -> "list[Instrument]":
    from kiln.passes import instruments
    from kiln.passes.core import Note
    from kiln.passes.diagnostics import Diagnostic, locate

    class Collect(instruments.Remarks):
        def report(self, note: Note) -> None:
            message = f"{note.subject}: {note.reason} [{note.pass_name}]"
            reported.append(Diagnostic("remark", message, *locate(note.location)))

    # Called in this order before a pass and in reverse after it: a pass is verified before it is printed, and timed
    # by the innermost.
    result: list[Instrument] = []
    if options.reproducer_dir:
        result.append(instruments.Reproducer(options.reproducer_dir))
    if options.dump_stages:
        result.append(instruments.StageDump(options.dump_stages, debug_info=options.debug_info))
    if options.statistics:
        result.append(instruments.Statistics(sys.stderr))
    if options.remarks:
        result.append(Collect())
    before = None if options.print_before_all else options.print_before
    after = None if options.print_after_all or options.print_after_change else options.print_after
    if before is None or before or after is None or after:
        result.append(
            instruments.PrintIR(
                before=before,
                after=after,
                only_changed=options.print_after_change,
                debug_info=options.debug_info,
                generic=options.generic,
            )
        )
    if options.verify_numerics:
        from kiln.passes.instruments.numerics import VerifyNumerics
        from kiln.passes.numerics.sample import load_sample

        class Numerics(VerifyNumerics):
            def told(self, note: Note) -> None:
                reported.append(Diagnostic("warning", f"{note.op}: {note.reason} [{note.pass_name}]"))

        result.append(Numerics([load_sample(Path(options.inputs))] if options.inputs else []))
    result.append(instruments.CheckStages())
    if options.verify_each:
        result.append(instruments.VerifyEach())
    if options.timing:
        result.append(instruments.Timing(sys.stderr))
    return result


def _print(options: Options, module: "ir.Module") -> str:
    from kiln.dialects import to_text

    text = to_text(
        module,
        enable_debug_info=options.debug_info,
        print_generic_op_form=options.generic,
        use_local_scope=options.local_scope,
    )
    return text if text.endswith("\n") else text + "\n"


def _emitted(options: Options, module: "ir.Module", ending: str) -> str:
    """Machine code of the kernels, or what Triton made on the way, by the ending of its file. Objects are written to
    files, whose names this returns.
    """
    from kiln.lowering.host.gpu_kernels import ttir_of
    from kiln.lowering.host.kernels import kernels_of
    from kiln.lowering.host.objects import code_of

    texts: list[str] = []
    for kernel in kernels_of(module):
        code, attributes = code_of(kernel), kernel.operation.attributes
        if code is None and ending == "ttir" and (text := ttir_of(kernel, debug_info=options.debug_info)):
            texts.append(f"// kernel {kernel.symbol}\n{text}")
        elif code is None:
            reason = attributes["unsupported"] if "unsupported" in attributes else "assemble did not run"
            texts.append(f"// kernel {kernel.symbol} has no code: {reason}\n")
        elif ending == "obj":
            texts.append(_written(options, kernel.symbol, *code.binary()))
        else:
            texts.append(f"// kernel {kernel.symbol}{_code_text(code, ending, options.debug_info)}")
    return "".join(texts)


def _code_text(code: "Code", ending: str, debug_info: bool) -> str:
    from kiln.lowering.gpu.resources import resources
    from kiln.lowering.host.gpu_kernels import GpuCode

    text = code.texts().get("s" if ending == "asm" else ending)
    if text is None and ending == "asm" and not isinstance(code, GpuCode):
        raise KilnError(f"--emit=asm needs {' or '.join(DISASSEMBLERS)}, as of the packages llvm or binutils")
    if text is None and ending == "sass" and isinstance(code, GpuCode):
        raise KilnError("--emit=sass needs nvdisasm, of Triton's package or a CUDA toolkit")
    if text is None:
        raise KilnError(f"--emit={ending}: these kernels are for {'a GPU' if isinstance(code, GpuCode) else 'a CPU'}")
    lines = text.splitlines(keepends=True)
    text = "".join(line for line in lines if debug_info or not line.lstrip().startswith(".loc"))
    return f": {resources(code.result.result())}\n{text}" if isinstance(code, GpuCode) else f"\n{text}"


def _written(options: Options, name: str, ending: str, data: bytes) -> str:
    if options.output == "-":
        raise KilnError("--emit=obj needs a folder for the files: -o DIR")
    path = Path(options.output) / f"{name}.{ending}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise KilnError(f"cannot write {path}: {error.strerror}") from error
    return f"{path}\n"


def _name_file(diagnostic: "Diagnostic", name: str) -> None:
    # Text is parsed without a file name; MLIR then writes "-".
    if diagnostic.file == "-":
        diagnostic.file = name
    for note in diagnostic.notes:
        _name_file(note, name)


def _read(path: str) -> tuple[str, str]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise KilnError(f"cannot read {path}: {error.strerror}") from error
    name = "<stdin>" if path == "-" else path
    if b"\0" in data:
        # MLIR's lexer takes it for the end of the file.
        raise KilnError(f"{name}: not text (NUL at byte {data.index(0)}); kiln-opt reads MLIR's text form")
    try:
        return name, data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KilnError(f"{name}: not UTF-8 text (byte {error.start}); kiln-opt reads MLIR's text form") from error


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise KilnError(f"cannot write {path}: {error.strerror}") from error


def _split(text: str) -> list[tuple[int, str]]:
    """Chunks between ``// -----`` lines, each with the number of lines in front of it."""
    chunks: list[tuple[int, str]] = []
    start, lines = 0, text.split("\n")
    for i, line in enumerate(lines):
        if line.strip() == _SEPARATOR:
            chunks.append((start, "\n".join(lines[start:i])))
            start = i + 1
    chunks.append((start, "\n".join(lines[start:])))
    return chunks


def _fail(message: str) -> int:
    print(f"kiln-opt: error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
