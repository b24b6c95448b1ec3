"""Tests of the contract pi that need more than one row of the case table."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nacre
from nacre.contracts.pi.reply import LIMIT, cut_output, wall_time_line, wall_time_ms
from nacre.model.caller import Resolved
from nacre.model.outcome import Capture, Exited, Outcome, Saved
from nacre.model.refusals import BadLink
from nacre.prepare import shell_check
from nacre.store.url_resolvers import HostResolver
from tests.support.decide import decided
from tests.support.helpers import eventually, named

pytestmark = pytest.mark.slow


def bash(command: str, *, options: dict[str, Any] | None = None, **more: Any) -> nacre.Reply:
    with nacre.Tool("pi", options=options or {}) as tool:
        return tool.call({"command": command, **more})


def test_the_schema_has_what_is_enabled() -> None:
    def fields(**options: Any) -> list[str]:
        with nacre.Tool("pi", options=options) as tool:
            spec = tool.specs()[0]
        return list(spec["input_schema"]["properties"])

    usual = ["command", "env", "timeout", "cwd", "pty"]
    assert fields() == usual
    assert fields(**{"async": True}) == [*usual, "async"]
    assert fields(head_tail=True) == [*usual, "head", "tail"]


def test_aborting_keeps_the_output() -> None:
    token = nacre.CancelToken()

    def heard(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk):
            token.cancel()

    with nacre.Tool("pi") as tool:
        reply = tool.call({"command": "echo early; sleep 60"}, listen=heard, cancel=token)
    assert reply.is_error
    assert reply.text.startswith(
        "early\n\n[the session is as this command has left it]\nWall time: "
    )
    assert reply.text.endswith("\nCommand aborted")
    assert reply.details["aborted"] is True


def test_aborted_before_it_started() -> None:
    token = nacre.CancelToken()
    token.cancel()
    with nacre.Tool("pi") as tool:
        reply = tool.call({"command": "echo early"}, cancel=token)
    assert (reply.text, reply.is_error) == ("Command aborted", True)


def test_calls_of_one_session_run_one_at_a_time_in_order(tmp_path: Path) -> None:
    async def many(tool: nacre.Tool) -> None:
        order = (
            tool.acall({"command": f"echo {i} in >> log; sleep 0.05; echo {i} out >> log"})
            for i in range(6)
        )
        await asyncio.gather(*order)

    with nacre.Tool("pi", cwd=tmp_path) as tool:
        asyncio.run(many(tool))
    said = (tmp_path / "log").read_text().splitlines()
    assert said == [f"{i} {what}" for i in range(6) for what in ("in", "out")]


def test_calls_of_one_session_wait_for_each_other_across_threads(tmp_path: Path) -> None:
    command = {"command": "echo in >> log; sleep 0.1; echo out >> log"}
    with nacre.Tool("pi", cwd=tmp_path) as tool:
        threads = [threading.Thread(target=tool.call, args=(command,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert (tmp_path / "log").read_text() == "in\nout\n" * 4


def test_a_call_that_waits_its_turn_can_be_aborted(tmp_path: Path) -> None:
    token = nacre.CancelToken()

    async def scenario(tool: nacre.Tool) -> tuple[nacre.Reply, nacre.Reply]:
        wait = "touch begun; until [ -e go ]; do sleep 0.05; done; echo first"
        first = asyncio.create_task(tool.acall({"command": wait}))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.02)
        second = asyncio.create_task(tool.acall({"command": "touch made"}, cancel=token))
        await asyncio.sleep(0.1)
        token.cancel()
        aborted = await second
        (tmp_path / "go").touch()
        return aborted, await first

    with nacre.Tool("pi", cwd=tmp_path) as tool:
        second, first = asyncio.run(scenario(tool))
    assert second.text == "Command aborted"
    assert first.text.startswith("first\n")
    assert not (tmp_path / "made").exists()


def test_the_time_in_line_does_not_count(tmp_path: Path) -> None:
    async def scenario(tool: nacre.Tool) -> list[nacre.Reply]:
        slow, quick = {"command": "sleep 3.5"}, {"command": "echo hi", "timeout": 3}
        return list(await asyncio.gather(tool.acall(slow), tool.acall(quick)))

    with nacre.Tool("pi", cwd=tmp_path) as tool:
        replies = asyncio.run(scenario(tool))
    assert replies[1].text.startswith("hi\n")
    assert replies[1].details["wallTimeMs"] < 3000


def test_shared_calls_run_at_once(tmp_path: Path) -> None:
    """Each command waits until all six commands have started."""
    wait = "touch {}; until [ $(ls [0-5] | wc -l) = 6 ]; do sleep 0.05; done"

    async def many(tool: nacre.Tool) -> list[nacre.Reply]:
        calls = [{"command": wait.format(number), "timeout": 30} for number in range(6)]
        return list(await asyncio.gather(*map(tool.acall, calls)))

    with nacre.Tool("pi", cwd=tmp_path, options={"concurrency": "shared"}) as tool:
        assert not any(reply.is_error for reply in asyncio.run(many(tool)))


def test_two_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The command of the first session waits for the command of the second session."""
    wait = {"command": "touch begun; until [ -e done ]; do sleep 0.05; done", "timeout": 30}
    with nacre.Tool("pi", cwd=tmp_path) as one, nacre.Tool("pi", cwd=tmp_path) as two:
        replies: list[nacre.Reply] = []
        thread = threading.Thread(target=lambda: replies.append(one.call(wait)))
        thread.start()
        eventually((tmp_path / "begun").exists)
        two.call({"command": "touch done"})
        thread.join()
    assert not replies[0].is_error


