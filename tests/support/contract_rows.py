"""Runner that sends the rows of the case table through one front end, several at once.

    python -m tests.support.contract_rows FRONT DIRECTORY

This process loads all modules and starts no thread. It forks one child for each row, so that the
cost of starting Python is paid once. Each child has its own environment variables, directory and
state directory. The answer to a row is written to DIRECTORY/NUMBER/said.json.
"""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nacre.contracts.contract import Reply
from nacre.frontends.cli import common
from nacre.frontends.cli.main import entry as command_line_entry
from nacre.frontends.cli.main import main as command_line_main
from nacre.frontends.rpc.line_io import MAX_LINE
from tests.support import case_table
from tests.support.case_table import Case
from tests.support.command_line import PROGRAM, use_own_environment
from tests.support.helpers import eventually, free_port, named

AT_ONCE = 4


def arguments(case: Case) -> Any:
    return json.loads(case["json"]) if "json" in case else case["arguments"]


ROWS = [
    (contract, case) for contract in case_table.contracts() for case in case_table.cases(contract)
]


def rows_of(front: str) -> list[tuple[str, Case]]:
    """Return the rows whose arguments this front end can transport. Other tests
    cover the remaining rows."""
    return [row for row in ROWS if _can_be_said(arguments(row[1]), front)]


def _can_be_said(given: Any, front: str) -> bool:
    if front == "command line":
        return isinstance(given, dict)
    try:
        text = json.dumps(given, allow_nan=False)
    except ValueError:
        return False
    return isinstance(given, dict) if front == "mcp" else len(text) < MAX_LINE


