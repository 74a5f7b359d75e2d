# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Work in a child process: a segfault, an abort or a hang of it is an outcome, not the end of the tool.

Children are forked, so they start with everything imported and take milliseconds. What one imports of Kiln, its parent
imports behind it: later ones start with that, too. OpenMP threads do not survive a fork: children compute with one.
"""

import faulthandler
import importlib
import os
import pickle
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kiln.errors import KilnError

__all__ = ["Outcome", "in_child", "seconds_computed"]

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Outcome:
    """``kind``: "ok" (with ``value``), "error" (an exception), "crash" (a signal or an exit) or "hang".

    ``events`` are what the child told before, in order; ``message`` says what went wrong; ``output`` is the end of what
    the child printed.
    """

    kind: str
    value: Any
    events: list[Any]
    message: str = ""
    output: str = ""


def in_child(work: Callable[[Callable[[Any], None]], Any], timeout: float) -> Outcome:
    """Runs ``work(tell)`` in a forked child and returns what became of it.

    Args:
        work: its result, and what it passes to ``tell``, must pickle.
        timeout: seconds of computing after which the child is killed; ten times as many by the clock, as other
            processes may keep a machine busy.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as printed:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(work, writer, printed)
        os.close(writer)
        try:
            messages, is_late = _messages(reader, pid, timeout)
        finally:
            os.close(reader)
        if is_late:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - 2000))
        output = printed.read().decode("utf-8", "replace")
    events = [payload for kind, payload in messages if kind == "event"]
    for names in (payload for kind, payload in messages if kind == "imported"):
        _import(names)
    last = next((m for m in reversed(messages) if m[0] in ("ok", "error")), None)
    if is_late:
        return Outcome("hang", None, events, f"no end after {timeout:g} s", output)
    if last is not None and last[0] == "ok":
        return Outcome("ok", last[1], events, "", output)
    if last is not None:
        return Outcome("error", None, events, last[1], output)
    return Outcome("crash", None, events, _died(status), output)


def seconds_computed() -> float:
    """Of a processor, by this process and its children that have ended."""
    return sum(os.times()[:4])


def _child(work: Callable[[Callable[[Any], None]], Any], writer: int, printed: IO[bytes]) -> None:
    """Never returns."""
    status, known = 1, set(sys.modules)
    try:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        faulthandler.disable()  # it may write to a copy of the parent's stderr
        try:
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            value = work(lambda event: _send(writer, ("event", event)))
            _send(writer, ("ok", value))
        except KilnError as error:
            _send(writer, ("error", str(error)))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent reports it
            traceback.print_exc()
            _send(writer, ("error", f"{type(error).__name__}: {error}"))
        _send(
            writer, ("imported", [name for name in list(sys.modules) if name.startswith("kiln.") and name not in known])
        )
        status = 0
    finally:
        # No exit handlers of the parent: they would write its buffers twice.
        os._exit(status)


def _import(names: Sequence[str]) -> None:
    """Modules that a child could import; one that cannot be imported is its business."""
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)


def _send(writer: int, message: tuple[str, Any]) -> None:
    data = pickle.dumps(message)
    data = _LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(writer, data) :]


def _messages(reader: int, pid: int, timeout: float) -> tuple[list[tuple[str, Any]], bool]:
    """What a child sent until it ended, and whether it had to be left."""
    found: list[Any] = []
    data = bytearray()
    deadline = time.monotonic() + 10 * timeout
    while True:
        if not select.select([reader], [], [], min(1.0, timeout / 4))[0]:
            if _seconds_computed(pid) > timeout or time.monotonic() > deadline:
                return found, True
            continue
        piece = os.read(reader, 1 << 16)
        if not piece:
            return found, False
        data += piece
        while len(data) >= _LENGTH.size:
            length = _LENGTH.unpack_from(data)[0]
            if len(data) < _LENGTH.size + length:
                break
            found.append(pickle.loads(data[_LENGTH.size : _LENGTH.size + length]))
            del data[: _LENGTH.size + length]


def _seconds_computed(pid: int) -> float:
    """Processor time of a process, where the system tells (Linux)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _died(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        return f"the process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"the process died of signal {-status}"
