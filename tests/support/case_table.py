"""Reader of the case table: calls and expected replies of each contract, for all front ends.

`cases/<contract>.toml` has sections, and a section has cases (rows). These keys describe a call:

    says        sentence of the contract that the row demonstrates
    arguments   arguments of the call
    json        arguments as JSON text, for values that TOML cannot express
    tool        name of the tool; default: bash
    options     options of the contract
    tools       names of the caller's other tools
    env         additional environment variables of the calling process
    files       files to create before the call: path = content
    setup       shell script to run before the call
    before      commands to call before the call, in the same state directory
    session     session of the commands in `before`
    cwd         directory of the call, relative to the row's directory
    cancel      file; the call is cancelled when this file exists
    port        port number in the row, which the test replaces by a free port
    shows       short title of a row that every front end and adapter must run

These keys describe the reply and its effects:

    text        complete text; `$TMP` (row's directory), `$CWD` and `$STATE` stand for directories
    matches     regular expression for the complete text, instead of `text`
    is_error    whether the reply is an error; default: false
    details     complete details, normalized by `normalize_details`; "NULL" stands for null,
                "MEASURED" for a value that differs from call to call
    reply       complete reply object, for the contract harness
    made        files that must exist after the call: path = content
    eventually  files that must get this content within some seconds: path = content
    not_made    files that must not exist after the call
    gone        command lines that no process may have after the call
    leaves      whether the command leaves a process running on purpose

Each entry of `elsewhere` has a sentence of the contract and the name of a test that proves it.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, TypedDict

CASES = Path(__file__).parents[1] / "contracts" / "cases"
ROOT = CASES.parent.parent.parent


class Case(TypedDict, total=False):
    says: str
    shows: str
    arguments: dict[str, Any]
    json: str
    tool: str
    options: dict[str, Any]
    tools: list[str]
    env: dict[str, str]
    files: dict[str, str]
    setup: str
    before: list[str]
    session: str
    cwd: str
    cancel: str
    port: int
    text: str
    matches: str
    is_error: bool
    details: dict[str, Any]
    reply: dict[str, Any]
    made: dict[str, str]
    eventually: dict[str, str]
    not_made: list[str]
    gone: list[str]
    leaves: bool


class Elsewhere(TypedDict):
    says: str
    test: str


class Section(TypedDict, total=False):
    title: str
    text: str
    case: list[Case]
    elsewhere: list[Elsewhere]


def contracts() -> list[str]:
    return sorted(path.stem for path in CASES.glob("*.toml"))


def sections(contract: str) -> list[Section]:
    found: list[Section] = tomllib.loads((CASES / f"{contract}.toml").read_text())["section"]
    return found


def cases(contract: str) -> list[Case]:
    return [case for section in sections(contract) for case in section.get("case", [])]


_PID = re.compile(r"(\[left running: )\d+ ")
_BACKGROUND = re.compile(r"(<pid>|kill -9 -)\d+")
_ACTIVITY = re.compile(r"; pid \d+(?:, [^;\]]*)?")
_TIME = re.compile(r"Wall time: \d+\.\d\d seconds")


def normalize_text(text: str) -> str:
    """Replace pids and wall times, which differ from run to run."""
    text = _ACTIVITY.sub("; pid PID", text)
    text = _BACKGROUND.sub(r"\1PID", _PID.sub(r"\1PID ", text))
    return _TIME.sub("Wall time: N seconds", text)


def normalize_details(details: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in details.items() if k not in ("wallTimeMs", "seconds", "run")}
    if "pid" in kept:
        kept["pid"] = "PID"
    if "left_running" in kept:
        kept["left_running"] = [{**each, "pid": "PID"} for each in kept["left_running"]]
    if "activity" in kept:
        measured = ("pid", "processes", "cpu_seconds", "idle_seconds")
        kept["activity"] = {**kept["activity"], **dict.fromkeys(measured, "MEASURED")}
    return kept
