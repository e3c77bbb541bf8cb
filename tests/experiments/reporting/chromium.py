"""Headless Chromium over its debugging pipe: opens a page at a width, and tells what a reader would see of it.

By hand, for pictures of pages: `python -m tests.experiments.reporting.chromium FOLDER_FOR_PICTURES PAGE…`
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip
Message = dict[str, Any]


def chromium() -> str | None:
    """Where the browser is; None where there is none."""
    return next((place for name in NAMES if (place := shutil.which(name)) is not None), None)


@dataclass
class Seen:
    """What a page did and holds at one width."""

    scroll_width: int
    text: str
    overflowing: list[str]
    """What reaches beyond the window without scrolling by itself, as TAG.class and its right edge."""
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    picture: bytes = b""


# Elements wider than the window, but for those inside something that scrolls by itself.
OVERFLOWING = """[...document.body.querySelectorAll('*')].filter(one => !one.closest('.scroll, pre'))
  .map(one => [one.tagName, one.className, Math.round(one.getBoundingClientRect().right)].join(' '))
  .filter(told => told.split(' ').pop() > document.documentElement.clientWidth + 1).slice(0, 9)"""


class Browser:
    """One running Chromium."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, os.fdopen(read, "rb")
        self._number, self._buffer = 0, b""
        self.events: list[Message] = []
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, parameters: Message | None = None) -> Message:
        """A command's answer; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: Message = answer["result"]
                return result
            self.events.append(answer)

    def open(self, page: Path, width: int, *, picture: bool = False) -> Seen:
        """The page in a window of that width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", size)
        self.events = []
        self.call("Page.navigate", {"url": page.resolve().as_uri()})
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        seen = Seen(
            self._value("document.documentElement.scrollWidth"),
            self._value("document.body.innerText"),
            self._value(OVERFLOWING),
            [event["params"]["request"]["url"] for event in self._of("Network.requestWillBeSent")],
            [json.dumps(event["params"]) for name in COMPLAINTS for event in self._of(name)],
        )
        if picture:
            shot = {"format": "png", "captureBeyondViewport": True}
            seen.picture = base64.b64decode(self.call("Page.captureScreenshot", shot)["data"])
        return seen

    def _of(self, method: str) -> list[Message]:
        return [event for event in self.events if event.get("method") == method]

    def _value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})["result"]["value"]

    def _next(self) -> Message:
        while b"\0" not in self._buffer:
            more = os.read(self._read.fileno(), 1 << 16)
            assert more, "Chromium ended"
            self._buffer += more
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: Message = json.loads(first)
        return message


COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile; it ends with the block."""
    place = chromium()
    assert place is not None
    commands, ours = os.pipe()
    theirs, answers = os.pipe()

    def pipes() -> None:
        """Chromium reads commands from 3 and writes answers to 4; copies above keep one from overwriting the other."""
        high = (os.dup(commands), os.dup(answers))
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    process = subprocess.Popen(
        [place, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(3, 4, commands, answers),
        preexec_fn=pipes,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(profile)},
    )
    os.close(commands)
    os.close(answers)
    try:
        yield Browser(ours, theirs)
    finally:
        os.close(ours)  # Chromium ends when its pipe does
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with browser(folder / "profile") as one:
        for page in map(Path, sys.argv[2:]):
            for width in (1280, 400):
                seen = one.open(page, width, picture=True)
                (folder / f"{page.parent.name}-{width}.png").write_bytes(seen.picture)
                print(page, width, seen.scroll_width, seen.overflowing, seen.requests, seen.complaints)
