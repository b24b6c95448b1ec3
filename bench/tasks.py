"""Everyday tasks of an agent, each as the calls that the task takes under each contract.

A task is done when the reply to one of its calls contains the line that matters. The calls of a
contract are those that a model needs which knows only the contract's schema. `python -m bench.cost`
counts the calls and the characters of all replies.
"""

import shlex
import sys
from typing import Any, NamedTuple

import nacre

PYTHON = shlex.quote(sys.executable)


class Step(NamedTuple):
    """One call. `{run0}` and `{pid0}` in an argument stand for the run and the pid of call 0."""

    arguments: dict[str, Any]
    tool: str = "bash"


class Task(NamedTuple):
    name: str
    matters: str  # regular expression that must match in one of the replies
    calls: dict[str, list[Step]]
    # Commands that prepare the directory; they are not counted.
    setup: str = "true"


def _bash(command: str, **more: Any) -> Step:
    return Step({"command": command, **more})


def _job(**arguments: Any) -> Step:
    return Step(arguments, tool="job")


def _same(*steps: Step) -> dict[str, list[Step]]:
    """Return the same calls for the contracts `phoenix`, `harness` and `pi`."""
    return {name: list(steps) for name in ("phoenix", "harness", "pi")}


_TESTS = """for i in $(seq 2000); do
  if [ $i = 1234 ]; then echo "not ok $i - parses an empty list"; else echo "ok $i - case $i"; fi
done; exit 1"""
_ASK = """printf 'Name: '; read -r name; printf 'Version [1.0]: '; read -r version
printf 'Publish? [y/N] '; read -r yes; echo "published $name $version $yes\""""
_LOG = """PYTHON -c '
for n in range(100_000):
    bad = n == 61_803
    print(f"10:00:00 ERROR disk full on node 7" if bad else f"10:00:00 INFO request {n} served")'"""
_BUILD = "sleep 0.5; echo built {0}"
_SUITE = """printf 'import unittest
class T(unittest.TestCase):
    def test_sum(self): self.assertEqual(1 + 1, 3)
' > test_sum.py; PYTHON -m unittest test_sum 2>&1 | tail -n 3"""
_GROWS = "(sleep 0.3; echo ready >> app.log; sleep 30) & tail -f app.log"


