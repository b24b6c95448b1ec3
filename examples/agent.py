"""An agent that completes its task in five calls, without a single `sleep`.

    .venv/bin/python examples/agent.py

The agent starts a dev server, sees a test fail, answers a prompt and stops the server. The model is
a script, so that the example needs no API key. Each step of the script gets the last reply, as a
model would, and yields the next tool call. Everything else is the same as in a real agent.
"""

import re
import tempfile
from collections.abc import Generator
from pathlib import Path

import nacre

Call = tuple[str, dict[str, object]]  # name of the tool, and its arguments

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
    # 1. Start a server. The call returns when the server listens, without polling or sleeping.
    serve = f"python3 -m http.server --bind 127.0.0.1 {port}"
    reply = yield "bash", {"command": serve, "until": {"port": port}}
    assert reply.details["until"]["port"] == port, reply.text
    server = reply.details["run"]

    # 2. Run the tests. The reply to the failed test run contains the assertion error.
    reply = yield "bash", {"command": "python3 -m unittest 2>&1"}
    assert reply.details["exit_code"] == 1
    assert re.search(r"AssertionError: b'41\\n' != b'42\\n'", reply.text), reply.text

    # 3. Run a script that prompts for input. The reply contains the prompt.
    reply = yield "bash", {"command": "bash deploy.sh", "interactive": True}
    assert reply.details["state"] == "waiting_input", reply.text
    assert reply.details["prompt"] == "Deploy although 1 test fails? [y/N] "

    # 4. Answer the prompt, and read what the script prints next.
    reply = yield "job", {"action": "write", "run": reply.details["run"], "text": "n\n"}
    assert reply.text == "stopped: nothing was deployed\n", reply.text

    # 5. Stop the server.
    reply = yield "job", {"action": "signal", "run": server}
    assert reply.details["state"] == "killed", reply.text


def converse(tool: nacre.Tool, steps: Generator[Call, nacre.Reply, None]) -> int:
    """Run the agent loop: ask the model, call the tool, pass the reply to the model. Return the
    number of calls."""
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
