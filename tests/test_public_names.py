"""Tests that public names do not change.

Users, stored data and wardens of other versions rely on these names. The tests compare the names
with JSON files, which contain only literals.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.frontends.cli import doctor
from nacre.warden import protocol
from tests.support import public_names
from tests.support.command_line import run_nacre


@pytest.mark.parametrize("name", public_names.TABLES)
def test_public_names_are_those_on_record(name: str) -> None:
    recorded = json.loads((public_names.DATA / f"{name}.json").read_text())
    assert json.loads(json.dumps(public_names.TABLES[name]())) == recorded


def test_every_type_of_rpc_message_has_its_fields_on_record() -> None:
    assert public_names.rpc().keys() - {"bash"} == public_names.MESSAGES.keys()


@pytest.mark.parametrize("side", ["from client", "from warden"])
def test_recorded_frames_are_decoded_and_encoded_again_as_they_are(side: str) -> None:
    decode = protocol.decode_client_frame if side == "from client" else protocol.decode_warden_frame
    for text in json.loads((public_names.DATA / "wire_frames.json").read_text())[side]:
        data = bytes.fromhex(text)
        assert protocol.encode_frame(decode(data[4:])).hex() == text


_NACRE = "state exit_code signal seconds run cwd output left_running hints"
REPLIES = [
    ("harness", {"command": "echo x; exit 3"}, "stdout stderr exitCode"),
    ("harness", {"command": 5}, "error"),
    ("harness", {"command": "kill -9 $$"}, "stdout stderr exitCode signal"),
    ("phoenix", {"command": "echo x; exit 3"}, "run seconds exit_code output"),
    ("phoenix", {"command": "kill -9 $$"}, "run seconds exit_code signal output"),
    ("pi", {"command": "echo x; exit 3"}, "timeoutSeconds wallTimeMs exitCode"),
    ("pi", {"command": "sleep 5", "timeout": 1}, "timeoutSeconds wallTimeMs timedOut"),
    ("nacre", {"command": "echo x; exit 3"}, _NACRE),
    ("nacre", {"command": 5}, f"{_NACRE} refusal"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "arguments", "keys"), REPLIES)
def test_details_have_the_keys_on_record(
    tmp_path: Path, contract: str, arguments: dict[str, Any], keys: str
) -> None:
    with nacre.Tool(contract, cwd=tmp_path) as tool:
        assert " ".join(tool.call(arguments).details) == keys


def test_details_of_a_refusal_of_phoenix_have_the_keys_on_record(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path, options={"safety": ["git"]}) as tool:
        details = tool.call({"command": "git push --force"}).details
    assert " ".join(details) == "rule instead"
    assert details["rule"] == "git.force-push"


@pytest.mark.slow
def test_details_of_nacre_hold_what_is_on_record(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path) as tool:
        details = tool.call({"command": "sleep 9 >/dev/null & echo x", "leave": "end"}).details
        refused = tool.call({"command": "true", "cwd": "/nonexistent"}).details
    assert " ".join(details["output"]) == "bytes lines shown cursor cut"
    assert details["state"] == "exited"
    assert refused["refusal"] == {
        "id": "bad_directory",
        "rule": None,
        "why": "cwd /nonexistent does not exist",
        "instead": "/ does",
    }


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("run", "--", "exit 3"), 3, ""),
        (("run", "--timeout", "0.2", "--", "sleep 5"), 124, ""),
        (("run", "--cwd", "/nonexistent", "--", "true"), 125, ""),
        (("run", "--", "kill -9 $$"), 137, ""),
        (("call", "5"), 2, ""),
        (("wait", "1", "--timeout", "x"), 2, "argument --timeout: invalid seconds value: 'x'"),
        (("log", "--lines", "x"), 2, "argument --lines/-n: invalid lines value: 'x'"),
    ],
)
def test_exit_codes(tmp_path: Path, words: tuple[str, ...], code: int, problem: str) -> None:
    done = run_nacre(*words, cwd=tmp_path)
    assert done.returncode == code
    assert problem in done.stderr


def test_json_of_the_command_line_has_the_keys_on_record(tmp_path: Path) -> None:
    def keys(*words: str) -> str:
        said = json.loads(run_nacre(*words, cwd=tmp_path).stdout)
        return " ".join(said[0] if isinstance(said, list) else said)

    run = keys("run", "--json", "--session", "work", "--", "x=1; exit 3")
    assert run == "run ending exit_code seconds output kept left_running"
    assert keys("ps", "--json") == (
        "run state exit_code begun seconds command cwd workspace output_bytes output_file pid "
        "owner left_running"
    )
    sessions = "name contract cwd made used variables functions"
    assert keys("sessions", "--json") == sessions
    assert keys("sessions", "show", "work", "--json") == sessions
    assert keys("explain", "--json", "cd /; git commit") == (
        "readable commands verdict rule why instead commits cwd script suggestion needs_terminal"
    )


def test_doctor_names_a_check_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(subprocess, "run", fails)
    # `examine` is a generator, so no check after the failed one runs.
    found = next(each for each in doctor.examine() if each.text == "no")
    assert found.topic == "bash"
