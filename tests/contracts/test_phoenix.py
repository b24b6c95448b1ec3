"""Tests of the contract phoenix that need more than one row of the case table."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nacre
from nacre.model.outcome import Capture, Exited, Outcome
from nacre.model.plan import Limits
from nacre.model.requests import StartRun
from nacre.text.clean import decode
from tests.support.command_line import PROGRAM

pytestmark = pytest.mark.slow

LIMIT, END = 131_072, 4096


def specs(**options: Any) -> dict[str, Any]:
    with nacre.Tool("phoenix", cwd="/usr", options=options) as tool:
        (spec,) = tool.specs()
    return spec


def test_the_description_is_made_from_the_limits_in_force() -> None:
    text = specs()["description"]
    assert text.startswith(
        "Executes shell commands via bash -c, returning combined stdout/stderr.\n"
        "Bash state changes (working dir, variables, aliases) don't persist between calls.\n\n"
        'With mode="background", returns immediately with output redirected to a file.\n'
    )
    assert 'MUST set mode="slow" for potentially slow commands' in text
    assert 'stopped after 30 seconds, with mode="slow" after 15 minutes' in text
    assert "Of output above 128KB you see the first and last 4KB" in text
    assert text.endswith("\n\n<pwd>/usr</pwd>")
    other = specs(timeout=1, slow_timeout=7200)["description"]
    assert 'stopped after 1 second, with mode="slow" after 120 minutes' in other
    assert "slow_ok" not in text


def test_the_two_editions_of_the_schema() -> None:
    mode = specs()["input_schema"]
    assert list(mode["properties"]) == ["command", "mode"]
    assert mode["properties"]["mode"]["enum"] == ["default", "slow", "background"]
    assert mode["required"] == ["command"]
    spec = specs(schema="booleans", slow_timeout=90)
    assert list(spec["input_schema"]["properties"]) == ["command", "slow_ok", "background"]
    assert spec["input_schema"]["properties"]["slow_ok"] == {
        "type": "boolean",
        "description": "Use extended 90-second timeout for builds, tests, installs",
    }
    assert "slow_ok=true" in spec["description"]
    assert "mode=" not in spec["description"]


def test_the_limits_are_those_of_the_page() -> None:
    with nacre.Tool("phoenix") as tool:
        admit, caller = tool.contract.admit, tool._caller_factory.at(b"/")
        usual = admit("bash", {"command": "ls"}, caller).request
        slow = admit("bash", {"command": "ls", "mode": "slow"}, caller).request
    assert isinstance(usual, StartRun)
    assert isinstance(slow, StartRun)
    assert usual.plan.limits == Limits(timeout=30, grace=15)
    assert slow.plan.limits == Limits(timeout=900, grace=15)


def test_a_command_longer_than_an_argument_may_be() -> None:
    with nacre.Tool("phoenix") as tool:
        reply = tool.call({"command": f"x={'y' * 300_000}; echo ${{#x}}"})
    assert reply.text == "300000\n"


def test_cancelling_keeps_the_output() -> None:
    token = nacre.CancelToken()

    def heard(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk):
            token.cancel()

    with nacre.Tool("phoenix") as tool:
        reply = tool.call({"command": "echo early; sleep 60"}, listen=heard, cancel=token)
    assert (reply.text, reply.is_error) == ("[command cancelled]\nearly\n", True)
    assert reply.details["cancelled"] is True


def test_cancelled_before_it_started() -> None:
    token = nacre.CancelToken()
    token.cancel()
    with nacre.Tool("phoenix") as tool:
        reply = tool.call({"command": "echo early"}, cancel=token)
    assert (reply.text, reply.is_error) == ("[command cancelled]", True)


@pytest.mark.parametrize("character", ["x", "é", "→", "🦪"])
@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_exact_at_the_limit(character: str, size: int, tmp_path: Path) -> None:
    width = len(character.encode())
    text = "x" * (size % width) + character * (size // width)
    (tmp_path / "f").write_text(text)
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        said = tool.call({"command": "cat f"}).text
    if size <= LIMIT:
        assert said == text
    else:
        assert said.startswith("[output truncated in middle: got 128.1KB, max is 128KB]\n")


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("character", ["é", "→", "🦪"])
def test_no_character_is_cut_in_half(character: str, shift: int, tmp_path: Path) -> None:
    """Check both cuts, at every position within a character."""
    data = b"x" * shift + character.encode() * 40_000 + b"y" * shift
    data *= 1 if len(data) > LIMIT else 2
    (tmp_path / "f").write_bytes(data)
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        said = tool.call({"command": "cat f"}).text
    _, _, rest = said.partition("]\n")
    body, _, last = rest.rpartition("\n")
    head, _, tail = body.partition("\n\n[snip]\n\n")
    assert last == "[full output: artifact://1]"
    assert "\ufffd" not in body
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    width = len(character.encode())
    assert END - width < len(head.encode()) <= END
    assert END - width < len(tail.encode()) <= END


@given(st.sampled_from([b"x", b"\xff", "é".encode(), b"\xe2\x82", b"\n"]), st.integers(1, 140_000))
@settings(max_examples=20, deadline=None)
def test_a_reply_is_never_longer_than_the_design_allows(piece: bytes, size: int) -> None:
    data = (piece * size)[: 131_072 + 5000]
    capture = Capture(head=data, size=len(data), newlines=data.count(b"\n"))
    if len(data) > 131_072:
        head, tail = data[:4096], data[-4096:]
        capture = Capture(head=head, tail=tail, size=len(data), newlines=data.count(b"\n"))
    outcome = Outcome(run="r1", ending=Exited(0), output=capture, stored=True)
    with nacre.Tool("phoenix") as tool:
        reply = tool.contract.reply(outcome, None, ())
    assert len(reply.text.encode()) <= 128 * 1024 + 200
    whole = decode(data) == reply.text
    assert whole is not ("[full output: artifact://1]" in reply.text)
    assert reply.details["output"]["truncated"] is not whole


def test_the_parent_does_not_show_what_was_dropped() -> None:
    look = 'tr "\\0" "\\n" < /proc/$PPID/environ'
    for contract in ("phoenix", "pi"):
        done = subprocess.run(
            [PROGRAM, "run", "--contract", contract, "--", f"{look} | grep -a _X="],
            env={**os.environ, "SECRET_TOKEN_X": "1", "PHOENIX_X": "hunter2", "PLAIN_X": "kept"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "PLAIN_X=kept\n"


def test_the_tools_own_failures_have_a_shape_of_their_own() -> None:
    with nacre.Tool("phoenix") as tool:
        pass
    reply = tool.call({"command": "echo hi"})
    assert reply.is_error
    assert reply.text == "[cannot run command: this tool is closed; create a new one]"
    code = """if True:
        import resource, nacre
        tool = nacre.Tool("phoenix")
        tool.specs()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        print(tool.call({"command": "echo hi"}).text)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith("[cannot run command: this process has no file descriptors left")


def test_an_output_that_cannot_be_kept_is_said(home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("not a directory")
    with nacre.Tool("phoenix") as tool:
        reply = tool.call({"command": "seq 100000"})
    assert reply.text.splitlines()[0] == "[output truncated in middle: got 575.1KB, max is 128KB]"
    assert reply.text.splitlines()[-1].startswith("[full output: not kept (")
    assert not reply.is_error


def test_calls_at_once_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(4)
    texts = []

    def call() -> None:
        together.wait()
        texts.append(tool.call({"command": "sleep 0.5; echo done"}).text)

    with nacre.Tool("phoenix") as tool:
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert texts == ["done\n"] * 4
