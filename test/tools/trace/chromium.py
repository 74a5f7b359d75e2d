# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A page in a headless Chromium, driven through its debugging pipe: no package for that is needed."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE = 60.0


def find() -> str | None:
    """The program, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """`errors`: what the page's console has of errors and exceptions."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._number, self._buffer, self._session = 0, b"", ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1600, height=950, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _PATIENCE
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._told(answer)

    def _next(self, end: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "Chromium ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _told(self, event: Any) -> None:
        name, given = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
        elif name == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and given["type"] == "error":
            self.errors.append(str(given["args"]))
        elif name == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def open(self, path: Path) -> None:
        """Open a file and wait until the page says that it is ready."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def value(self, script: str) -> Any:
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.value(script):
            assert time.monotonic() < end, f"{script}; errors: {self.errors}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of an element."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
            " const r = e.getBoundingClientRect(); return [r.left + Math.min(r.width / 2, 90), r.top + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str) -> None:
        """A key that is pressed and let go."""
        text = {"text": "\r"} if name == "Enter" else {}
        code = {"Enter": 13, "ArrowDown": 40, "ArrowRight": 39}.get(name, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path) -> None:
        """A picture of what is in sight."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser with one page; its profile is in `folder`."""
    program = find()
    assert program is not None
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    with open(folder / "chromium.log", "wb") as log:
        # The pipe's ends are numbers 3 and 4 in the browser.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *options, "--remote-debugging-pipe", f"--user-data-dir={folder}/p"],
            pass_fds=(to_browser, from_browser),
            stdout=log,
            stderr=log,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            page = Page(read, write)
            yield page
            with contextlib.suppress(AssertionError):
                page.call("Browser.close")
        finally:
            os.close(write)
            os.close(read)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
