"""Tests of a client and a warden of different versions.

Both versions work together, or the reply says in one sentence that they do not. The frames of the
other version are literals in this file, or recorded bytes.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nacre
from tests.support import public_names

pytestmark = pytest.mark.slow

# First frames that client and warden of commit 5795d5d send.
HELLO = bytes.fromhex("83a474797065a548656c6c6fa870726f746f636f6c03a776657273696f6ea5302e312e30")
WELCOME = {"type": "Welcome", "protocol": 3, "oldest": 1, "version": "0.1.0", "pid": 5, "runs": 0}


def framed(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def frame(**fields: Any) -> bytes:
    return framed(msgspec.msgpack.encode(fields))


def read(source: Any) -> dict[str, Any] | None:
    """Return the next frame, or None at EOF."""
    length = source.read(4)
    if not length:
        return None
    said: dict[str, Any] = msgspec.msgpack.decode(source.read(struct.unpack("!I", length)[0]))
    return said


def test_the_first_bytes_of_5795d5d_are_among_the_recorded_frames() -> None:
    recorded = json.loads((public_names.DATA / "wire_frames.json").read_text())
    assert framed(HELLO).hex() in recorded["from client"]
    welcome = framed(msgspec.msgpack.encode(WELCOME))
    assert welcome.hex() in recorded["from warden"]


# Older client with the current warden


@contextmanager
def bridge(cwd: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "nacre"), "warden", "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def test_a_client_of_5795d5d_has_its_command_run(tmp_path: Path) -> None:
    command = {"given": b"echo $A; exit 3", "script": b"echo $A; exit 3", "cwd": b"/usr"}
    plan = {"command": {**command, "env": {b"A": b"old", b"PATH": b"/usr/bin:/bin"}}}
    ask = {"type": "Run", "plan": plan, "workspace": b"/usr", "number": None}
    with bridge(tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(framed(HELLO) + frame(type="Asked", id=1, ask=ask))
        process.stdin.flush()
        welcome, answer = read(process.stdout), read(process.stdout)
    assert welcome is not None
    assert (welcome["type"], welcome["protocol"], welcome["oldest"]) == ("Welcome", 4, 1)
    assert answer is not None
    assert (answer["type"], answer["id"]) == ("Answered", 1)
    outcome = answer["answer"]
    assert (outcome["type"], outcome["ending"]) == ("Outcome", {"type": "Exited", "code": 3})
    assert outcome["output"]["head"] == b"old\n"


def test_a_client_that_is_too_old_gets_a_problem_frame(tmp_path: Path) -> None:
    with bridge(tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(frame(type="Hello", protocol=0, version="0.0.1"))
        process.stdin.flush()
        said = read(process.stdout)
    assert said == {
        "type": "Problem",
        "text": "this warden speaks protocols 1 to 4, and you 0; update the nacre that asks",
    }


# Current client with an older or newer warden


class Other:
    """Fake warden of another version, which gives the same answer to every request."""

    def __init__(self, welcome: dict[str, Any], answer: dict[str, Any]) -> None:
        self.heard: list[dict[str, Any]] = []
        self._welcome = welcome
        self._answer = answer

    def serve(self, listening: socket.socket) -> None:
        made, _ = listening.accept()
        with made, made.makefile("rb") as source:
            while (said := read(source)) is not None:
                self.heard.append(said)
                if said["type"] == "Hello":
                    made.sendall(frame(**self._welcome))
                elif said["type"] == "Asked":
                    made.sendall(frame(type="Answered", id=said["id"], answer=self._answer))


@contextmanager
def serving(other: Other, home: Path) -> Iterator[Other]:
    home.mkdir(mode=0o700)
    place = os.open(home, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(10)
        listening.bind(f"/proc/self/fd/{place}/warden.sock")  # a full path may be too long
        os.close(place)
        listening.listen()
        thread = threading.Thread(target=other.serve, args=(listening,))
        thread.start()
        yield other
        thread.join(10)


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_warden_of_this_or_a_newer_protocol_is_asked_what_it_knows(
    tmp_path: Path, home: Path, protocol: int
) -> None:
    outcome = {
        "type": "Outcome",
        "run": "r1",
        "ending": {"type": "Exited", "code": 3},
        "output": {"head": b"out\n", "size": 4, "newlines": 1},
        "errors": {"head": b"err\n", "size": 4, "newlines": 1},
        "later": "a field that this version does not know",
    }
    welcome = {**WELCOME, "protocol": protocol}
    with serving(Other(welcome, outcome), home) as other:
        with nacre.Tool("harness", cwd=tmp_path, env={"A": "1"}, place="warden") as tool:
            reply = tool.call({"command": "true"})
        assert reply.details == {"stdout": "out\n", "stderr": "err\n", "exitCode": 3}
    hello, asked = other.heard
    assert hello == {"type": "Hello", "protocol": 4, "version": nacre.__version__}
    assert (asked["type"], asked["ask"]["type"]) == ("Asked", "Run")
    command = asked["ask"]["plan"]["command"]
    terms = command.pop("terms")
    assert set(terms) == {"umask", "limits"}
    assert command == {
        "given": b"true",
        "reporting_script": b"",
        "script": b"true",
        "cwd": os.fsencode(tmp_path),
        "placed": False,
        "env": {b"A": b"1"},
        "extra": {},
    }


def test_a_warden_that_is_too_new_is_named(tmp_path: Path, home: Path) -> None:
    welcome = {**WELCOME, "protocol": 9, "oldest": 8, "version": "9.0.0"}
    with (
        serving(Other(welcome, {}), home),
        nacre.Tool("harness", cwd=tmp_path, place="warden") as tool,
    ):
        reply = tool.call({"command": "true"})
    assert reply.is_error
    assert reply.details["error"].endswith(
        "the warden cannot be reached: it (process 5, nacre 9.0.0) is newer than this nacre "
        f"({nacre.__version__}); update this one"
    )
