# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The server of `kiln-trace --serve`, asked as the page asks it; and the page itself, where there is Chromium."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

needed = ("starlette", "uvicorn", "sse_starlette", "watchfiles")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in needed), reason="needs pip install kiln-mlir[live]"
)

_spec = importlib.util.spec_from_file_location("kiln_test_chromium", Path(__file__).parent / "chromium.py")
assert _spec is not None and _spec.loader is not None
browser = sys.modules.setdefault(_spec.name, importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(browser)

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 120.0
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(32, 48)

    def forward(self, x):
        return torch.relu(self.first(x)) * 3.0

def make():
    return Model(), (torch.randn(16, 32),)
"""
PASS = '''
"""Pass ``count-fusions``."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.passes import Pass, register_pass


@register_pass
@dataclass
class CountFusions(Pass):
    """Count.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }

    After::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }
    """

    name = "count-fusions"

    def run(self, module: ir.Module) -> None:
        self.note(next(iter(module.body)), "FIRST NOTE")
'''


@dataclass
class Server:
    """A running server; `folder` has `small.py`, `own.py`."""

    url: str
    token: str
    folder: Path
    process: Any

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and text of an answer; POST with a body, else GET."""
        given = {"X-Kiln-Token": self.token, "Content-Type": "application/json", **headers}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, {k: v for k, v in given.items() if v})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def state(self) -> dict[str, Any]:
        status, text = self.ask("state")
        assert status == 200, text
        return json.loads(text)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def until(self, reached: Any) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while not reached(state := self.state()):
            assert time.monotonic() < end, state
            time.sleep(0.1)
        return state

    def save(self, name: str, text: str) -> dict[str, Any]:
        """Save a file, and wait for what the server makes of it."""
        count = self.state()["count"]
        (self.folder / name).write_text(text)
        return self.until(lambda s: not s["doing"] and s["count"] > count)

    def source(self, part: str) -> str:
        status, text = self.ask(f"source?graph=0&part={part}")
        assert status == 200, text
        return text


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    (folder / "small.py").write_text(MODEL)
    (folder / "own.py").write_text(PASS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "kiln.tools.kiln_trace", "small:make", "--serve", "--calls=2", *options]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            address = process.stdout.readline()
            found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{20,})\n", address)
            assert found, (folder / "log.txt").read_text()
            yield Server(found[1], found[2], folder, process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            finally:
                process.kill()
                process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    own = ("--load=own.py", "--insert-after=fuse:count-fusions")
    with serving(tmp_path_factory.mktemp("live"), *own) as found:
        found.until(lambda s: s["last"] and not s["doing"])
        yield found


@pytest.fixture(autouse=True)
def unedited(request) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        if server.state()["edits"]:
            server.post("reset")


def test_who_may_ask(server):
    assert server.ask("state")[0] == 200
    assert server.ask("state", **{"X-Kiln-Token": "wrong"})[0] == 403
    assert server.ask("state", **{"X-Kiln-Token": ""})[0] == 403
    assert server.ask(f"state?token={server.token}", **{"X-Kiln-Token": ""})[0] == 200
    # a name that an attacker has bound to 127.0.0.1, and a page of another site
    port = server.url.rpartition(":")[2]
    assert server.ask("state", Host=f"evil.example:{port}") == (403, "forbidden: the host is not this one\n")
    assert server.ask("state", Host="127.0.0.1:1")[0] == 403
    assert server.ask("state", Origin="http://evil.example") == (403, "forbidden: another origin\n")
    assert server.ask("state", Origin="null")[0] == 403
    assert server.ask("state", Origin=server.url)[0] == 200
    # a form of another site can send an address, and no header
    assert server.ask(f"edit?token={server.token}", {}, **{"X-Kiln-Token": ""})[0] == 403
    assert server.ask("stop")[0] == 405
    with urllib.request.urlopen(f"{server.url}/?token={server.token}") as page:
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert b"kiln.tabs.Live" in page.read()


def test_only_this_machine_reaches_it(server):
    port = int(server.url.rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_bad_requests(server):
    assert server.ask("edit", {"part": "sched"}) == (400, "the request has no 'text'")
    assert server.ask("edit", {"part": "schedd", "text": ""})[1].endswith("did you mean 'sched'?")
    assert server.ask("edit", {"part": "sched", "text": 5}) == (400, "text must be text")
    assert server.ask("edit", [1]) == (400, "expected a JSON object")
    assert server.ask("edit", {"graph": 7, "part": "sched", "text": ""}) == (400, "there is no graph 7")
    assert server.ask("source?graph=0") == (400, "the request has no 'part'")


def test_an_edited_stage(server):
    text = server.source("fused")
    assert "loc(" not in text and "3.000000e+00" in text
    state = server.post("edit", graph=0, part="fused", text=text.replace("3.000000e+00", "5.0"), compare=True)
    assert state["failure"] is None and state["edits"] == [[0, "fused"]]
    (row,) = state["comparison"]["results"]
    assert row["unedited"] < 1e-6 and row["eager"] < 1e-6 and 0.6 < row["edited"] < 0.7
    assert state["comparison"]["reference"] == "float64" and state["comparison"]["seconds"]["edited"] > 0
    assert [(r["name"], r["before"] > 0, r["after"] > 0) for r in state["times"]] == [("addmm_relu_mul", True, True)]
    titles = {change["title"]: change["text"] for change in state["changes"]}
    assert "stage kiln" not in titles and {"stage sched", "LLVM IR of addmm_relu_mul"} <= set(titles)
    assert [line for line in titles["stage fused"].splitlines() if line[0] == "-"] == [
        line.replace("+", "-", 1).replace("5.0", "3.0") for line in titles["stage fused"].splitlines() if line[0] == "+"
    ]
    # the edited text has the locations of the lines that were not touched
    data = json.loads(server.ask("data")[1])
    (fused,) = (s for s in data["graphs"][0]["stages"] if s["title"] == "fused")
    lines = dict(zip(fused["text"].split("\n"), fused["sets"], strict=True))
    assert all(number >= 0 for line, number in lines.items() if "kiln.matmul" in line or "arith.mulf" in line)
    assert server.post("reset")["edits"] == []


def test_an_edited_schedule(server):
    ((fusion, schedule),) = server.state()["schedules"][0].items()
    other = re.sub(r"mr = \d+", "mr = 2", schedule)
    assert other != schedule
    state = server.post("edit", graph=0, fusion=fusion, schedule=other, compare=True)
    assert state["failure"] is None and state["edits"] == [[0, f"schedule of {fusion}"]]
    assert state["schedules"][0][fusion] == other
    assert state["comparison"]["results"][0]["edited"] < 1e-6
    assert {"stage sched", "assembly of addmm_relu_mul"} <= {change["title"] for change in state["changes"]}
    state = server.post("edit", graph=0, fusion=fusion, schedule="{mr = ", compare=False)
    assert f"not a schedule of {fusion}" in state["failure"]["message"]
    assert state["edits"] == [[0, f"schedule of {fusion}"]], "what compiled last is kept"
    # on top of the schedule, code of the kernel that it makes
    (part,) = (p for p in state["sources"][0] if p.endswith(".llvm"))
    text = server.source(part)
    state = server.post("edit", graph=0, part=part, text=re.sub(r"3\.0+e\+00", "5.0", text), compare=True)
    assert state["failure"] is None, state["failure"]
    assert [name for _, name in state["edits"]] == [part, f"schedule of {fusion}"]
    assert 0.6 < state["comparison"]["results"][0]["edited"] < 0.7
    # an earlier stage: what was made of it is made again
    state = server.post("edit", graph=0, part="fused", text=server.source("fused"), compare=False)
    assert state["edits"] == [[0, "fused"]] and state["schedules"][0][fusion] == schedule


def test_errors_have_the_line(server):
    lines = server.source("fused").split("\n")
    wrong = next(i for i, line in enumerate(lines) if "arith.mulf" in line)
    lines[wrong] = lines[wrong].replace("arith.mulf", "arith.mulg")
    number = server.state()["last"]["number"]
    state = server.post("edit", graph=0, part="fused", text="\n".join(lines), compare=False)
    assert state["failure"]["place"] == {"graph": 0, "part": "fused", "line": wrong + 1}
    assert "arith.mulg" in state["failure"]["message"]
    assert state["last"]["number"] == number and state["edits"] == []


def test_the_compiler_may_crash(server):
    crashing = MODEL + "import os\nos.kill(os.getpid(), 11)\n"
    state = server.save("small.py", crashing)
    assert state["failure"]["message"] == "the process that compiles died of SIGSEGV"
    assert server.save("small.py", MODEL)["failure"] is None


def test_saved_files(server):
    def notes() -> list[str]:
        graph = json.loads(server.ask("data")[1])["graphs"][0]
        return [note[1] for found in graph["passes"] if found["name"] == "count-fusions" for note in found["notes"]]

    assert notes() == ["FIRST NOTE"]
    state = server.save("own.py", PASS.replace("FIRST", "SECOND"))
    assert state["last"]["cause"] == "saved own.py" and notes() == ["SECOND NOTE"] and state["changes"] == []
    state = server.save("small.py", MODEL.replace("relu", "tanh"))
    assert state["last"]["cause"] == "saved small.py"
    assert any(change["title"] == "stage torch" and "aten.tanh" in change["text"] for change in state["changes"])
    state = server.save("own.py", "raise RuntimeError('not a pass')")
    assert "cannot load passes from 'own.py': RuntimeError: not a pass" in state["failure"]["message"]
    assert "own.py" in state["failure"]["trace"]
    server.save("own.py", PASS)
    assert server.save("small.py", MODEL)["failure"] is None


def test_events(server):
    with urllib.request.urlopen(f"{server.url}/events?token={server.token}", timeout=PATIENCE) as stream:

        def event() -> dict[str, Any]:
            while not (line := stream.readline().decode()).startswith("data: "):
                pass
            return json.loads(line.removeprefix("data: "))

        before = event()
        (server.folder / "small.py").write_text(MODEL + "\n")
        assert event()["doing"] == "compiling: saved small.py"
        after = event()
        assert after["doing"] == "" and after["number"] > before["number"]


def test_a_compilation_is_stopped(server):
    (server.folder / "small.py").write_text(MODEL + "import time\ntime.sleep(600)\n")
    server.until(lambda s: s["doing"] == "compiling: saved small.py")
    time.sleep(0.5)
    assert server.ask("edit", {"part": "fused", "text": ""})[1] == "another compilation is under way; stop it first"
    server.post("stop")
    state = server.until(lambda s: not s["doing"])
    assert state["failure"]["message"] == "stopped"
    server.save("small.py", MODEL)


def test_training_and_a_model_that_does_not_compile_yet(tmp_path):
    with serving(tmp_path, "--training", "--for=tt-cpu") as server:
        (tmp_path / "small.py").write_text("def make(:")
        state = server.until(lambda s: s["failure"])
        assert "SyntaxError" in state["failure"]["message"] and state["last"] is None
        assert server.ask("source?graph=0&part=fused") == (400, "there is no graph 0")
        (tmp_path / "small.py").write_text(MODEL)
        state = server.until(lambda s: s["last"])
        assert len(state["sources"]) == 2
        state = server.post("compare")
        assert len(state["comparison"]["results"]) == 3, "the result, and gradients of weight and bias"
        assert max(row["edited"] for row in state["comparison"]["results"]) < 1e-5
    assert server.process.returncode == 0


def test_what_is_missing_is_named(tmp_path):
    script = (
        "import sys; sys.modules['watchfiles'] = None\n"
        "from kiln.tools.kiln_trace import main\nsys.exit(main(['small:make', '--serve']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "pip install 'kiln-mlir[live]'" in done.stderr


@pytest.mark.skipif(browser.find() is None, reason="needs Chromium (Debian: apt-get install chromium)")
def test_the_page(server, tmp_path):
    with browser.chromium(tmp_path) as page:
        page.call("Page.navigate", url=f"{server.url}/?token={server.token}")
        page.wait("document.getElementById('live-text')?.value.includes('kiln.fusion') === true")
        # a file is saved
        server.save("small.py", MODEL.replace("relu", "tanh"))
        page.wait("document.getElementById('live-last')?.textContent.includes('saved small.py') === true")
        page.wait("document.getElementById('live-changes').textContent.includes('math.tanh')")
        server.save("small.py", MODEL)
        page.wait("/^-.*math.tanh/m.test(document.getElementById('live-changes').textContent)")
        page.wait(f"kiln.live.latest === {server.state()['last']['number']} && !document.getElementById('live-doing')")
        # an edit, typed and sent
        page.value("kiln.live.part = 'fused', kiln.open('Live')")
        page.wait("document.getElementById('live-text').value.includes('3.000000e+00')")
        page.value(
            "(() => { const area = document.getElementById('live-text'); area.focus();"
            " const at = area.value.lastIndexOf('3.000000e+00'); area.setSelectionRange(at, at + 12); })()"
        )
        page.call("Input.insertText", text="5.0")
        page.click("#live-compare")
        page.wait("document.getElementById('live-comparison')?.textContent.includes('time of a call') === true")
        assert "6.7e-1" in page.value("document.getElementById('live-comparison').textContent")
        assert page.value("document.querySelectorAll('#live-changes .added').length") > 0
        # a mistake: its line is selected
        page.wait("document.getElementById('live-text').value.includes('arith.mulf')")
        page.value(
            "(() => { const area = document.getElementById('live-text'); area.focus();"
            " const at = area.value.indexOf('arith.mulf'); area.setSelectionRange(at, at + 10); })()"
        )
        page.call("Input.insertText", text="arith.mulg")
        page.click("#live-compile")
        page.wait("document.getElementById('live-go') !== null && !document.getElementById('live-doing')")
        page.click("#live-go")
        page.wait("getSelection().toString().includes('arith.mulg') || (() => { const a = document.activeElement;"
                  " return a.value?.slice(a.selectionStart, a.selectionEnd).includes('arith.mulg'); })()")  # fmt: skip
        page.click("#live-reset")
        page.wait("document.getElementById('live-last')?.textContent.includes('without edits') === true")
        # another schedule
        page.wait("document.getElementById('live-schedule-0') !== null")
        page.value(
            "(() => { const input = document.getElementById('live-schedule-0');"
            " input.value = input.value.replace(/mr = \\d+/, 'mr = 2'); input.dispatchEvent(new Event('input')); })()"
        )
        page.click("#live-try-0")
        page.wait("document.getElementById('live-changes').textContent.includes('stage sched')")
        for tab in ("Kernels", "Stages", "Model"):
            page.value(f"kiln.open('{tab}')")
            page.wait("document.querySelector('#panel .row') !== null")
        assert page.errors == []