def tasks(port: int) -> list[Task]:
    serve = f"PYTHON -m http.server --bind 127.0.0.1 {port}"
    ready = f"until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done"
    fetch = f"curl -s http://127.0.0.1:{port}/hello.txt"
    venv = "PYTHON -m venv --without-pip v"
    prefix = "python -c 'import sys; print(sys.prefix)'"
    return [
        Task(
            "start a server and use it",
            "hello from the server",
            {
                "nacre": [_bash(serve, until={"port": port}), _bash(fetch)],
                "phoenix": [_bash(serve, mode="background"), _bash(f"{ready}; {fetch}")],
                "harness": [_bash(f"{serve} >server.log 2>&1 & {ready}; {fetch}")],
                "pi": [_bash(serve, **{"async": True}), _bash(f"{ready}; {fetch}")],
            },
            setup="echo hello from the server > hello.txt",
        ),
        Task(
            "find the failing test of 2,000",
            "not ok 1234",
            {"nacre": [_bash(_TESTS)], **_same(_bash(_TESTS))},
        ),
        Task(
            "answer three prompts",
            "published demo 2.0 y",
            {
                "nacre": [
                    _bash(_ASK, interactive=True),
                    _job(action="write", run="{run0}", text="demo\n"),
                    _job(action="write", run="{run0}", text="2.0\n"),
                    _job(action="write", run="{run0}", text="y\n"),
                ],
                **_same(_bash(_ASK), _bash(f"printf 'demo\\n2.0\\ny\\n' | ({_ASK})")),
            },
        ),
        Task(
            "wait for two builds",
            r"built app[\s\S]*built docs|built docs[\s\S]*built app",
            {
                "nacre": [
                    _bash(_BUILD.format("app"), wait=0),
                    _bash(_BUILD.format("docs"), wait=0),
                    _job(action="wait", runs=["{run0}", "{run1}"], all=True),
                ],
                "phoenix": [
                    _bash(f"({_BUILD.format('app')}) > app.log", mode="background"),
                    _bash(f"({_BUILD.format('docs')}) > docs.log", mode="background"),
                    _bash(
                        "until grep -q built app.log && grep -q built docs.log; do sleep 0.1; "
                        "done; cat app.log docs.log"
                    ),
                ],
                "harness": [_bash(f"({_BUILD.format('app')}) & ({_BUILD.format('docs')}) & wait")],
                "pi": [
                    _bash(_BUILD.format("app"), **{"async": True}),
                    _bash(_BUILD.format("docs"), **{"async": True}),
                    _job(poll=["{run0}", "{run1}"]),
                    _job(poll=["{run0}", "{run1}"]),
                ],
            },
        ),
        Task(
            "a session with a virtualenv",
            r"/v(?:\n|\\n)",
            {
                "nacre": [
                    _bash(venv, session="s"),
                    _bash(". v/bin/activate", session="s"),
                    _bash(prefix, session="s"),
                ],
                "phoenix": [_bash(venv), _bash(f". v/bin/activate && {prefix}")],
                "harness": [_bash(venv), _bash(f". v/bin/activate && {prefix}")],
                "pi": [_bash(venv), _bash(". v/bin/activate"), _bash(prefix)],
            },
        ),
        Task(
            "find the error in a log of 100,000 lines",
            "ERROR disk full on node 7",
            {"nacre": [_bash(_LOG)], **_same(_bash(_LOG), _bash(f"{_LOG} | grep ERROR"))},
        ),
        Task(
            "see that a test behind a pipe failed",
            r"stage 1|[Ee]xit ?[Cc]ode\"?:? ?1|exited with code 1|exit code 1",
            {
                "nacre": [_bash(_SUITE)],
                **_same(_bash(_SUITE), _bash(f"set -o pipefail; {_SUITE}")),
            },
        ),
        Task(
            "wait for a line of a log",
            "ready",
            {
                "nacre": [_bash(_GROWS, until={"output": "ready", "then": "end"})],
                **_same(
                    _bash(
                        "(sleep 0.3; echo ready >> app.log) & timeout 10 tail -f app.log "
                        "| grep -m 1 ready"
                    )
                ),
            },
            setup="echo starting > app.log",
        ),
        Task(
            "stop a hung command",
            r"killed by SIGTERM|stopped|[Cc]ancelled|gone",
            {
                "nacre": [_bash("sleep 61.9", wait=0.5), _job(action="signal", run="{run0}")],
                "phoenix": [
                    _bash("sleep 61.9", mode="background"),
                    _bash(
                        "kill {pid0}; while kill -0 {pid0} 2>/dev/null; do sleep 0.05; done; "
                        "echo gone"
                    ),
                ],
                "harness": [_bash("timeout 0.5 sleep 61.9; echo gone")],
                "pi": [_bash("sleep 61.9", **{"async": True}), _job(cancel=["{run0}"])],
            },
        ),
        Task(
            "correct a mistyped command",
            "No commits yet",
            {
                "nacre": [_bash("gti status"), _bash("git status")],
                **_same(_bash("gti status"), _bash("git status")),
            },
            setup="git init -q",
        ),
        Task(
            "fix a syntax error",
            "SyntaxError",
            {"nacre": [_bash("PYTHON app.py")], **_same(_bash("PYTHON app.py"))},
            setup="echo 'def f(:' > app.py",
        ),
        Task(
            "read the middle of a long output",
            r"4999(?:\n|\\n)5000",
            {
                "nacre": [
                    _bash("seq 10000", max_output=2000),
                    _job(action="read", run="{run0}", **{"from": 4999, "to": 5001}),
                ],
                **_same(_bash("seq 10000 | head -n 500"), _bash("seq 10000 | sed -n 4999,5001p")),
            },
        ),
    ]


def fill(value: Any, replies: list[nacre.Reply]) -> Any:
    """Replace `PYTHON`, `{run0}` and `{pid0}` in the arguments of a call."""
    if isinstance(value, dict):
        return {name: fill(each, replies) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each, replies) for each in value]
    if not isinstance(value, str):
        return value
    value = value.replace("PYTHON", PYTHON)
    for number, reply in enumerate(replies):
        value = value.replace(f"{{run{number}}}", reply.run or "")
        value = value.replace(f"{{pid{number}}}", str(reply.details.get("pid", "")))
    return value


def perform(tool: nacre.Tool, steps: list[Step]) -> str:
    """Make the calls of a task, and return the text of all replies."""
    replies: list[nacre.Reply] = []
    for step in steps:
        replies.append(tool.call(fill(step.arguments, replies), tool=step.tool))
    return "\n".join(each.text for each in replies)
