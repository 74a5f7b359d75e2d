# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`subprocess.run` for Python commands that need PyTorch and Kiln: forks a process that has imported them.

A command then costs what it does, and not the two to four seconds of the imports. It has arguments, working folder,
environment, search path, stdin, stdout, stderr and exit status of its own, as in a new process.

Tests of the start of a process use `subprocess`: what is imported when, hash seeds, variables that PyTorch reads while it
is imported. `run` does so by itself where the environment or the command demands it.
"""

import atexit
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_run_anew = subprocess.run  # tests put `run` into its place

#: Variables that are read while PyTorch, NumPy or Python itself start.
_READ_AT_START = re.compile(
    r"(TORCH(?!INDUCTOR_CACHE_DIR$)|PYTORCH|AOT|OMP|GOMP|KMP|MKL|OPENBLAS|LD_|TRITON|CUDA|PYTHON(?!PATH$))"
)

#: What commands of Kiln import. Entry points of packages are read by each command.
_IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.compiler_bisector",
    "torch._inductor.lowering",
    "torch._inductor.pattern_matcher",
    "torch.export._trace",
    "rich.table",
    "kiln",
    "kiln.frontend.aot",
    "kiln.frontend.backend",
    "kiln.frontend.native",
    "kiln.frontend.report.explain",
    "kiln.tools.kiln_opt_options",
)

#: Packages all of whose modules compilers import.
_PACKAGES = ("kiln.dialects", "kiln.passes", "kiln.passes.torch_to_kiln", "kiln.passes.algebra")

_server: "tuple[subprocess.Popen[bytes], socket.socket, dict[str, str]] | None" = None


def run(
    command: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    input: str | bytes | None = None,  # noqa: A002 - as subprocess.run has it
    capture_output: bool = False,
    text: bool = False,
    check: bool = False,
    timeout: float | None = None,
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run(command, ...)` in a fork of the server where that is the same, else in a new process."""
    words, environment = [str(word) for word in command], dict(os.environ if env is None else env)
    if not _can_fork(words, environment):
        return _run_anew(
            command, cwd=cwd, env=env, input=input, capture_output=capture_output, text=text, check=check,
            timeout=timeout,
        )  # fmt: skip
    with contextlib.ExitStack() as files:
        stdin, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        if input is not None:
            stdin.write(input.encode() if isinstance(input, str) else input)
            stdin.seek(0)
        fds = [stdin.fileno(), out.fileno(), err.fileno()] if capture_output else [stdin.fileno(), 1, 2]
        status = _forked(words, str(cwd or os.getcwd()), environment, fds, timeout)
        found: list[Any] = [None, None]
        if capture_output:
            for number, file in enumerate((out, err)):
                file.seek(0)
                found[number] = file.read().decode() if text else file.read()
    done = subprocess.CompletedProcess(command, status, *found)
    if check:
        done.check_returncode()
    return done


def _can_fork(words: list[str], environment: dict[str, str]) -> bool:
    if len(words) < 2 or words[0] != sys.executable or not hasattr(os, "fork"):
        return False
    if words[1].startswith("-") and words[1] not in ("-c", "-m"):
        return False
    # The server's Kiln is the command's.
    places = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    kilns = [place for place in places if (Path(place) / "kiln" / "__init__.py").exists()]
    if not kilns or not Path(kilns[0]).samefile(ROOT):
        return False
    there = _start()[2]
    changed = {name for name in there.keys() | environment.keys() if there.get(name) != environment.get(name)}
    return not any(map(_READ_AT_START.match, changed))


def _start() -> "tuple[subprocess.Popen[bytes], socket.socket, dict[str, str]]":
    global _server
    if _server is None or _server[0].poll() is not None:
        ours, theirs = socket.socketpair()
        environment = dict(os.environ)
        # NumPy starts threads when it is imported; a fork has one thread.
        single = {**environment, "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=single)
        _server = process, ours, environment
        atexit.register(_stop, process, ours)
    return _server


def _stop(process: "subprocess.Popen[bytes]", ours: socket.socket) -> None:
    ours.close()  # at which the server ends
    process.wait()


def _forked(words: list[str], cwd: str, environment: dict[str, str], fds: list[int], timeout: float | None) -> int:
    _, ours, _ = _start()
    request = json.dumps({"words": words[1:], "cwd": cwd, "environment": environment}).encode()
    socket.send_fds(ours, [len(request).to_bytes(8, "little")], fds)
    ours.sendall(request)
    pid = int.from_bytes(_received(ours, 8), "little")
    ours.settimeout(timeout)
    try:
        return int.from_bytes(_received(ours, 8), "little", signed=True)
    except TimeoutError as error:
        os.kill(pid, signal.SIGKILL)
        ours.settimeout(None)
        _received(ours, 8)
        raise subprocess.TimeoutExpired(words, timeout or 0) from error
    finally:
        ours.settimeout(None)


def _received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = end.recv(count - len(data))
        if not part:
            raise ConnectionError("the other side has ended")
        data += part
    return data


# ---------------------------------------------------------------------------------------------------- in the server


def _serve(end: socket.socket) -> None:
    import importlib
    import pkgutil

    # The search path without this folder and without PYTHONPATH, which each command has for itself.
    given = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    search = [place for place in sys.path[1:] if os.path.abspath(place) not in given]
    for name in _IMPORTS:
        importlib.import_module(name)
    for name in _PACKAGES:
        for found in pkgutil.iter_modules(importlib.import_module(name).__path__):
            importlib.import_module(f"{name}.{found.name}")
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    assert threads == 1, "a fork has one thread: no import may start others"
    while True:
        head, fds, _, _ = socket.recv_fds(end, 8, 3)
        if not head:
            return
        request = json.loads(_received(end, int.from_bytes(head, "little")))
        pid = os.fork()
        if pid == 0:
            end.close()
            _execute(request["words"], request["cwd"], request["environment"], fds, search)
        for fd in fds:
            os.close(fd)
        end.sendall(pid.to_bytes(8, "little"))
        _, status = os.waitpid(pid, 0)
        end.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))


def _execute(words: list[str], cwd: str, environment: dict[str, str], fds: list[int], search: list[str]) -> None:
    """Does as `python words...`, and ends the process."""
    import random
    import threading
    import time

    import kiln.frontend.cache.source_key

    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    # What Python and Kiln note of a process when it starts.
    random.seed()
    kiln.frontend.cache.source_key._STARTED = time.time()
    status = 1
    try:
        _run_main(words, [place for place in environment["PYTHONPATH"].split(os.pathsep) if place] + search)
        status = 0
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)


def _run_main(words: list[str], search: list[str]) -> None:
    import importlib
    import runpy
    import types

    importlib.invalidate_caches()
    what, *arguments = words
    if what == "-m":
        sys.path[:] = [os.getcwd(), *search]
        sys.argv = ["-m", *arguments[1:]]
        runpy._run_module_as_main(arguments[0])
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if what == "-c":
        sys.path[:] = ["", *search]
        sys.argv = ["-c", *arguments[1:]]
        code = compile(arguments[0], "<string>", "exec")
    else:
        sys.path[:] = [os.path.dirname(os.path.abspath(what)), *search]
        sys.argv = words
        main.__file__ = what
        with open(what, "rb") as file:
            code = compile(file.read(), what, "exec")
    exec(code, vars(main))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
