"""An agent that never sleeps: a dev server, a failing test, a question, a clean end; five calls.

    .venv/bin/python examples/agent.py

The model is a script, so that this runs without a key: each step sees the last reply, as a model
would, and says which tool to call next. Everything else is what a real agent does.
"""

import re
import tempfile
from collections.abc import Generator
from pathlib import Path

import nacre

Call = tuple[str, dict[str, object]]  # the tool and its arguments

SUITE = """\
import unittest, urllib.request

class Test(unittest.TestCase):
    def test_answer(self):
        body = urllib.request.urlopen("http://127.0.0.1:PORT/answer.txt").read()
        self.assertEqual(body, b"42\\n")
"""
DEPLOY = """\
printf 'Deploy although 1 test fails? [y/N] '
read -r answer
[ "$answer" = n ] && echo 'stopped: nothing was deployed'
"""


def model(port: int) -> Generator[Call, nacre.Reply, None]:
    # 1. Start a server, and come back when it listens: no polling, no sleep.
    serve = f"python3 -m http.server --bind 127.0.0.1 {port}"
    reply = yield "bash", {"command": serve, "until": {"port": port}}
    assert reply.details["until"]["port"] == port, reply.text
    server = reply.details["run"]

    # 2. Run the tests. A failure is a result, and the line that matters is in it.
    reply = yield "bash", {"command": "python3 -m unittest 2>&1"}
    assert reply.details["exit_code"] == 1
    assert re.search(r"AssertionError: b'41\\n' != b'42\\n'", reply.text), reply.text

    # 3. Run something that asks: the question comes back as a question.
    reply = yield "bash", {"command": "bash deploy.sh", "interactive": True}
    assert reply.details["state"] == "waiting_input", reply.text
    assert reply.details["prompt"] == "Deploy although 1 test fails? [y/N] "

    # 4. Answer it, and see what comes of that.
    reply = yield "job", {"action": "write", "run": reply.details["run"], "text": "n\n"}
    assert reply.text == "stopped: nothing was deployed\n", reply.text

    # 5. Stop what is left.
    reply = yield "job", {"action": "signal", "run": server}
    assert reply.details["state"] == "killed", reply.text


def converse(tool: nacre.Tool, steps: Generator[Call, nacre.Reply, None]) -> int:
    """The loop of an agent: ask the model, call the tool, tell the model. Returns the calls."""
    calls = 0
    try:
        name, arguments = next(steps)
        while True:
            calls += 1
            print(f"→ {name} {arguments}")
            reply = tool.call(arguments, tool=name)
            print(f"{reply.text.rstrip()}\n")
            name, arguments = steps.send(reply)
    except StopIteration:
        return calls


def main() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "answer.txt").write_text("41\n")
        (Path(place) / "test_answer.py").write_text(SUITE.replace("PORT", str(port)))
        (Path(place) / "deploy.sh").write_text(DEPLOY)
        with nacre.Tool(cwd=place) as tool:
            calls = converse(tool, model(port))
            listed = tool.call({"action": "list"}, tool="job").details["runs"]
        assert not [run for run in listed if run["state"] == "running" or run["left_running"]]
    print(f"{calls} calls, nothing is left running")
    return calls


if __name__ == "__main__":
    main()
