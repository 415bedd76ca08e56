"""Chromium without a window, spoken to through its DevTools pipe: the standard library suffices."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

READ, WRITE = 3, 4
"""File descriptors on which Chromium reads commands and writes answers."""


class Chromium:
    """One page. Every request, console message and exception is kept."""

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        if not program:
            raise SystemExit("no chromium here: on Debian, apt-get install chromium")
        self._profile = tempfile.TemporaryDirectory()
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()

        def give_pipes() -> None:
            # Copies out of the way first: the pipes' own numbers may be 3 and 4.
            reads, writes = os.dup(their_in), os.dup(their_out)
            os.dup2(reads, READ)
            os.dup2(writes, WRITE)

        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            stderr=subprocess.DEVNULL,
            preexec_fn=give_pipes,  # noqa: PLW1509 - this program has one thread
            close_fds=False,
        )
        os.close(their_in)
        os.close(their_out)
        self._out, self._in = os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb")
        self._number, self._rest = 0, b""
        self._events: deque[dict[str, Any]] = deque()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._session: str | None = None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._out.close()
        self._in.close()
        self._profile.cleanup()

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is there."""
        self._events.clear()
        self("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._note(self._receive())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        done = self("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            self(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def look(self, width: int, height: int, scheme: str) -> None:
        """A window of this size, light or dark."""
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < height,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in.fileno(), 1 << 16)
            if not part:
                raise SystemExit("chromium has gone")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        details = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(details["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(details)[:500])
