"""Compatibility tests: nacre still reads the state directory that commit 5795d5d wrote.

The state directory is `tests/data/state-5795d5d`, and the module `written_state` describes it. Its
workspace is /usr. The tests read runs, outputs, the audit log, sessions and requests.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nacre
from nacre.shell_state.state import ShellState
from nacre.store import idempotency, journal, session_files, setup_snapshots
from tests.support import wardens, written_state
from tests.support.command_line import run_nacre
from tests.support.written_state import ENV, SNAPSHOT

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data" / "state-5795d5d"
USR = Path("/usr")
KEY = "313e6ddd9fd9ecea"  # key of the workspace /usr


@pytest.fixture(autouse=True)
def written(home: Path) -> Path:
    """Make a private copy of the state directory. Git stores no file modes, so set them here."""
    shutil.copytree(DATA, home, copy_function=shutil.copyfile)
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return home


# Maps each run to its command, state, exit code and output.
RUNS = {
    "r1": ("echo small", "exited", 0, "small\n"),
    "r2": ("echo out; exit 3", "exited", 3, "out\n"),
    "r3": ("echo before; kill -9 $$", "killed", 137, "before\n"),
    "r4": ("echo slow; sleep 5", "timed_out", 143, "slow\n"),
    "r5": ("echo waits; sleep 5", "cancelled", 143, "waits\n"),
    "r6": ("true", "not_started", None, ""),
    "r8": ("echo behind; sleep 0.2; exit 4", "exited", 4, "behind\n"),
    "r9": ("sleep 300 >/dev/null 2>&1 & echo left", "exited", 0, "left\n"),
    "r10": ("sleep 300 & echo ended", "exited", 0, "ended\n"),
    "r12": ("echo out; echo err >&2; exit 2", "exited", 2, "out\n"),
    "r13": ("(sleep 0.5; echo late) & echo now", "exited", 0, "now\nlate\n"),
    "r14": ("echo foreground", "exited", 0, "foreground\n"),
    "r15": ("echo served; exit 7", "exited", 7, "served\n"),
    "r17": ("echo once; exit 5", "exited", 5, "once\n"),
    "r18": ("read a; echo got $a", "exited", 0, "got in\n"),
    "r20": ("echo pi", "exited", 0, "pi\n"),
}
ENDINGS = {
    "r1": nacre.Exited(0),
    "r3": nacre.Killed(9),
    "r4": nacre.TimedOut(0.3, nacre.Killed(15)),
    "r5": nacre.Cancelled(nacre.Killed(15)),
    "r7": nacre.Lost(0.0),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_found_and_read_by_its_number(name: str) -> None:
    with nacre.Tool(cwd=USR) as tool:
        run = tool.run(name)
        assert (run.command, run.state, run.exit_code, run.read().text) == RUNS[name]
        assert run.cwd == "/usr"
        outcome = run.wait(0)
    assert outcome is not None
    assert outcome.output.head.decode() == RUNS[name][3]


@pytest.mark.parametrize("name", ENDINGS)
def test_a_run_has_ended_as_it_did(name: str) -> None:
    with nacre.Tool(cwd=USR) as tool:
        assert tool.run(name).ending == ENDINGS[name]


def test_what_is_special_about_a_run_is_known() -> None:
    with nacre.Tool(cwd=USR) as tool:
        outcomes = {name: tool.run(name).wait(0) for name in ("r6", "r9", "r10", "r12")}
        assert tool.run("r12").read(stream=nacre.Stream.ERRORS).text == "err\n"
    found = {name: each for name, each in outcomes.items() if each is not None}
    ending = found["r6"].ending
    assert isinstance(ending, nacre.NotStarted)
    assert str(ending.why) == (
        "the command could not be started: its environment is too large for this system"
    )
    assert [each.command for each in found["r9"].left_running] == ["sleep 300"]
    ended = msgspec.to_builtins(found["r10"])["put_down"]
    assert [each["command"] for each in ended] == ["sleep 300"]
    errors = found["r12"].errors
    assert errors is not None
    assert errors.head == b"err\n"


def test_a_long_output_is_read_by_lines_and_bytes() -> None:
    with nacre.Tool(cwd=USR) as tool:
        text = tool.run("r11").read().text
        assert text == "".join(f"line {i}\n" for i in range(1, 6001))
        reply = tool.call({"action": "read", "run": "r11", "from": 5990, "to": 5991}, tool="job")
        assert reply.text.startswith("line 5990\nline 5991\n")
        reply = tool.call({"command": "sed -n 3p artifact://11"})
        assert reply.text == "line 3\n"


def test_the_index_of_a_long_output_is_used(written: Path) -> None:
    """With a falsified index, nacre returns a wrong line. So nacre really uses the index."""
    index = written / "runs" / "r11" / "output.lines"
    assert len(index.read_bytes()) == 112
    index.write_bytes((8192).to_bytes(8, "little") + (5000).to_bytes(8, "little"))
    with nacre.Tool(cwd=USR) as tool:
        reply = tool.call({"action": "read", "run": "r11", "from": 5001, "to": 5001}, tool="job")
    assert not reply.text.startswith("line 5001\n")


def test_ps_lists_all_of_them() -> None:
    listed = json.loads(run_nacre("ps", "--all", "--json", "-n", "50").stdout)
    names = [*RUNS, "r7", "r11", "r16"]
    assert {each["run"] for each in listed} == set(names)
    states = {each["run"]: (each["command"], each["state"], each["exit_code"]) for each in listed}
    assert states.items() >= {(name, RUNS[name][:3]) for name in RUNS}
    assert states["r7"] == ("echo lost", "lost", None)
    with nacre.Tool(cwd=USR) as tool:
        assert {run.id for run in tool.runs(50)} == set(names)


def test_the_log_is_shown(written: Path) -> None:
    lines = [json.loads(line) for line in (written / "audit.jsonl").read_text().splitlines()]
    shown = run_nacre("log", "--lines", "100").stdout.splitlines()
    assert len(shown) == len(lines) == 27
    assert not [line for line in shown if "cannot be read" in line]
    endings = [" ".join(line.split()).split(" ", 3)[3] for line in shown]
    for words in ("exit 3", "signal 9", "timed out", "cancelled", "not started", "background"):
        assert any(words in each for each in endings), words
    assert any("refused" in each and "git push --force" in each for each in endings)


def test_new_lines_of_the_log_have_the_fields_of_the_old(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeat the calls of the old state directory. Times, numbers and pids may differ."""
    again = tmp_path / "again"
    monkeypatch.setenv("NACRE_HOME", str(again))
    try:
        written_state.write(again)
    finally:
        wardens.end(again)
    for name in ("audit.jsonl", f"journal/{KEY}/000000.jsonl"):
        assert _shapes(again / name) == _shapes(written / name)


