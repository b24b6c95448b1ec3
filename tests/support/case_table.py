"""The case table: what each contract answers, row by row, for every front that there is.

`cases/<contract>.toml` has sections, and a section has cases:

    says        the sentence of the contract that the row shows
    arguments   of the call, or `json`: the same as JSON text, where TOML cannot say it
    tool        which tool (bash)
    options     of the contract
    tools       what else the caller has
    env         more variables for the process that calls
    files       made before the call: path = content
    setup       a shell script, run before the call
    before      commands that are called before, in the same state directory
    session     and in which session those were called
    cwd         a directory below the row's own, which is $TMP; $CWD stands for it
    cancel      it is called off when this file is there
    port        one that the row shows; a free one stands in for it
    shows       what every front must do, also those that do not run all rows

and what comes back:

    text        all of it; `$TMP`, `$CWD` and `$STATE` stand for directories
    matches     or a regular expression for all of it
    is_error    (false)
    details     all of it, without what differs from run to run, see `settled`; "NULL" is null
    reply       of harness: its object
    made        files that must be there then: path = content
    eventually  files that must have this content before long: path = content
    not_made    files that must not
    gone        command lines of which no process may be left
    leaves      whether something is left running, on purpose

`elsewhere` are sentences that are shown by a test of their own.
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
_TIME = re.compile(r"Wall time: \d+\.\d\d seconds")


def settled(text: str) -> str:
    """Without what differs from run to run."""
    text = _BACKGROUND.sub(r"\1PID", _PID.sub(r"\1PID ", text))
    return _TIME.sub("Wall time: N seconds", text)


def settled_details(details: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in details.items() if k not in ("wallTimeMs", "seconds", "run")}
    if "pid" in kept:
        kept["pid"] = "PID"
    if "left_running" in kept:
        kept["left_running"] = [{**each, "pid": "PID"} for each in kept["left_running"]]
    return kept