def test_an_artifact_that_cannot_be_written_is_said(home: Path) -> None:
    home.write_text("not a directory")
    reply = bash("seq 20000")
    assert not reply.is_error
    notice = reply.text.splitlines()[-3]
    assert notice.startswith("[Showing lines 11467-20000 of 20000 (50KB limit). Full: not kept (")
    assert "this command had no session, and nothing is remembered" in reply.text
    assert "artifactId" not in reply.details["meta"]["truncation"]


def test_live_updates_are_coalesced_and_complete() -> None:
    heard: list[tuple[float, bytes]] = []

    def listen(event: nacre.Event) -> None:
        if isinstance(event, nacre.Chunk):
            assert not event.skipped
            heard.append((time.monotonic(), event.data))

    with nacre.Tool("pi") as tool:
        tool.call({"command": "for i in {1..60}; do echo $i; sleep 0.01; done"}, listen=listen)
    assert b"".join(data for _, data in heard) == b"".join(b"%d\n" % i for i in range(1, 61))
    assert len(heard) < 40
    times = [when for when, _ in heard[:-1]]  # the last update is sent without a pause
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert all(gap > 0.045 for gap in gaps)


def test_pi_reports_a_missing_exit_status() -> None:
    code = """if True:
        import signal, nacre
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(200):
            reply = nacre.Tool("pi").call({"command": "true"})
            if reply.is_error: break
        print(reply.text)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    last = said.stdout.splitlines()[-1]
    # Recent kernels report the exit status even if SIGCHLD is ignored. Other kernels report it if
    # nacre asks for it in time.
    assert last == "Command failed: missing exit status" or last.startswith("Wall time: ")


@pytest.mark.parametrize("url", ["skill://../x", "skill:///etc/passwd", "skill://%2e%2e%2fx"])
def test_skills_stay_in_their_place(url: str) -> None:
    known = {"skill": lambda rest: Resolved(path=os.fsencode(f"/skills/{rest}"))}
    refusal = decided("pi", f"cat {url}", more_resolvers=known).refusal
    assert isinstance(refusal, BadLink)
    assert refusal.url == url


def test_unknown_skills_are_answered_with_the_known_ones() -> None:
    def resolver(rest: str) -> Resolved:
        raise LookupError(f"there is no skill {rest!r}; there is lint, review")

    refusal = decided("pi", "cat skill://x", more_resolvers={"skill": resolver}).refusal
    assert str(refusal) == "skill://x: there is no skill 'x'; there is lint, review"


def test_a_host_gives_resolvers_for_its_urls(tmp_path: Path) -> None:
    (tmp_path / "lint.md").write_text("run ruff\n")

    def find_skill(rest: str) -> Path:
        if rest != "lint":
            raise LookupError(f"there is no skill {rest!r}; there is lint")
        return tmp_path / "lint.md"

    for contract in ("pi", "nacre", "phoenix"):
        resolvers: dict[str, HostResolver] = {"skill": find_skill, "doc": tmp_path.joinpath}
        with nacre.Tool(contract, cwd=tmp_path, resolvers=resolvers) as tool:
            for url in ("skill://lint", "doc://lint.md"):
                assert tool.call({"command": f"cat {url}"}).text.startswith("run ruff\n")
            refused = tool.call({"command": "cat skill://x"})
            assert refused.is_error
            assert "skill://x: there is no skill 'x'; there is lint" in refused.text
    with nacre.Tool("pi", cwd=tmp_path) as tool:
        refused = tool.call({"command": "cat skill://lint"})
        assert refused.text == (
            "skill://lint: skill:// URLs cannot be resolved here; schemes with a resolver: "
            "artifact, local"
        )


def test_paths_of_resolvers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("in the host\n")
    resolvers: dict[str, HostResolver] = {"local": str, "bad": lambda _: "a\0b"}
    for contract in ("nacre", "phoenix", "pi"):
        with nacre.Tool(contract, cwd="/", resolvers=resolvers) as tool:
            assert tool.call({"command": "cat local://a"}).text.startswith("in the host\n")
            refused = tool.call({"command": "cat bad://a"})
            assert "bad://a: has a resolver that returned no path" in refused.text


@pytest.mark.parametrize(
    ("scheme", "problem"), [("https", "are not internal"), ("a b", "cannot be a URL scheme")]
)
def test_a_resolver_for_a_scheme_of_others_is_refused(scheme: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        nacre.Tool("pi", resolvers={scheme: str})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (True, 60.0),
        ("true", 60.0),
        ("on", 60.0),
        (False, None),
        ("off", None),
        (5, 5.0),
        ("7", 7.0),
    ],
)
def test_auto_background_is_a_switch_or_a_number(given: Any, seconds: float | None) -> None:
    with nacre.Tool("pi", options={"auto_background": given}) as tool:
        assert getattr(tool.contract, "options").auto_background == seconds  # noqa: B009


def test_a_chosen_shell_runs_the_commands(tmp_path: Path) -> None:
    shell = tmp_path / "other-bash"
    shell.write_bytes(Path("/bin/bash").read_bytes())
    shell.chmod(0o755)
    with nacre.Tool("pi", cwd=tmp_path, options={"shell": str(shell)}) as tool:
        tool.call({"command": "x=1"})
        reply = tool.call({"command": "echo $BASH $x; readlink /proc/$$/exe"})
        assert reply.text.startswith(f"{shell} 1\n{shell}\n")


@pytest.mark.parametrize(
    ("shell", "problem"),
    [
        ("/nonexistent", "shell '/nonexistent' is not a program; give the path of a bash"),
        ("/bin/cat", "shell '/bin/cat' cannot be used: it is not compatible with bash"),
        ("/bin/dash", "shell '/bin/dash' cannot be used: it is not compatible with bash"),
    ],
)
def test_a_shell_that_is_no_bash_is_refused(shell: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        nacre.Tool("pi", options={"shell": shell})


def test_a_shell_that_does_not_answer_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_check, "_TIMEOUT", 0.5)
    shell = tmp_path / "slow"
    shell.write_text("#!/bin/sh\nsleep 987.61\n")
    shell.chmod(0o755)
    with pytest.raises(ValueError, match=r"it did not answer in 0\.5 s"):
        nacre.Tool("pi", options={"shell": str(shell)})
    eventually(lambda: not named("sleep 987.61"))


def test_an_old_bash_is_refused(tmp_path: Path) -> None:
    shell = tmp_path / "bash"
    shell.write_text("#!/bin/sh\necho bash 4 3\n")
    shell.chmod(0o755)
    with pytest.raises(ValueError, match=r"it is bash 4\.3; 4\.4 is the oldest that works"):
        nacre.Tool("pi", options={"shell": str(shell)})


def test_commands_get_the_variables_of_pi() -> None:
    names = (
        *("NO_COLOR", "TERM", "CI", "GH_PROMPT_DISABLED", "PNPM_UPDATE_NOTIFIER"),
        *("PNPM_DISABLE_SELF_UPDATE_CHECK", "YARN_ENABLE_TELEMETRY", "YARN_ENABLE_PROGRESS_BARS"),
        *("TF_INPUT", "TF_IN_AUTOMATION", "PYTHONUNBUFFERED", "LESS"),
    )
    shown = bash("echo " + " ".join(f"${name}" for name in names)).text.partition("\n")[0]
    assert shown == "1 dumb true 1 false true 0 0 0 1 1 FRX"
    assert bash("echo $TERM", env={"TERM": "xterm"}).text.startswith("xterm\n")


@pytest.mark.parametrize("seconds", [0.0, 0.0049, 0.005, 1.0049, 1.005, 1.00549, 59.9951, 3600.125])
def test_the_wall_time_is_rounded_once(seconds: float) -> None:
    assert wall_time_line(seconds) == f"Wall time: {wall_time_ms(seconds) / 1000:.2f} seconds"


def test_the_wall_time_of_a_reply_and_of_its_details_agree() -> None:
    reply = bash("sleep 0.017")
    shown = f"Wall time: {reply.details['wallTimeMs'] / 1000:.2f} seconds"
    assert reply.text.endswith(shown)


def test_a_long_list_of_leftover_processes_is_cut() -> None:
    for contract in ("pi", "nacre", "phoenix"):
        with nacre.Tool(contract) as tool:
            reply = tool.call({"command": "for i in {1..24}; do sleep 3.71 & done; echo x"})
        lines = [line for line in reply.text.splitlines() if "left running" in line]
        assert len(lines) == 11
        assert lines[-1] == "[left running: and 14 more]"
    eventually(lambda: not named("sleep 3.71"))


def test_blanks_of_cursor_movements_count_for_the_limit() -> None:
    text = bash(r"for i in {1..5000}; do printf '\033[4000Cx\n'; done").text
    assert len(text.encode()) <= LIMIT + 200
    assert "[Showing lines 49" in text


@pytest.mark.parametrize("contract", ["pi", "harness"])
def test_limits_hold_for_what_is_shown(contract: str) -> None:
    with nacre.Tool(contract) as tool:
        reply = tool.call({"command": "head -c 1048576 /dev/zero | tr '\\0' '\\377'"})
    if contract == "harness":
        shown = reply.details["stdout"]
        assert 1024 * 1024 - 3 <= len(shown.encode()) <= 1024 * 1024
        assert shown.endswith("\ufffd... (truncated)")
    else:
        shown, _, notes = reply.text.partition("\n\n")
        assert LIMIT - 3 <= len(shown.encode()) <= LIMIT
        assert notes.startswith("[Showing lines 1-1 of 1 (50KB limit). Full: artifact://")


# The shown output, compared with a simple calculation in Python on the same bytes.

LINES = st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")), max_size=30)


@given(LINES, st.booleans(), st.none() | st.integers(0, 40), st.none() | st.integers(0, 40))
def test_small_outputs_are_cut_by_lines(
    lines: list[bytes], ended: bool, head: int | None, tail: int | None
) -> None:
    plain = [b"%d" % i for i, _ in enumerate(lines)]
    data = b"\n".join(plain) + (b"\n" if ended and plain else b"")
    kept = plain[: len(plain) if head is None else head]
    kept = kept[max(0, len(kept) - tail) :] if tail is not None else kept
    part = cut_output(_outcome(data, b"", len(data)), head, tail)
    assert part.text.splitlines() == [each.decode() for each in kept]
    assert part.truncation is None


@given(st.integers(1, 400), st.integers(1, 900), st.booleans())
def test_ranges_are_exact(width: int, count: int, ended: bool) -> None:
    data = b"".join(b"%0*d\n" % (width, i) for i in range(1, count + 1))
    data = data if ended else data[:-1]
    part = cut_output(_outcome(b"", data[-LIMIT:], len(data), data), None, None)
    if len(data) <= LIMIT:
        assert part.truncation is None
        return
    assert part.truncation is not None
    first, last = part.truncation["shownRange"]["start"], part.truncation["shownRange"]["end"]
    texts = part.text.splitlines()
    assert last == count == int(texts[-1])
    assert last - first + 1 == len(texts) == part.truncation["outputLines"]
    assert not texts[0] or int(texts[0]) == first % 10 ** len(texts[0])
    assert part.truncation["outputBytes"] == LIMIT


def _outcome(head: bytes, tail: bytes, size: int, data: bytes | None = None) -> Outcome:
    whole = head if data is None else data
    capture = Capture(
        head=head,
        tail=tail,
        size=size,
        newlines=whole.count(b"\n"),
        unterminated=bool(whole) and not whole.endswith(b"\n"),
        saved=Saved(path=b"/x", size=size, complete=True) if data is not None else None,
    )
    return Outcome(run="r1", ending=Exited(0), output=capture)