def _shapes(path: Path) -> set[str]:
    return {json.dumps(_shape(json.loads(line))) for line in path.read_text().splitlines()}


def _shape(value: Any, name: str = "") -> Any:
    """Return the fields in order. Keep values from nacre's own vocabulary; replace the others."""
    match value:
        # `output` and `errors` are skipped: the file that holds the output depends on timing.
        case dict() if name not in ("output", "errors"):
            return {key: _shape(each, key) for key, each in value.items() if key != "ports"}
        case list():
            return [_shape(each) for each in value[:1] if isinstance(each, dict)]
        case str() if name in ("type", "ending", "decision", "contract", "tool", "rule"):
            return value
        case _:
            return "..."


def test_a_session_goes_on_where_it_was() -> None:
    (listed,) = json.loads(run_nacre("sessions", "list", "--cwd", "/usr", "--json").stdout)
    assert (listed["name"], listed["contract"], listed["cwd"]) == ("work", "nacre", "/usr/bin")
    assert {"x", "Y"} <= set(listed["variables"])
    assert listed["functions"] == ["f"]
    shown = run_nacre("sessions", "show", "work", "--cwd", "/usr").stdout
    assert "directory  /usr/bin\n" in shown
    with nacre.Tool(cwd=USR, env=ENV) as tool:
        reply = tool.call({"command": "pwd; echo $x; env | grep ^Y=; f 1", "session": "work"})
        assert reply.text == "/usr/bin\nkept\nY=given\nf 1\n"


@pytest.mark.parametrize(
    ("arguments", "run", "text"),
    [
        ({"command": "echo once; exit 5", "request_id": "once"}, "r17", "once\n"),
        (
            {
                "command": "read a; echo got $a",
                "interactive": True,
                "stdin": "in\n",
                "request_id": "asked",
            },
            "r18",
            "got in\n",
        ),
    ],
)
def test_the_same_request_is_the_earlier_run(
    arguments: dict[str, Any], run: str, text: str
) -> None:
    with nacre.Tool(cwd=USR, env=ENV) as tool:
        reply = tool.call(arguments)
        other = tool.call({**arguments, "command": "echo other"})
    assert reply.run == run
    assert reply.text.startswith(text)
    assert other.details["refusal"]["id"] == "other_request"


def test_files_are_encoded_again_as_they_are(written: Path) -> None:
    lines = [*(written / "journal" / KEY / "000000.jsonl").read_bytes().splitlines()]
    for path in (written / "runs").glob("*/[po]*"):
        lines += path.read_bytes().splitlines() if path.name in ("plan", "outcome") else []
    assert len(lines) == 49
    for line in lines:
        assert journal.encode_entry(journal.decode_entry(line)) == line
    for path in (written / "requests" / KEY).iterdir():
        claim = msgspec.json.decode(path.read_bytes(), type=idempotency.Claim)
        assert msgspec.json.encode(claim) == path.read_bytes()
    (session,) = (written / "sessions" / KEY).iterdir()
    ledger = msgspec.json.decode((session / "ledger").read_bytes(), type=session_files.Ledger)
    assert msgspec.json.encode(ledger) == (session / "ledger").read_bytes()
    state = msgspec.msgpack.decode((session / "state").read_bytes(), type=ShellState)
    assert msgspec.msgpack.encode(state) == (session / "state").read_bytes()
    snapshot = setup_snapshots.load_snapshot(SNAPSHOT)
    assert snapshot == setup_snapshots.SetupSnapshot(created=1.5, state=state)
    assert msgspec.msgpack.encode(snapshot) == (written / "snapshots" / SNAPSHOT).read_bytes()


def test_the_next_run_has_the_next_number() -> None:
    with nacre.Tool("harness", cwd=USR) as tool:
        assert tool.call({"command": "true"}).run == "r21"
