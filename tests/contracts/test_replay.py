"""Replay of calls in which replies of the `nacre` contract once surprised a language model."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nacre
from tests.support.case_table import cases
from tests.support.command_line import run_nacre
from tests.support.helpers import WAIT_FOR_GO, eventually, free_port, wait_for_file

pytestmark = pytest.mark.slow

TOKEN = "ghp_" + "0123456789" * 4


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[nacre.Tool]:
    place = tmp_path / "place"
    place.mkdir()
    with nacre.Tool(cwd=place) as made:
        yield made
        act(made, "signal", runs=[run.id for run in made.runs()], signal="KILL")


def act(tool: nacre.Tool, action: str, **more: Any) -> nacre.Reply:
    return tool.call({"action": action, **more}, tool="job")


def make_file(tool: nacre.Tool, name: str = "go") -> None:
    """Create a file for which a command of the tool waits."""
    Path(tool.cwd.decode(), name).touch()


def suggested_call(text: str) -> dict[str, Any]:
    """Return the arguments of the `job` call that a notice suggests."""
    found = re.search(r"left out: job (\{.*?\})\]", text)
    assert found is not None, text
    arguments: dict[str, Any] = json.loads(found[1])
    return arguments


# Environment of a command.


def test_ci_is_the_callers_own(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    show = {"command": "echo ${CI-unset} $GIT_PAGER"}
    with nacre.Tool(cwd=tmp_path, env=env) as tool:
        assert tool.call(show).text == "unset cat\n"
    with nacre.Tool(cwd=tmp_path, env={**env, "CI": "woodpecker"}) as tool:
        assert tool.call(show).text == "woodpecker cat\n"
    with nacre.Tool("pi", cwd=tmp_path, env=env) as pi:
        assert pi.call({"command": "echo $CI"}).text.startswith("true\n")


def test_python_prints_at_once(tool: nacre.Tool) -> None:
    command = "python3 -c 'import time; print(\"ready\"); time.sleep(60)'"
    reply = tool.call({"command": command, "until": {"output": "ready"}, "wait": 20})
    assert reply.details["until"]["line"] == 1


def test_programs_may_ask_where_they_can_be_answered(tool: nacre.Tool, tmp_path: Path) -> None:
    show = "echo ${PIP_NO_INPUT-none} ${npm_config_yes-none} $SSH_ASKPASS_REQUIRE $GIT_EDITOR"
    assert tool.call({"command": show}).text == "1 true force /bin/false\n"
    reply = tool.call({"command": show, "interactive": True})
    assert reply.text == "none none never /bin/false\n"
    with nacre.Tool("pi", cwd=tmp_path) as pi:
        assert pi.call({"command": show}).text.startswith("1 true force true\n")


def test_a_run_without_output_says_that_programs_may_buffer(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "sleep 62.1", "wait": 0.5})
    assert "no output yet (programs may buffer when writing to a pipe; " in reply.text
    assert (
        "no output yet"
        not in tool.call({"command": "echo a; sleep 62.1", "until": {"output": "a"}}).text
    )


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("echo 'HTTP 401: Bad credentials' >&2; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("gh() { return 4; }; gh pr list", "GH_TOKEN"),
        ("npm() { echo E403 >&2; return 1; }; npm publish", "NPM_TOKEN"),
        ("echo \"KeyError: 'NPM_TOKEN'\"; exit 1", "NPM_TOKEN"),
        ('test -n "$GH_TOKEN"', "GH_TOKEN"),
        ("gh pr list --unknown-flag-of-no-program-x; exit 127", None),
        ("echo 'SyntaxError: Unexpected token }'; exit 1", None),
        ("echo 'AssertionError: assert 401 == 200'; exit 1", None),
        ("grep -rn GH_TOKEN .", None),
        ("ls /nonexistent", None),
        ("git commit -m x", None),
        ("echo 401; true", None),
        # curl exits with 0 although the server refused the empty variable.
        ('echo "Key $NPM_TOKEN: 401 Unauthorized"', "NPM_TOKEN"),
        ("echo ${NPM_TOKEN-none}", None),
        ("set -u; echo ${NPM_TOKEN}", "NPM_TOKEN"),
        ("GH_TOKEN=mine; echo $GH_TOKEN", None),
        ('curl() { return 22; }; curl -H "Key: $GH_TOKEN" | head -n 1', "GH_TOKEN"),
        ("printenv GH_TOKEN", "GH_TOKEN"),
        ("echo [$GH_TOKEN]", "GH_TOKEN"),
        ('if [ -z "$GH_TOKEN" ]; then echo GH_TOKEN is not set; fi', "GH_TOKEN"),
        ("echo ${GH_TOKEN:+set} ${NPM_TOKEN:-missing}", "GH_TOKEN"),
        ("python3 -c 'import os; print(os.environ.get(\"NPM_TOKEN\"))'", "NPM_TOKEN"),
        ("env | grep GH_TOKEN; true", "GH_TOKEN"),
        ("echo '$GH_TOKEN' \\$NPM_TOKEN # $NPM_TOKEN", None),
        ("cat <<'E'\nos.environ['GH_TOKEN'] $GH_TOKEN\nE", None),
        ("cat <<E\n$GH_TOKEN\nE", "GH_TOKEN"),
        ("echo ${GH_TOKEN:=x}", None),
        ("gh-of-nobody() { :; }; qqgh pr list", None),
        ("echo 'Error: 401'; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("echo 'error: invalid token'; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("echo 'SyntaxError: Invalid or unexpected token'; exit 1", None),
        (": $GH_TOKEN; echo 401", "GH_TOKEN"),
        ("[[ -v NPM_TOKEN ]]", "NPM_TOKEN"),
        ("python3 -c 'import os; os.environ[\"NPM_TOKEN\"]' 2>/dev/null", "NPM_TOKEN"),
        ("echo 'fatal: Authentication failed for https://x'; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("echo 'Request failed with status code 401'; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("echo 'password authentication failed'; exit 1", "GH_TOKEN, NPM_TOKEN"),
        ("echo 'a.py:1:1: E401 Multiple imports on one line'; exit 1", None),
        ("echo 'gcc: error: 403.c: No such file'; exit 1", None),
        ("echo 'error on line 403: unknown token'; exit 1", None),
        ("echo 'port 403 in use, token count 5'; exit 1", None),
        ("echo 'Listening on port 401'; echo ${NPM_TOKEN:-default}", None),
        ("echo 'permission forbidden by policy'; echo 'rm: access denied'; exit 1", None),
        ("echo 'no credentials leaked'; echo 'Error: token not found: foo'; exit 1", None),
        ("unset NPM_TOKEN; echo $NPM_TOKEN; false", None),
        ("echo $HOME", None),
    ],
)
def test_a_failure_that_fits_a_withheld_secret_names_it(
    tmp_path: Path, command: str, names: str | None
) -> None:
    env = {**os.environ, "GH_TOKEN": TOKEN, "NPM_TOKEN": "npm_" + "a1" * 18}
    with nacre.Tool(cwd=tmp_path, env=env) as tool:
        reply = tool.call({"command": command})
    hints = [each for each in reply.details["hints"] if "withheld" in each]
    if names is None:
        assert hints == []
    else:
        (hint,) = hints
        assert hint.startswith(f"{names} {'are' if ',' in names else 'is'} withheld")
        assert "allow = [" in hint
        assert TOKEN not in reply.text


def test_a_variable_that_the_call_gives_is_not_withheld(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, env={**os.environ, "GH_TOKEN": TOKEN}) as tool:
        reply = tool.call({"command": "echo $GH_TOKEN; false", "env": {"GH_TOKEN": "mine"}})
    assert reply.text == "mine\n[exit code 1]"
    assert reply.details["hints"] == []


def test_the_notice_of_a_cut_output_works_as_it_is_written(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "seq 100000 | sed 's/^54321$/panic: 54321/'"})
    assert "[line 54321: panic: 54321]" in reply.text
    found = tool.call(suggested_call(reply.text), tool="job")
    assert "54321:panic: 54321" in found.text
    middle = tool.call({"command": "seq 5000", "max_output": 20_000})
    assert "omitted" not in middle.text


def test_output_behind_megabytes_of_one_line_is_shown(tool: nacre.Tool) -> None:
    bar = "python3 -c \"for i in range(150000): print('\\r%7d/150000' % i, end='')\""
    command = f"echo start; {bar}; echo; echo 'FAILED: checksum'; exit 1"
    reply = tool.call({"command": command, "wait": 60})
    assert reply.text == "start\n 149999/150000\nFAILED: checksum\n[exit code 1]"
    reply = tool.call({"command": "python3 -c \"print('é日' * 440000, end='')\""})
    assert reply.text.startswith("é日é日")
    assert reply.text.endswith("é日é日")
    assert 19_900 < len(reply.text.encode()) <= 20_000


def test_a_failure_at_the_edge_of_the_cut_is_listed(tool: nacre.Tool) -> None:
    # The reply shows the first bytes of the failing line, and omits the rest.
    failing = f"FAILED {'x' * 400}"
    command = f"seq 100; echo '{failing}'; seq 5000"
    reply = tool.call({"command": command, "max_output": 1300})
    assert f"[line 101: {failing[:100]}" in reply.text


def test_the_call_of_a_notice_is_not_cut_again(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "for i in {1..20}; do printf '%01990d\\n' $i; done"})
    found = tool.call(suggested_call(reply.text), tool="job")
    assert not found.details["output"]["cut"]


def test_the_failing_line_of_many_megabytes_is_found(tool: nacre.Tool) -> None:
    command = "seq -f 'line %09.0f is fine' 400000; echo 'E   assert 1 == 2'; seq 900000"
    reply = tool.call({"command": command, "wait": 60})
    assert "[line 400001: E   assert 1 == 2]" in reply.text


@pytest.mark.parametrize("limit", [0, 1, 60, 300])
def test_a_small_limit_holds_although_failures_were_found(tool: nacre.Tool, limit: int) -> None:
    command = "seq 100000; echo 'panic: x'; seq 500000"
    reply = tool.call({"command": command, "max_output": limit, "wait": 60})
    lines = [line for line in reply.text.splitlines() if not re.match(r"\[[\d,]+ lines", line)]
    assert sum(len(line) + 1 for line in lines) <= limit + 1


# Waiting.


def test_until_is_watched_while_a_process_of_the_run_lives(tool: nacre.Tool) -> None:
    port = free_port()
    server = f"sleep 0.7; exec python3 -m http.server --bind 127.0.0.1 {port}"
    reply = tool.call({"command": f"({server}) > log 2>&1 &", "until": {"port": port}, "wait": 20})
    assert reply.details["state"] == "exited"
    assert reply.details["until"]["port"] == port
    assert f"[port {port} is open (pid " in reply.text
    assert reply.details["left_running"][0]["ports"] == [port]


def test_job_wait_watches_a_run_whose_shell_has_ended(tool: nacre.Tool) -> None:
    command = f"({WAIT_FOR_GO}; echo late; sleep 62.2) &"
    run = tool.call({"command": command}).details["run"]
    timer = threading.Timer(1, make_file, [tool])  # the wait has usually begun by then
    timer.start()
    reply = act(tool, "wait", run=run, until={"output": "late"}, wait=20)
    timer.join()
    assert reply.details["until"] == {"output": "late", "line": 1, "text": "late"}
    assert reply.text.startswith("late\n")


def test_a_reply_shows_what_was_printed_after_the_end_of_the_shell(tool: nacre.Tool) -> None:
    command = "(sleep 0.7; echo late; sleep 62.2) &"
    reply = tool.call({"command": command, "until": {"output": "late"}, "wait": 20})
    assert reply.text.startswith("late\n[line 1 matches late]\n[left running: ")
    run = reply.details["run"]
    assert act(tool, "wait", run=run, wait=0).text.startswith("[nothing new since line 1]")


def test_until_is_watched_although_the_shell_was_killed(tool: nacre.Tool) -> None:
    command = "(sleep 0.7; echo late; sleep 62.2) & kill -9 $$"
    reply = tool.call({"command": command, "until": {"output": "late"}, "wait": 20})
    assert reply.text.startswith(
        "late\n[line 1 matches late]\n[killed by SIGKILL]\n[left running: "
    )


def test_until_is_not_called_unmet_while_a_process_can_still_meet_it(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "sleep 62.2 &", "until": {"output": "late"}, "wait": 1})
    assert reply.text.startswith("[until is not met yet]\n[left running: ")
    reply = act(tool, "wait", run="r1", until={"output": "late"}, wait=0.5)
    assert "[until is not met yet]" in reply.text


def test_until_finds_what_a_short_run_with_leftovers_has_printed(tool: nacre.Tool) -> None:
    arguments = {"command": "echo ready; sleep 62.3 & exit 3", "request_id": "a"}
    tool.call(arguments)
    began = time.monotonic()
    reply = act(tool, "wait", run="r1", until={"output": "ready"}, wait=20)
    assert reply.details["until"]["line"] == 1
    assert act(tool, "wait", run="r1", until={"idle": 0.5}, wait=20).details["until"] == {
        "idle": 0.5
    }
    reply = tool.call({**arguments, "until": {"output": "ready", "then": "end"}, "wait": 20})
    assert [each["command"] for each in reply.details["ended"]] == ["sleep 62.3"]
    assert reply.details["left_running"] == []
    assert time.monotonic() - began < 15


def test_an_ended_run_does_not_end_the_wait_for_another(tool: nacre.Tool) -> None:
    tool.call({"command": "echo one"})
    tool.call({"command": "sleep 1; echo ready; sleep 62.4", "wait": 0})
    reply = act(tool, "wait", runs=["r1", "r2"], until={"output": "ready"}, wait=20)
    assert reply.details["runs"][1]["until"]["line"] == 1
    began = time.monotonic()
    reply = act(tool, "wait", run="r1", until={"output": "ready"}, wait=20)
    assert "[until not met: the command ended first]" in reply.text
    assert time.monotonic() - began < 10


def test_a_pattern_that_never_ends_hides_no_other_condition(tool: nacre.Tool) -> None:
    until = [{"output": "(a+)+$"}, {"output": "ok"}]
    reply = tool.call({"command": f"echo {'a' * 40}b; echo ok", "until": until, "wait": 20})
    assert reply.details["until"]["output"] == "ok"


def test_a_reply_says_that_until_was_not_met(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "echo a", "until": {"output": "b"}})
    assert reply.text == "a\n[until not met: the command ended first]"
    assert tool.call({"command": "echo ab", "until": {"output": "b"}}).details["until"]["line"] == 1
    began = time.monotonic()
    left = tool.call({"command": "sleep 1 &", "until": {"output": "b"}, "wait": 20})
    assert "[until not met: the command ended first]" in left.text
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("all_first", [True, False])
def test_until_takes_a_list_and_all(tool: nacre.Tool, all_first: bool) -> None:
    more: dict[str, Any] = {"all": True}
    conditions = [{"output": "two"}, {"output": "one"}, {"file": "made"}]
    arguments = {"until": [*conditions, more]} if all_first else {"until": conditions, **more}
    command = "echo one; sleep 0.3; touch made; sleep 0.3; echo two; sleep 62.3"
    reply = tool.call({"command": command, **arguments})
    assert [sorted(each)[0] for each in reply.details["until"]["all"]] == ["line", "line", "file"]
    assert reply.text.startswith("one\ntwo\n[r1 is running: line 2 matches two; line 1 matches one")


def test_then_end_ends_the_run(tool: nacre.Tool) -> None:
    command = "(sleep 0.3; echo found; sleep 62.4) & tail -f /dev/null"
    reply = tool.call({"command": command, "until": {"output": "found", "then": "end"}})
    assert reply.text == (
        'found\n[line 1 matches found; then: "end" has ended the run (killed by SIGTERM)]'
    )
    run = tool.call({"command": "tail -f /dev/null", "wait": 0}).details["run"]
    ended = act(tool, "wait", run=run, until={"idle": 0.3, "then": "end"})
    assert ended.details["state"] == "killed"


def test_job_wait_shows_what_is_new_and_read_shows_all(tool: nacre.Tool) -> None:
    command = "for i in 1 2 3; do echo $i; read -r _; done; echo end"
    reply = tool.call({"command": command, "interactive": True})
    run = reply.details["run"]
    assert reply.text.startswith("1\n")
    assert act(tool, "wait", run=run, wait=1).text == (
        f"[nothing new since line 1]\n[{run} waits for input]"
    )
    assert act(tool, "write", run=run, text="\n").text == f"2\n[{run} waits for input]"
    assert act(tool, "read", run=run).text.startswith("1\n2\n[")
    assert act(tool, "write", run=run, text="\n").text == f"3\n[{run} waits for input]"
    assert act(tool, "write", run=run, text="\n").text == "end\n"
    assert act(tool, "wait", run=run).text == "[nothing new since line 4]\n[exit code 0]"


def test_each_caller_has_its_own_position(tool: nacre.Tool) -> None:
    run = tool.call({"command": "echo a; sleep 62.5", "until": {"output": "a"}}).details["run"]
    with nacre.Tool(cwd=tool.cwd.decode()) as other:
        assert act(other, "wait", run=run, wait=0.1).text.startswith("a\n")
        assert act(other, "wait", run=run, wait=0.1).text.startswith("[nothing new since line 1]")


def test_calls_of_the_command_line_share_their_position(tmp_path: Path) -> None:
    def call(arguments: dict[str, Any], *more: str) -> str:
        said = run_nacre("call", *more, json.dumps(arguments), cwd=tmp_path)
        text: str = json.loads(said.stdout)["content"]
        return text

    call({"command": "echo a; sleep 1.5; echo b", "until": {"output": "a"}})
    wait = {"action": "wait", "run": "r1", "wait": 20}
    assert call(wait, "--tool", "job") == "b\n"
    assert call(wait, "--tool", "job") == "[nothing new since line 2]\n[exit code 0]"
    assert call({"command": "echo short"}) == "short\n"
    again = {"action": "wait", "run": "r2"}
    assert call(again, "--tool", "job") == "[nothing new since line 1]\n[exit code 0]"
    read = {"action": "read", "run": "r2"}
    assert call(read, "--tool", "job") == "short\n"


def test_no_reply_loses_new_output(tool: nacre.Tool) -> None:
    command = f"seq 1 5; {WAIT_FOR_GO}; seq 6 10; sleep 62.5"
    tool.call({"command": command, "until": {"output": "5"}})
    make_file(tool)
    eventually(lambda: act(tool, "read", run="r1", lines=1).text.startswith("10\n"))
    assert act(tool, "read", run="r1", since=16).text.startswith("9\n10\n")
    assert act(tool, "wait", run="r1", wait=0).text.startswith("6\n7\n8\n9\n10\n")
    assert act(tool, "read", run="r1", since=0, max_output=4).text.startswith("1\n2\n[")
    assert act(tool, "wait", run="r1", wait=0).text.startswith("[nothing new since line 10]")
    with nacre.Tool(cwd=tool.cwd.decode()) as other:
        act(other, "signal", run="r1", signal="CONT")
        assert act(other, "wait", run="r1", wait=0).text.startswith("1\n2\n")


def test_a_signal_to_several_runs_shows_what_is_new(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 0.4; echo important", "wait": 0})
    tool.call({"command": "sleep 62.6", "wait": 0})
    eventually(lambda: [run.state for run in tool.runs()].count("exited") == 1)
    reply = act(tool, "signal", runs=["r1", "r2"])
    assert "important\n[r1 had already ended: exit code 0]" in reply.text
    assert act(tool, "wait", run="r1").text.startswith("[nothing new since line 1]")


def test_a_wait_returns_for_a_run_whose_end_was_not_reported(tool: nacre.Tool) -> None:
    for rest in (WAIT_FOR_GO, "sleep 63.1"):
        tool.call({"command": f"echo a; {rest}", "until": {"output": "a"}})
    make_file(tool)
    eventually(lambda: sorted(run.state for run in tool.runs()) == ["exited", "running"])
    runs = ["r1", "r2"]
    began = time.monotonic()
    reply = act(tool, "wait", runs=runs, wait=30)
    assert [each["state"] for each in reply.details["runs"]] == ["exited", "running"]
    assert time.monotonic() - began < 10
    # Now the end of r1 was reported, so the next call waits for r2.
    assert act(tool, "wait", runs=runs, wait=0.7).details["runs"][1]["state"] == "running"
    assert time.monotonic() - began > 0.7


def test_job_wait_takes_runs_with_all(tool: nacre.Tool) -> None:
    for seconds in (0.2, 1.2):
        tool.call({"command": f"sleep {seconds}; echo {seconds}", "wait": 0})
    reply = act(tool, "wait", runs=["r1", "r2"], all=True, wait=20)
    assert [each["state"] for each in reply.details["runs"]] == ["exited", "exited"]


def test_a_wait_for_several_runs_shows_new_output_of_all(tool: nacre.Tool) -> None:
    for number in (1, 2):
        tool.call({"command": f"echo a{number}; sleep 63.{number}", "until": {"output": "a"}})
    command = f"echo b; {WAIT_FOR_GO}; echo c; exit 3"
    tool.call({"command": command, "until": {"output": "b"}})
    make_file(tool)
    reply = act(tool, "wait", runs=["r1", "r3"], wait=20)
    assert re.search(r"r1 .*\n\[nothing new since line 1\]\n\[r1 is running;.*\nr3 .*", reply.text)
    assert reply.text.endswith("c\n[exit code 3]")
    with nacre.Tool(cwd=tool.cwd.decode()) as other:  # for another caller, everything is new
        reply = act(other, "wait", runs=["r1", "r2"], wait=0.2)
        assert re.search(r"^r1 .*\na1\n\[r1 is running;.*\nr2 .*\na2\n\[r2 is", reply.text)


def test_idle_counts_from_now_on(tool: nacre.Tool) -> None:
    tool.call({"command": "echo a; sleep 62.6", "wait": 1.5})
    began = time.monotonic()
    reply = act(tool, "wait", run="r1", until={"idle": 1}, wait=20)
    assert reply.details["until"] == {"idle": 1}
    assert time.monotonic() - began > 0.9


def test_a_call_with_only_a_timeout_waits_for_it(tool: nacre.Tool) -> None:
    with nacre.Tool(cwd=tool.cwd.decode(), options={"wait": 0.2}) as hasty:
        assert hasty.call({"command": "sleep 62.7", "timeout": 1}).text == "[timed out after 1 s]"
    with nacre.Tool(cwd=tool.cwd.decode(), max_wait=0.3) as front:
        assert "is running" in front.call({"command": "sleep 62.7", "timeout": 30}).text
    reply = tool.call({"command": "true", "timeout": 120_000})
    assert reply.is_error
    assert "seconds, not milliseconds" in reply.text
    with nacre.Tool(cwd=tool.cwd.decode(), options={"wait": 0.2}) as hasty:
        assert "is running" in hasty.call({"command": "sleep 62.7", "timeout": 30_000}).text
    reply = tool.call({"command": "true", "timeout": 60_000})
    assert reply.text.endswith("[note: timeout is in seconds: 60000 seconds are 16.7 hours]")


def test_a_list_says_what_ps_would_say(tool: nacre.Tool) -> None:
    busy = "(while :; do :; done) & echo a; wait"
    tool.call({"command": busy, "until": {"output": "a"}, "timeout": 400})

    def uses_a_processor() -> bool:
        (line,) = act(tool, "list").text.splitlines()
        assert re.search(r", its timeout ends it in (400|3\d\d) s", line)
        found = re.search(r", pid \d+, 2 processes, ([\d.]+) s CPU, last output \d+ s ago", line)
        return found is not None and float(found[1]) > 0.2

    eventually(uses_a_processor)
    status = act(tool, "wait", run="r1", wait=0).text
    assert re.search(r"; pid \d+, 2 processes, [\d.]+ s CPU, last output \d+ s ago", status)


def test_a_live_run_shows_its_ports_and_that_it_is_stopped(tool: nacre.Tool) -> None:
    port, other = free_port(), free_port()
    command = f"exec python3 -m http.server --bind 127.0.0.1 {port}"
    tool.call({"command": command, "until": {"port": port}})
    reply = act(tool, "wait", run="r1", until={"port": other}, wait=0.5)
    assert re.search(rf"until is not met yet; pid \d+, port {port}\b", reply.text), reply.text
    assert reply.details["activity"]["ports"] == [port]
    stopped = act(tool, "signal", run="r1", signal="STOP")
    assert "[r1 is stopped (job signal CONT continues it); " in stopped.text
    assert act(tool, "list").text.startswith("r1  stopped  ")
    assert "[r1 is running; " in act(tool, "signal", run="r1", signal="CONT").text


def test_a_url_that_answers_with_an_error_is_asked_less_often(tool: nacre.Tool) -> None:
    port = free_port()
    server = (
        "import http.server\n"
        "class Busy(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_error(503)\n"
        f"http.server.HTTPServer(('127.0.0.1', {port}), Busy).serve_forever()\n"
    )
    command = f"exec python3 - <<'END'\n{server}END"
    tool.call({"command": command, "until": {"http": f"http://127.0.0.1:{port}/"}, "wait": 3})
    requests = act(tool, "read", run="r1", grep="GET / ").text.count("503")
    assert 3 <= requests <= 12, requests


def test_a_call_that_is_cancelled_while_it_ends_its_run_names_the_run(tool: nacre.Tool) -> None:
    token = nacre.CancelToken()
    command = "trap '' TERM; echo ready; while :; do sleep 0.2; done"
    with ThreadPoolExecutor(1) as pool:
        until = {"output": "ready", "then": "end"}
        reply = pool.submit(tool.call, {"command": command, "until": until}, cancel=token)
        eventually(lambda: [run.state for run in tool.runs()] == ["running"])
        time.sleep(1.5)
        token.cancel()
        assert reply.result().details["run"] == "r1"


def test_patterns_that_never_end_do_not_hold_up_the_reply(tool: nacre.Tool) -> None:
    until = [{"output": "(a+)+$"}, {"output": "(a+)+c"}, {"output": "(a|a)+c"}]
    began = time.monotonic()
    reply = tool.call({"command": f"echo {'a' * 40}b", "until": until, "wait": 1})
    assert time.monotonic() - began < 8
    assert reply.text.endswith("[until not met: the command ended first]")


def test_a_url_that_answers_already_is_seen_after_a_short_command(tool: nacre.Tool) -> None:
    port = free_port()
    server = f"python3 -m http.server --bind 127.0.0.1 {port}"
    tool.call({"command": server, "until": {"port": port}})
    for _ in range(3):
        url = f"http://127.0.0.1:{port}/"
        reply = tool.call({"command": "true", "until": {"http": url}})
        assert reply.details["until"]["status"] == 200


def test_reading_the_last_lines_does_not_hide_lines_between(tool: nacre.Tool) -> None:
    command = "echo one; sleep 0.4; printf 'two\\nthree\\nfour\\n'; sleep 62.8"
    tool.call({"command": command, "until": {"output": "four"}})
    with nacre.Tool(cwd=tool.cwd.decode()) as other:
        assert act(other, "read", run="r1", lines=1).text.startswith("four\n")
        assert act(other, "wait", run="r1", wait=0).text.startswith("one\ntwo\nthree\nfour\n")


def test_a_character_that_is_written_in_two_parts_is_shown_whole(tool: nacre.Tool) -> None:
    command = f"printf 'caf\\303'; {WAIT_FOR_GO}; printf '\\251 ok\\n'"
    tool.call({"command": command, "wait": 0})
    with nacre.Tool(cwd=tool.cwd.decode()) as other:
        eventually(lambda: act(other, "read", run="r1").text.startswith("caf"))
    assert act(tool, "wait", run="r1", wait=0).text.startswith("caf")
    make_file(tool)
    assert act(tool, "wait", run="r1").text == "é ok\n"


# What matters is shown.


@pytest.mark.parametrize("most", [0, 100, 1000, 5000, 20_000])
def test_failures_in_an_output_of_megabytes_have_their_line_numbers(
    tool: nacre.Tool, most: int
) -> None:
    """nacre keeps the end of such an output in memory, and reads the rest from the store."""
    command = 'awk \'BEGIN{for(i=1;i<=70000;i++) printf(i%4999?"%040d\\n":"ERROR: %d\\n",i)}\''
    text = tool.call({"command": command, "max_output": most}).text
    listed = re.findall(r"^\[line (\d+): ERROR: (\d+)\]$", text, re.MULTILINE)
    assert [number for number, _ in listed] == [text for _, text in listed]
    assert len({*listed}) == len(listed) <= 10
    if most >= 1000:
        more = re.findall(r"^\[(\d+) more lines look like failures\]$", text, re.MULTILINE)
        shown = re.findall(r"^ERROR: \d+$", text, re.MULTILINE)
        assert len(listed) + int(more[0]) + len(shown) == 14


@pytest.mark.parametrize(
    "line",
    [
        *("a.o: undefined reference to foo", "E   assert 1 == 2", "request timed out", "Killed"),
        *("✗ adds numbers", "make: *** [all] Killed", "E: Unable to locate package foo"),
    ],
)
def test_the_search_in_the_notice_finds_the_listed_lines(tool: nacre.Tool, line: str) -> None:
    steps = "for i in {1..4000}; do echo step $i of the build; done"
    reply = tool.call({"command": f"{steps}; echo '{line}'; {steps}", "max_output": 1000})
    assert f"[line 4001: {line}]" in reply.text
    assert tool.call(suggested_call(reply.text), tool="job").text == f"4001:{line}\n"


@pytest.mark.parametrize(
    "command",
    ["seq 3000", "for i in {1..600}; do printf 'words in a line caf\\xe9 %d\\n' $i; done"],
)
def test_a_page_is_not_cut_again(tool: nacre.Tool, command: str) -> None:
    with nacre.Tool(cwd=tool.cwd.decode(), options={"max_output": 2000}) as small:
        call = suggested_call(small.call({"command": command}).text)
        page = small.call(call, tool="job")
        assert not page.details["output"]["cut"]
        assert len(page.text.encode()) > 1900


def test_the_list_of_failures_hides_no_failure(tool: nacre.Tool) -> None:
    """The listed lines push other lines out of the reply, which may be failures."""
    rows = [f"{'FAILED test' if n in (4, 45, 185) else 'row'} {n} {'x' * 40}" for n in range(200)]
    (Path(tool.cwd.decode()) / "log").write_text("".join(f"{row}\n" for row in rows))
    tool.call({"command": "cat log"})
    for most in range(400, 3000, 13):
        text = act(tool, "read", run="r1", max_output=most).text
        listed = re.findall(r"^\[line \d+: FAILED test (\d+) ", text, re.MULTILINE)
        # A line at the cut is shown in part and listed.
        shown = re.findall(r"^FAILED test (\d+) ", text, re.MULTILINE)
        more = sum(map(int, re.findall(r"^\[(\d+) more lines? looks? like", text, re.MULTILINE)))
        missing = 3 - len({*listed, *shown})
        assert listed
        # A quarter of a smaller limit holds a listed line without the number of the others.
        assert most < 450 or missing <= more <= 3 - len(listed), most
        assert " " * 100 not in text


def test_the_notice_reads_on_where_no_line_looks_like_a_failure(tool: nacre.Tool) -> None:
    text = tool.call({"command": "seq 30000"}).text
    call = suggested_call(text)
    last = call["to"]
    assert '[none of them looks like a failure; "grep" searches lines ' in text
    page = tool.call(call, tool="job")
    assert not page.details["output"]["cut"]
    assert page.text.endswith(f"\n{last}\n")
    assert len(page.text) > 19_000


def test_the_failed_stage_of_a_pipeline_is_named(tool: nacre.Tool) -> None:
    def lines(command: str, **more: Any) -> str:
        return tool.call({"command": command, **more}).text

    failed = "[pipeline: stage 1 (false) exited with 1]"
    assert lines("false | cat") == failed
    assert lines("cd . && false | cat", session="s") == failed
    assert lines("echo a | grep b | cat") == "(no output)"
    assert lines("yes | head -n 1") == "y\n"
    assert lines("set -o pipefail; false | cat") == f"[exit code 1]\n{failed}"
    assert sorted(lines("set -x; true | cat").splitlines()) == ["+ cat", "+ true"]
    assert lines("false | cat; echo $?") == f"0\n{failed}"
    assert lines("false | cat && false | cat || echo never") == f"{failed}\n{failed}"
    assert lines("cat <<X | sort; false | cat\nb\nX") == f"b\n{failed}"
    assert lines("sh -c 'exit 3' | sh -c 'exit 4' | cat").splitlines() == [
        "[pipeline: stage 1 (sh) exited with 3]",
        "[pipeline: stage 2 (sh) exited with 4]",
    ]
    assert lines("trap 'echo DEBUG' DEBUG", session="s") == "(no output)"
    assert "_nacre" not in lines("false | cat; echo ${PIPESTATUS[0]}", session="s")
    assert lines("false | cat", session="s") == "DEBUG\nDEBUG\n"
    reply = tool.call({"command": "false | cat"})
    stage = {"stage": 1, "program": "false", "status": 1}
    assert reply.details["failed_stages"] == [stage]
    reply = tool.call({"command": "sleep 0.3; false | cat", "wait": 0})
    assert act(tool, "wait", run=reply.details["run"]).text == failed


def test_a_prompt_that_bash_does_not_print_is_shown(tool: nacre.Tool) -> None:
    command = "read -rp 'Name? ' n; read -p 'Sure? [y/N] ' s; cat"
    reply = tool.call({"command": command, "interactive": True})
    run = reply.details["run"]
    assert reply.text == f"[{run} waits for input; it asks: Name? ]"
    assert reply.details["prompt"] == "Name? "
    reply = act(tool, "write", run=run, text="Ada\n")
    assert reply.text == f"[{run} waits for input; it asks: Sure? [y/N] ]"
    assert act(tool, "write", run=run, text="y\n").text == f"[{run} waits for input]"
    command = 'ask() { read -rsp "Password of $1: " p; }; ask root'
    reply = tool.call({"command": command, "interactive": True})
    assert reply.details["prompt"] == "Password of root: "


@pytest.mark.parametrize("start", ["bash ask.sh", "sh ask.sh", "chmod +x ask.sh; ./ask.sh"])
def test_a_prompt_of_a_script_file_is_shown(tool: nacre.Tool, start: str) -> None:
    text = "#!/bin/bash\nread -p 'Deploy to? ' place\necho $place\n"
    (Path(tool.cwd.decode()) / "ask.sh").write_text(text)
    # The prompt of a `read` that the command has skipped is not that of the script file.
    command = f'[ -n "$UNSET" ] && read -p "Sure? " y; {start}'
    reply = tool.call({"command": command, "interactive": True})
    assert reply.details["prompt"] == "Deploy to? "
    assert act(tool, "write", run="r1", text="b\n").text == "b\n"


def test_the_prompts_of_a_script_file_are_shown_in_their_order(tool: nacre.Tool) -> None:
    place = Path(tool.cwd.decode())
    (place / "ask.sh").write_text("read -p 'Name? ' n\n(read -p 'Age? ' a)\n. ./rest\nbash inner")
    (place / "rest").write_text("")
    (place / "inner").write_text("read -p 'One? ' a; read -p 'Two? ' b\n")
    reply = tool.call({"command": "bash ask.sh", "interactive": True})
    assert reply.details["prompt"] == "Name? "
    assert act(tool, "write", run="r1", text="Ada\n").details["prompt"] == "Age? "
    # How many lines the script of a script has read is not known.
    reply = act(tool, "write", run="r1", text="36\n")
    assert reply.text == "[r1 waits for input]"


def test_hints_do_not_suggest_what_is_missing(tool: nacre.Tool) -> None:
    reply = tool.call({"command": "ls", "env": {"PATH": "$PATH:/x"}})
    assert "near it" not in reply.text
    assert "env is literal: $PATH in PATH is not expanded" in reply.text


def test_a_question_without_an_answer_is_noticed_although_the_exit_code_is_0(
    tool: nacre.Tool,
) -> None:
    hint = (
        "[hint: the command may have asked for input, but stdin is empty; with interactive: true, "
        "job write can answer]"
    )
    reply = tool.call({"command": "touch a; rm -i a"})
    assert reply.text.endswith(hint)
    assert "hint" not in tool.call({"command": "echo 'Are you sure? '"}).text
    assert "hint" not in tool.call({"command": "printf 'a: '"}).text


def test_the_holder_of_an_awaited_port_is_named(tool: nacre.Tool) -> None:
    port = free_port()
    server = f"exec python3 -m http.server --bind 127.0.0.1 {port}"
    tool.call({"command": server, "until": {"port": port}, "wait": 20})
    hint = rf"\[hint: port {port} is held by process \d+ .* of run r1; job signal r1 ends it\]"
    reply = tool.call({"command": f"({server}) > log 2>&1 &", "until": {"port": port}, "wait": 20})
    assert re.search(hint, reply.text)
    reply = tool.call({"command": "sleep 62.7", "until": {"port": port}, "wait": 0.5})
    assert re.search(hint, reply.text)
    assert re.search(hint, act(tool, "wait", run="r3", until={"port": port}, wait=0.5).text)


def test_an_awaited_port_that_the_run_itself_has_is_no_hint(tool: nacre.Tool) -> None:
    port = free_port()
    server = f"exec python3 -m http.server --bind 127.0.0.1 {port}"
    tool.call({"command": server, "until": {"port": port}, "wait": 20})
    until = {"port": port, "output": "never", "all": True}
    assert "hint" not in act(tool, "wait", run="r1", until=until, wait=0.5).text


def test_a_written_backslash_and_n_is_no_newline(tool: nacre.Tool) -> None:
    tool.call({"command": "read -r x; read -r y", "interactive": True})
    reply = act(tool, "write", run="r1", text="yes\\n")
    assert "[hint: text ends in a backslash and the letter n, not in a newline" in reply.text
    assert "hint" not in act(tool, "write", run="r1", text="\n").text


def test_a_wait_for_several_runs_has_their_hints(tool: nacre.Tool) -> None:
    for command in ("sleep 0.3; gti status", "sleep 0.3; true"):
        tool.call({"command": command, "wait": 0})
    reply = act(tool, "wait", runs=["r1", "r2"], all=True, wait=20)
    assert "[hint: there is no command gti; near it: git" in reply.text


def test_a_key_of_a_terminal_gets_the_right_advice(tool: nacre.Tool) -> None:
    tool.call({"command": "read -r x; read -r y", "interactive": True})
    reply = act(tool, "write", run="r1", text="\u0003")
    assert "job signal INT interrupts the run, eof: true ends its input" in reply.text


def test_hints_about_git(tool: nacre.Tool) -> None:
    script = """git init -q -b main; git config user.email a@b; git config user.name a
    echo 1 > f; git add f; git commit -qm 1; git checkout -qb side; echo 2 > f
    git commit -qam 2; git checkout -q main; echo 3 > f; git commit -qam 3
    git merge side; echo 4 > f; git add f"""
    tool.call({"command": script})
    reply = tool.call({"command": "git commit"})
    assert "[hint: a merge is in progress: git commit --no-edit takes the prepared" in reply.text
    assert len(reply.details["hints"]) == 1
    name = os.path.basename(tool.cwd.decode())
    reply = tool.call({"command": f"cd {name} && git commit", "cwd": ".."})
    assert "git commit --no-edit takes the prepared" in reply.text
    reply = tool.call({"command": f"git -C {name} commit", "cwd": ".."})
    assert "git commit --no-edit takes the prepared" in reply.text
    assert "hint" not in tool.call({"command": "git commit --no-edit"}).text
    (Path(tool.cwd.decode()) / "f").write_text("5\n")
    patch = tool.call({"command": "git add -p", "interactive": True})
    assert patch.details["state"] == "waiting_input"
    assert "hint" not in act(tool, "write", run=patch.details["run"], text="y\n").text
    assert tool.call({"command": "git diff --cached --stat"}).text.startswith(" f | 2 +-")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("python3", "python3 reads a script until end of file; python3 -i answers each line"),
        ("python3 -q -i", None),
        ("python3 -c 'input()'", None),
        ("cat; python3 < /dev/null", None),
    ],
)
def test_an_interpreter_that_waits_for_a_whole_script_is_named(
    tool: nacre.Tool, command: str, hint: str | None
) -> None:
    reply = tool.call({"command": command, "interactive": True})
    assert reply.details["state"] == "waiting_input"
    assert reply.details["hints"] == ([] if hint is None else [hint])
    reply = act(tool, "write", run="r1", text="1 + 1\n")
    assert (hint in reply.details["hints"]) if hint else reply.details["hints"] == []


def test_a_reply_names_the_ports_on_which_the_run_listens_instead(tool: nacre.Tool) -> None:
    port, other = free_port(), free_port()
    command = f"python3 -m http.server --bind 127.0.0.1 {port}"
    tool.call({"command": command, "until": {"port": port}})
    reply = act(tool, "wait", run="r1", until={"port": other}, wait=0.5)
    assert reply.details["hints"] == [f"the run listens on port {port}, not on {other}"]
    command = f"python3 -m http.server --bind 127.0.0.1 {other}"
    tool.call({"command": command, "until": {"port": other}})
    reply = act(tool, "wait", run="r2", until={"port": port}, wait=0.5)
    listens, holds = reply.details["hints"]
    assert listens == f"the run listens on port {other}, not on {port}"
    assert holds.endswith(" of run r1; job signal r1 ends it")
    command = f"python3 -m http.server --bind 127.0.0.1 {free_port()} & sleep 1"
    reply = tool.call({"command": command, "until": {"port": free_port()}, "wait": 3})
    assert "the run listens on port" in reply.text


def test_a_queued_run_is_not_near_its_timeout(tool: nacre.Tool) -> None:
    tool.call({"command": "sleep 1.5; echo a", "session": "s", "wait": 0})
    with ThreadPoolExecutor() as pool:
        call = {"command": "echo b", "session": "s", "timeout": 60, "wait": 0}
        queued = pool.submit(tool.call, call)
        listed = act(tool, "list")
        queued.result()
    runs = {run["run"]: run for run in listed.details["runs"]}
    assert "timeout_in" in runs["r1"]
    for run in runs.values():
        assert "timeout_in" not in run or "queued" not in run


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "x" * 5000])
def test_a_session_name_that_is_not_possible_is_refused(tool: nacre.Tool, name: str) -> None:
    for change in ("reset", "remove"):
        text = act(tool, "sessions", **{change: name}).text
        assert text.startswith(f"[refused: {change}: a session's name has 1 to ")
        assert len(text.encode()) < 1000


def test_an_alias_of_the_same_call_is_named(tool: nacre.Tool) -> None:
    (hint,) = tool.call({"command": "alias ll='ls -l'; ll"}).details["hints"]
    assert hint == "bash expands the alias ll only in later calls of a session; use a function"
    reply = tool.call({"command": "echo 'alias foo=bar'; foo"})
    assert not any("alias" in each for each in reply.details["hints"])


def test_a_signal_that_ends_nothing_is_confirmed(tool: nacre.Tool) -> None:
    tool.call({"command": "trap '' INT; echo ready; sleep 63.1", "until": {"output": "ready"}})
    reply = act(tool, "signal", run="r1", signal="INT")
    assert reply.text.startswith("[sent SIGINT]\n[r1 is running; ")
    tool.call({"command": "sleep 63.2 & echo a"})
    reply = act(tool, "signal", run="r2", signal="INT")
    assert reply.text.startswith("[sent SIGINT]\n[exit code 0]\n[left running: ")


def test_then_end_is_reported_for_a_run_that_handles_the_signal(tool: nacre.Tool) -> None:
    command = "trap 'exit 3' TERM; echo found; sleep 63.3 & wait"
    reply = tool.call({"command": command, "until": {"output": "found", "then": "end"}})
    ending = 'then: "end": the run has ended (exit code 3)'
    assert f"line 1 matches found; {ending}" in reply.text


# Sessions.


def test_what_a_session_says_about_set_e_and_traps(tool: nacre.Tool) -> None:
    def say(command: str) -> str:
        return tool.call({"command": command, "session": "s"}).text

    assert say("set -e") == "(no output)"
    assert "[set -e is on in this session" in say("echo a")
    assert say("echo b") == "b\n"
    assert say("set +e; trap 'echo bye $?' EXIT; x=1; exit 3") == "bye 3\n[exit code 3]"
    assert say("trap -p; echo $x") == "1\n"
    assert "[the session is as it was before this command: it became another" in say("exec true")
    assert "[the session is as it was before this command: it was killed]" in say("kill -9 $$")


def test_line_numbers_of_functions_are_those_of_their_text(tool: nacre.Tool) -> None:
    def say(command: str) -> str:
        return tool.call({"command": command, "session": "s"}).text

    say("\n\nf() {\n    echo in f\n    nosuch1\n}\ng() {\n    nosuch2\n}")
    text = say("\n\nf; g")
    assert "line 3: nosuch1: command not found" in text
    assert "line 2: nosuch2: command not found" in text


def test_sessions_are_listed_reset_and_removed(tool: nacre.Tool) -> None:
    tool.call({"command": "cd /; x=1", "session": "one"})
    tool.call({"command": "y=1", "session": "two"})
    listed = act(tool, "sessions")
    assert sorted(each["name"] for each in listed.details["sessions"]) == ["one", "two"]
    assert re.search(r"^one  /  used \d+ s ago$", listed.text, re.MULTILINE)
    act(tool, "sessions", reset="one")
    assert tool.call({"command": "echo $x", "session": "one"}).text == "\n"
    assert re.fullmatch(r"one  .*\n\[removed two\]", act(tool, "sessions", remove="two").text)
    reply = act(tool, "sessions", remove="three")
    assert reply.is_error
    assert "there is no session three in this workspace; sessions: one" in reply.text


def test_a_queued_call_says_what_it_waits_for(tool: nacre.Tool) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(tool.call, {"command": WAIT_FOR_GO, "session": "s", "wait": 20})
        eventually(lambda: len(tool.runs()) == 1)
        reply = tool.call({"command": "echo a", "session": "s", "wait": 0})
        assert reply.text == "[r2 is queued: r1 has the session]"
        make_file(tool)
        assert first.result().text == "(no output)"
    assert act(tool, "wait", run="r2").text == "a\n"


def test_every_reply_says_which_state_the_session_keeps(tool: nacre.Tool) -> None:
    begun = Path(tool.cwd.decode(), "begun")

    def begin(command: str) -> str:
        begun.unlink(missing_ok=True)
        reply = tool.call({"command": f"touch begun; {command}", "session": "s", "wait": 0.1})
        eventually(begun.exists)
        run: str = reply.details["run"]
        return run

    not_saved = "[the state of this command is not saved: before it ended, the session was used"
    begin(f"{WAIT_FOR_GO}; A=1")
    begin(f"{WAIT_FOR_GO}; B=1")
    make_file(tool)
    several = act(tool, "wait", runs=["r1", "r2"], all=True, wait=20)
    assert not_saved in several.text
    assert "[the session keeps the state of this call; the state of r1 is not saved]" in (
        several.text
    )
    for command, cause in (("exec true", "it became another program"), ("kill -9 $$", "killed")):
        run = begin(f"x=1; sleep 1; {command}")
        assert re.search(
            rf"\[the session is as it was before this command: .*{cause}",
            act(tool, "wait", run=run, wait=20).text,
        )
        assert tool.call({"command": "echo $x$B", "session": "s"}).text == "1\n"
    run = begin(f"{wait_for_file('reset')}; C=1")
    eventually(lambda: not act(tool, "sessions", reset="s").is_error)
    make_file(tool, "reset")
    assert not_saved in act(tool, "wait", run=run, wait=20).text
    run = begin(f"{wait_for_file('removed')}; C=1")
    eventually(lambda: not act(tool, "sessions", remove="s").is_error)
    make_file(tool, "removed")
    eventually(lambda: act(tool, "list").text.startswith(f"{run}  exited"))
    assert not_saved in act(tool, "read", run=run).text
    assert not_saved not in act(tool, "wait", run=run).text


def test_a_queued_run_is_listed_and_meets_no_condition(tool: nacre.Tool) -> None:
    tool.call({"command": "true", "session": "s"})
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tool.call, {"command": "sleep 3", "session": "s", "wait": 20})
        eventually(lambda: [run.state for run in tool.runs()].count("running") == 1)
        arguments = {"command": "read -r x; echo $x", "session": "s", "interactive": True}
        until = {"idle": 0.2, "file": "/"}
        second = pool.submit(tool.call, {**arguments, "until": until, "wait": 20})
        eventually(lambda: "r3  queued  " in act(tool, "list").text)
        refused = act(tool, "write", run="r3", text="hey\n")
        assert "r3 is queued and reads no input yet" in refused.text
        retry = {"command": "echo late", "session": "s", "request_id": "a", "wait": 0}
        assert tool.call(retry).text == "[r4 is queued: r2 has the session]"
        assert tool.call(retry).text.startswith("[r4 is queued: ")
        assert not second.done()
        assert first.result().details["run"] == "r2"
        reply = second.result()
    assert reply.details["state"] in ("running", "waiting_input")
    assert reply.details["until"] == {"file": "/"}


def test_calls_that_wait_for_a_new_warden_keep_their_order(tool: nacre.Tool, home: Path) -> None:
    """Each thread has a connection of its own. The order of the calls is that of their numbers."""
    counter = home / "counter"  # contains one byte for each number

    def append(number: int) -> nacre.Reply:
        return tool.call({"command": f"echo {number} >> order", "session": "s", "wait": 30})

    with ThreadPoolExecutor(5) as pool:
        calls = []
        for number in range(5):
            calls.append(pool.submit(append, number))
            eventually(lambda: counter.exists() and counter.stat().st_size == len(calls))
        for call in calls:
            call.result()
    assert (Path(tool.cwd.decode()) / "order").read_text().split() == [*"01234"]


# Arguments.


@pytest.mark.parametrize(
    ("tool_name", "arguments", "note"),
    [
        ("bash", {"cmd": "true"}, "use command, not cmd"),
        ("bash", {"command": "true", "workdir": "/"}, "use cwd, not workdir"),
        (
            "bash",
            {"command": "true", "timeout_ms": 9000},
            "(seconds), not timeout_ms",
        ),
        (
            "bash",
            {"command": "true", "run_in_background": True},
            "use wait: 0, not run_in_background",
        ),
        ("bash", {"command": "true", "description": "x"}, None),
        ("bash", {"command": "true", "run_in_background": False}, None),
        ("job", {"action": "kill", "run": "r1"}, "use action signal, not action kill"),
        (
            "job",
            {"action": "stop", "id": "r1"},
            "use run, not id; use action signal, not action stop",
        ),
        ("job", {"action": "output", "bash_id": "r1"}, "use action read, not action output"),
        ("job", {"action": "poll", "run": "r1"}, "use action wait with wait: 0, not action poll"),
        (
            "job",
            {"action": "status", "run": "r1"},
            "use action wait with wait: 0, not action status]",
        ),
        (
            "job",
            {"action": "interrupt", "run": "r1"},
            "use action signal with signal: INT, not action interrupt]",
        ),
        (
            "job",
            {"action": "tail", "run": "r1"},
            "use action read with lines: 20, not action tail]",
        ),
        ("job", {"action": "kill", "run": ["r1", "r1"]}, "use runs, not run, for several ids"),
        ("job", {"action": "wait", "runs": "r1, r1"}, "runs is a list of ids"),
        (
            "bash",
            {"command": "true", "background": "True", "wait": None},
            "use wait: 0, not background",
        ),
        ("bash", {"command": "true", "until": [None, {"output": None}]}, None),
        ("job", {"action": "wait", "run": "r1", "timeout": 5}, "[note: use wait, not timeout]"),
        ("job", {"action": "wait", "run": "r1", "timeout_ms": 900}, "use wait: 0.9 (seconds), not"),
        ("job", {"action": "Read", "run": ["r1"]}, None),
        ("job", {"action": "read", "runs": ["r1"]}, None),
        ("job", {"action": "read_output", "session_id": "r1"}, "use run, not session_id; use act"),
        ("bash", {"command": "true", "run_in_background": True, "wait": 0}, None),
        ("bash", {"command": "true", "timeout_ms": 5000, "timeout": "5"}, None),
        (
            "bash",
            {"command": "true", "working_dir": "/", "restart": False},
            "use cwd, not working_dir]",
        ),
        (
            "bash",
            {"command": "true", "max_output_tokens": 10},
            "use max_output: 40 (bytes), not",
        ),
        (
            "bash",
            {"command": "true", "yield_time_ms": 900},
            "use wait: 0.9 (seconds), not yield_time_ms]",
        ),
        ("bash", {"command": "true", "tty": False}, None),
        (
            "bash",
            {"command": "true", "wait": 0, "until": {"port": 80}},
            "until is not watched with",
        ),
        ("bash", {"command": "true", "timeout": "60000"}, "60000 seconds are 16.7 hours]"),
        ("bash", {"command": "true", "all": None, "then": "return"}, None),
        ("bash", {"command": "true", "until": {"output": None, "all": False}}, None),
    ],
)
def test_names_from_other_tools_are_translated(
    tool: nacre.Tool, tool_name: str, arguments: dict[str, Any], note: str | None
) -> None:
    tool.call({"command": "echo a"})
    reply = tool.call(arguments, tool=tool_name)
    assert not reply.is_error, reply.text
    assert (note in reply.text) if note else ("[note" not in reply.text)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"command": "true", "cmd": "false"}, "cmd means command, and the call has both"),
        ({"cmd": "true", "script": "false"}, "script means command, and the call has both"),
        ({"command": "true", "timeout_ms": 5, "timeout": 3}, "timeout_ms means timeout"),
        ({"command": "true", "timeout_ms": "soon"}, "give timeout, a number of seconds"),
        ({"command": "true", "background": 7}, "give wait: 0"),
        ({"command": "true", "timeout_ms": True}, "give timeout, a number of seconds"),
        ({"command": "true", "session": "r7"}, "use the tool job"),
        ({"command": "true", "sandbox": True}, "there is no argument sandbox"),
        ({"command": "true", "restart": True}, "give reset to the action sessions of the tool job"),
        ({"action": "read", "run": "r1"}, "to the tool job, which works with runs"),
        ({"command": "true", "all": True}, "all and then are parts of until"),
        ({"command": "true", "until": {"then": "end"}}, "until must be"),
        ({"command": "true", "tty": True}, "terminals are not available yet"),
        ({"command": ""}, "command is required"),
        ({"command": "true", "interactive": "maybe"}, "interactive must be true or false"),
    ],
)
def test_what_is_ambiguous_is_refused(
    tool: nacre.Tool, arguments: dict[str, Any], why: str
) -> None:
    reply = tool.call(arguments)
    assert reply.is_error
    assert why in reply.text
    assert tool.runs() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": "pwd", "workdir": "/", "cwd": None}, "/\n"),
        ({"cmd": "echo a", "command": None}, "a\n"),
        ({"command": "sleep 62.9", "run_in_background": True, "wait": None}, "[r1 is running"),
        ({"command": "sleep 62.9", "timeout_ms": 500, "timeout": None}, "[timed out after 0.5 s]"),
    ],
)
def test_a_habit_beside_an_explicit_null_is_translated(
    tool: nacre.Tool, arguments: dict[str, Any], text: str
) -> None:
    assert tool.call(arguments).text.startswith(text)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "true", "timeout_ms": 10**400},
        {"command": "true", "env": {"A": 10**5000}},
        {"command": "true", "wait": 10**400},
    ],
)
def test_huge_numbers_are_refused(tool: nacre.Tool, arguments: dict[str, Any]) -> None:
    assert tool.call(arguments).is_error


@pytest.mark.parametrize(
    "script",
    ["-f a " * 20_000, "-" + "a" * 100_000 + "!", "alias " * 17_000, "set " * 25_000 + "| cat"],
    ids=["options", "word", "alias", "set"],
)
def test_a_long_script_is_checked_in_no_time(tool: nacre.Tool, script: str) -> None:
    began = time.process_time()
    tool.call({"command": f": {script}; trap", "session": "s", "wait": 20})
    assert time.process_time() - began < 3


def test_values_of_the_wrong_type_that_can_mean_one_thing_are_accepted(tool: nacre.Tool) -> None:
    env = {"A": 1, "B": 2.5, "C": True, "D": None, "E": ""}
    text = "echo $A $B $C ${D-no} ${E-no}; cat"
    reply = tool.call({"command": text, "env": env, "timeout": "9", "interactive": "false"})
    assert reply.text == "1 2.5 true no\n"
    nothing = {"until": {"output": "", "port": None}, "cwd": None, "stdin": "", "session": ""}
    assert tool.call({"command": "echo a", **nothing, "env": {}, "leave": None}).text == "a\n"
    assert act(tool, "wait", run="", runs=["r1"], until={}, wait="0").details["state"] == "exited"
    assert "state" in act(tool, "wait", runs=["r1", None, ""], all=True).details
    assert "state" in act(tool, "wait", run="r1", runs=[None]).details
    assert "keys" not in act(tool, "write", runs=["r1", "r2"], text="x").text


def test_explicit_exit_codes_cannot_be_imitated(tool: nacre.Tool) -> None:
    texts = [case.get("text", "") for case in cases("nacre")]
    lines = {line.strip() for text in texts for line in text.splitlines() if line.startswith("[")}
    lines -= {line for line in lines if re.match(r"\[(1, 2|previous line|binary data)", line)}
    assert len(lines) > 30
    more = ("[hint: x", "(no output)", "[r1 is stopped; cursor 3]", "[/etc/passwd exists]")
    for line in (*lines, *more):
        reply = tool.call({"command": "printf '%s\\n' \"$LINE\" over", "env": {"LINE": line}})
        assert reply.text == f"{line}\nover\n[exit code 0]"
    assert tool.call({"command": "echo '  [exit code 3]'; echo [a] b"}).text.endswith(
        "[exit code 0]"
    )
    for line in ("a [b]", "[info] ready", "[1, 2]", "[ 12%] Building", "[INFO] [x]"):
        assert tool.call({"command": f"echo '{line}'; echo over"}).text == f"{line}\nover\n"


def test_single_switches_against_prompts_stay(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path) as tool:
        reply = tool.call({"command": "echo $GIT_TERMINAL_PROMPT $PIP_NO_INPUT $PYTHONUNBUFFERED"})
    assert reply.text == "0 1 1\n"