class Place:
    """Directories and environment variables of one row, and the checks of its reply and effects."""

    def __init__(self, root: Path, state: Path, contract: str, case: Case) -> None:
        self.root, self.state, self.contract, self.case = root, state, contract, case
        self.cwd = root / case.get("cwd", "")
        self.env = {
            "NACRE_HOME": str(state),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            **case.get("env", {}),
        }

    @property
    def arguments(self) -> Any:
        """Arguments of the call, with the port number replaced by a free port."""
        return json.loads(self._with_port(json.dumps(arguments(self.case))))

    def _with_port(self, text: str) -> str:
        """Replace the row's port number in `text` by a free port. The first call chooses the port
        and writes it to a file. Later calls, also from the test process, read that file."""
        if "port" not in self.case:
            return text
        chosen = self.root.parent / "port"
        if not chosen.exists():
            chosen.write_text(str(free_port()))
        return text.replace(str(self.case["port"]), chosen.read_text())

    @property
    def cancel_file(self) -> Path | None:
        """File whose existence triggers the cancellation of the call; None: no cancellation."""
        return self.root / self.case["cancel"] if "cancel" in self.case else None

    def call_off_by(self, call: Callable[[], object]) -> None:
        def wait(file: Path) -> None:
            eventually(file.exists)
            call()

        if self.cancel_file is not None:
            threading.Thread(target=wait, args=(self.cancel_file,), daemon=True).start()

    def prepare(self, nacre: "Callable[[Place, list[str]], None] | None" = None) -> None:
        """Create the row's files, and run its `setup` script and its `before` commands. The
        function `nacre` runs the program with given arguments; None: start a new process."""
        self.root.mkdir(parents=True)
        for path, content in self.case.get("files", {}).items():
            (self.root / path).write_text(content)
        if "setup" in self.case:
            self._run(["bash", "-ec", self.case["setup"]])
        for command in self.case.get("before", []):
            given = json.dumps({"command": command})
            session = ["--session", self.case["session"]] if "session" in self.case else []
            words = ["call", "--contract", self.contract, *session, given]
            if nacre is None:
                self._run([PROGRAM, *words])
            else:
                nacre(self, words)

    def _run(self, words: list[str]) -> None:
        subprocess.run(
            words,
            cwd=self.root,
            env={**os.environ, **self.env},
            check=True,
            capture_output=True,
            timeout=60,
        )

    def compare(self, said: dict[str, Any]) -> None:
        case = self.case
        if "reply" in case:
            assert said == self._fill(case["reply"])
        else:
            flag = "isError" if self.contract == "pi" else "is_error"
            assert sorted(said) == sorted(["content", "details", flag])
            if self.contract == "pi":
                (part,) = said["content"]
                assert part == {"type": "text", "text": part["text"]}
                self.compare_text(part["text"])
            else:
                self.compare_text(said["content"])
            assert said[flag] is case.get("is_error", False)
            if "details" in case:
                assert case_table.normalize_details(said["details"]) == self._fill(case["details"])
        self.look_around()

    def compare_text(self, said: str) -> None:
        text = case_table.normalize_text(said)
        if "matches" in self.case:
            assert re.fullmatch(self._fill(self.case["matches"]), text, re.DOTALL), text
        else:
            assert text == self._fill(self.case["text"])

    def look_around(self) -> None:
        """Check the files that the row created and the processes that it left running."""
        case = self.case
        for path, content in case.get("made", {}).items():
            assert (self.root / path).read_text() == content
        for path, content in case.get("eventually", {}).items():
            file = Path(self._fill(path))
            eventually(partial(_has, file, content))
        for path in case.get("not_made", []):
            assert not (self.root / path).exists()
        for command in case.get("gone", []):
            assert named(command) == []

    def _fill(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, path in (("$TMP", self.root), ("$CWD", self.cwd), ("$STATE", self.state)):
                value = value.replace(name, str(path))
            value = self._with_port(value)
            value = None if value == "NULL" else value
        elif isinstance(value, dict):
            value = {key: self._fill(each) for key, each in value.items()}
        return value


def _has(file: Path, content: str) -> bool:
    return file.read_text() == content


# The front ends. Each function returns the answer to a row, in the form that `nacre call` prints.
# None means that the call was cancelled and that the front end sends no answer to such a call.

Answer = dict[str, Any] | None


def command_line(place: Place) -> Answer:
    case = place.case
    words = ["call", "--contract", place.contract, "--cwd", str(place.cwd)]
    words += ["--tool", case.get("tool", "bash"), "--tools", ",".join(case.get("tools", ()))]
    for key, value in case.get("options", {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    given, printed = place.root.parent / "given", place.root.parent / "printed"
    given.write_text(json.dumps(place.arguments))
    os.dup2(os.open(given, os.O_RDONLY), 0)
    os.dup2(os.open(printed, os.O_CREAT | os.O_WRONLY), 1)
    place.call_off_by(partial(os.kill, os.getpid(), signal.SIGTERM))
    assert command_line_main([*words, "-"]) == 0
    said: dict[str, Any] = json.loads(printed.read_bytes())
    return said


def rpc(place: Place) -> Answer:
    from nacre.frontends.rpc.methods import RpcMethods
    from nacre.frontends.rpc.serve import tool_factory
    from nacre.frontends.rpc.server import Server

    case, engine = place.case, common.own_engine()
    make = tool_factory(engine, place.contract, {}, {})
    message = {
        "id": "row",
        "type": "call",
        "contract": place.contract,
        "tool": case.get("tool", "bash"),
        "arguments": place.arguments,
        "cwd": str(place.cwd),
        "options": case.get("options", {}),
        "tools": case.get("tools", []),
    }
    lines = [json.dumps(message)]
    source, feed = os.pipe()
    said = place.root.parent / "printed"
    sink = os.open(said, os.O_CREAT | os.O_WRONLY)

    def write() -> None:
        with os.fdopen(feed, "w") as file:
            file.write(f"{lines[0]}\n")
            file.flush()
            if place.cancel_file is not None:
                eventually(place.cancel_file.exists)
                file.write('{"type": "abort_bash", "id": "row"}\n')

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert Server(RpcMethods(make, engine), engine, sink, linger=60).serve(source) == 0
    writer.join()  # `main` may fork only while it has one thread
    answers = [json.loads(line) for line in said.read_bytes().splitlines()]
    (answer,) = [each for each in answers if each.get("command") == "call"]
    assert (answer["id"], answer["success"]) == ("row", True), answer
    data: dict[str, Any] = answer["data"]
    return data


def mcp(place: Place) -> Answer:
    import anyio
    import mcp as sdk

    from nacre.frontends.mcp.server import McpServer

    case = place.case
    tool = common.own_tool(
        place.contract,
        cwd=str(place.cwd),
        tools=case.get("tools", ()),
        options=case.get("options", {}),
        max_wait=400,  # seconds; with less than pi's timeout each row of pi would start a warden
    )
    era = "legacy" if len(case["says"]) % 2 else "auto"

    async def when_begun(file: Path, scope: anyio.CancelScope) -> None:
        while not file.exists():
            await anyio.sleep(0.01)
        scope.cancel()

    async def call() -> Answer:
        async with (
            sdk.Client(McpServer(tool), mode=era) as client,
            anyio.create_task_group() as beside,
        ):
            with anyio.move_on_after(60) as scope:
                if place.cancel_file is not None:
                    beside.start_soon(when_begun, place.cancel_file, scope)
                result = await client.call_tool(case.get("tool", "bash"), place.arguments)
                (block,) = result.content
                assert isinstance(block, sdk.types.TextContent)
                if place.contract == "harness":
                    plain: Answer = json.loads(block.text)
                    assert plain == result.structured_content
                    return plain
                assert isinstance(result.structured_content, dict)
                return tool.contract.to_json(
                    Reply(
                        text=block.text,
                        is_error=bool(result.is_error),
                        details=result.structured_content,
                    )
                )
        return None

    said: Answer = anyio.run(call)
    tool.close()
    return said


FRONTS: dict[str, Callable[[Place], Answer]] = {
    "command line": command_line,
    "rpc": rpc,
    "mcp": mcp,
}


def _row(front: str, root: Path, contract: str, case: Case) -> None:
    """Run one row, in a child process, and write its answer."""
    place = Place(root / "place", root / "state", contract, case)
    place.prepare(_forked_nacre)
    _move_to(place)
    said = FRONTS[front](place)
    (root / "said.json").write_text(json.dumps(said))


def _move_to(place: Place) -> None:
    os.environ.update(place.env)
    os.chdir(place.root)
    use_own_environment()


def _forked_nacre(place: Place, words: list[str]) -> None:
    """Run the `nacre` program in a forked child. The library tests start a new process instead."""
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0, f"nacre {words} ended with {code}"
        return
    os.dup2(os.open(place.root.parent / "before", os.O_CREAT | os.O_WRONLY), 1)
    _move_to(place)
    sys.argv = [PROGRAM, *words]
    try:
        command_line_entry()
    finally:
        os._exit(99)


def _warm(front: str, directory: Path) -> None:
    """Load the modules that rows need, by calls that nacre refuses before any command runs."""
    if front == "mcp":
        import jsonschema  # the MCP client imports jsonschema for its first result

        jsonschema.validate({}, {"type": "object"})
    os.environ["NACRE_HOME"] = str(directory / "warm")
    for contract in case_table.contracts():
        for says in ("odd", "even"):  # the length of `says` chooses the protocol mode of MCP
            root = directory / "warm" / contract / says / "place"
            case: Case = {"says": says, "arguments": {"command": "exit 1 #\0"}}
            root.mkdir(parents=True)
            # `command_line` would replace stdin and stdout of this process.
            call = rpc if front == "command line" else FRONTS[front]
            call(Place(root, directory / "warm", contract, case))


def main(front: str, directory: Path) -> None:
    _warm(front, directory)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # a garbage collection in a forked child would copy every page that it reads
    waiting: set[int] = set()
    for number, (contract, case) in enumerate(rows_of(front)):
        if len(waiting) >= AT_ONCE:
            waiting.discard(os.wait()[0])
        pid = os.fork()
        if not pid:
            root = directory / str(number)
            root.mkdir(parents=True)
            try:
                _row(front, root, contract, case)
            except BaseException:  # noqa: BLE001 - the test prints it
                (root / "trouble").write_text(traceback.format_exc())
            os._exit(0)
        waiting.add(pid)
    while waiting:
        waiting.discard(os.wait()[0])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
