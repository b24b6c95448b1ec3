"""Generator of a state directory such as `tests/data/state-5795d5d`.

    python -m tests.support.written_state DIRECTORY

`test_written_state` proves that later versions of nacre can read `tests/data/state-5795d5d`. That
directory never changes. Files of a newer version belong in another directory. The workspace is
/usr, which exists on every machine and which no test writes to. Process ids, the boot id and the
environment are replaced by neutral values.
"""

import contextlib
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import nacre
from nacre.contracts import phoenix
from nacre.model.plan import Keep
from nacre.store import journal, run_owner, session_files, setup_snapshots
from nacre.text import line_index
from tests.support import wardens
from tests.support.helpers import end, eventually

WORKSPACE = "/usr"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "HOSTNAME": "host", "LANG": "C.UTF-8"}
SNAPSHOT = "0123456789abcdef01234567"
_NO_PID = b"4194304"  # larger than any pid that the kernel assigns


def tool(name: str = "nacre", **more: object) -> nacre.Tool:
    return nacre.Tool(name, cwd=WORKSPACE, env=ENV, **more)  # type: ignore[arg-type]


def write(home: Path) -> None:
    with tool() as one:
        one.call({"command": "echo small"})
        one.call({"command": "echo out; exit 3"})
        one.call({"command": "echo before; kill -9 $$"})
        one.call({"command": "echo slow; sleep 5", "timeout": 0.3})
        _cancel(one)
        one.call({"command": "true", "env": {"BIG": "x" * 200_000}})  # too large for execve(2)
        one.call({"command": "echo lost"})
        _detach(one)
        _leave(one)
        one.call({"command": "sleep 300 & echo ended", "leave": "end"})
        _big()
        with tool("harness") as other:
            other.call({"command": "echo out; echo err >&2; exit 2"})
            other.call({"command": 5})
        _late(one, home)
        _phoenix()
        one.call(
            {
                "command": 'cd /usr/bin; x=kept; export Y=given; f() { echo "f $1"; }; alias ll=ls',
                "session": "work",
            }
        )
        one.call({"command": "echo once; exit 5", "request_id": "once"})
        asked = {"command": "read a; echo got $a", "interactive": True, "stdin": "in\n"}
        one.call({**asked, "request_id": "asked"})
        _refusals(one)
        one.call({"action": "list"}, tool="job")
        _pi()
        (session,) = one.sessions()
        assert session.cwd == "/usr/bin"
    _snapshot()


def _cancel(one: nacre.Tool) -> None:
    token = nacre.CancelToken()
    threading.Timer(0.3, token.cancel).start()
    one.call({"command": "echo waits; sleep 5"}, cancel=token)


def _detach(one: nacre.Tool) -> None:
    reply = one.call({"command": "echo behind; sleep 0.2; exit 4", "wait": 0})
    assert reply.run is not None
    one.run(reply.run).wait(10)


def _leave(one: nacre.Tool) -> None:
    reply = one.call({"command": "sleep 300 >/dev/null 2>&1 & echo left"})
    assert reply.run is not None
    outcome = one.run(reply.run).wait(0)
    assert outcome is not None
    assert len(outcome.left_running) == 1
    end(outcome.left_running)


def _big() -> None:
    """Write a long output with a line index, with lower limits so that both files stay small."""
    keep, every = phoenix._KEEP, line_index.INTERVAL
    phoenix._KEEP = Keep(whole=8192, head=2048, tail=2048)  # type: ignore[misc]
    line_index.INTERVAL = 8192  # type: ignore[misc]
    with tool("phoenix") as other:
        other.call({"command": "for i in {1..6000}; do echo line $i; done"})
    phoenix._KEEP, line_index.INTERVAL = keep, every  # type: ignore[misc]


def _late(one: nacre.Tool, home: Path) -> None:
    reply = one.call({"command": "(sleep 0.5; echo late) & echo now"})
    output = home / "runs" / str(reply.run) / "output"
    eventually(lambda: output.exists() and b"late" in output.read_bytes())


def _phoenix() -> None:
    with tool("phoenix") as other:
        other.call({"command": "echo foreground"})
        reply = other.call({"command": "echo served; exit 7", "mode": "background"})
        assert reply.run is not None
        other.run(reply.run).wait(10)


def _refusals(one: nacre.Tool) -> None:
    one.call({"command": 5})
    one.call({"command": "true", "cwd": "/nonexistent"})
    one.call({"command": "true"}, tool="other")
    one.call({"command": "echo other", "request_id": "once"})
    with tool(options={"safety": ["git"]}) as careful:
        careful.call({"command": "git push --force"})


def _pi() -> None:
    with tool("pi", tools=["read"], options={"intercept": "block", "snapshot": False}) as other:
        other.call({"command": "echo pi"})
        other.call({"command": "cat file"})


def _snapshot() -> None:
    (known,) = session_files.list_sessions(journal.workspace_key(os.fsencode(WORKSPACE)))
    setup_snapshots.save_snapshot(
        SNAPSHOT, setup_snapshots.SetupSnapshot(created=1.5, state=known.state)
    )


def neutral(home: Path) -> None:
    """Remove facts about this machine, and the journal entry for the end of the run `echo lost`."""
    for path in sorted(home.rglob("*"), reverse=True):
        temporary = path.name.startswith((".lock", "warden.")) or path.name.endswith(".draft")
        if temporary:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file():
            text = path.read_bytes().replace(run_owner.boot_id().encode(), b"0" * 32)
            text = re.sub(rb'"pid":\d+', b'"pid":' + _NO_PID, text)
            text = re.sub(rb"(0{32}:)\d+", rb"\g<1>" + _NO_PID, text)
            text = re.sub(rb'\{"type":"ended","run":7,.*\n', b"", text)
            path.write_bytes(text)


def main() -> None:
    final = Path(sys.argv[1]).absolute()
    home = final.with_name(f"{final.name}.made")
    os.environ["NACRE_HOME"] = str(home)
    try:
        write(home)
    finally:
        wardens.end(home)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(final)
    neutral(home)
    home.rename(final)


if __name__ == "__main__":
    main()
