"""Tests of the adapters with each agent SDK and a fake model; `make test-adapters` runs them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.adapters import anthropic, openai, openai_agents
from nacre.process import run_tag
from scripted import CHECK, Call, agents_model, anthropic_api, model, openai_client, recover
from tests.contracts.test_cases import Ended
from tests.support import case_table, wardens
from tests.support.agent_loops import LOOPS, Loop, Told, with_builtin_bash
from tests.support.contract_rows import ROWS, Place
from tests.support.helpers import eventually, named
from tests.test_docs import blocks

pytestmark = pytest.mark.slow

EACH = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
SHOWN = [
    pytest.param(contract, case, id=f"{contract}: {case['shows']}")
    for contract, case in ROWS
    if "shows" in case
]


@pytest.mark.parametrize("loop", [*LOOPS.values(), with_builtin_bash], ids=[*LOOPS, "built-in"])
def test_the_model_calls_sees_a_failure_and_recovers(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "check.sh").write_text(CHECK)
    with nacre.Tool(cwd=tmp_path) as tool:
        first, second = asyncio.run(loop(tool, recover))
    assert first.text.endswith("greeting.txt must say hello\n[exit code 1]")
    assert not first.error  # a failed command is a result, not an error of the tool
    assert second == Told("ok\n", first.error)


@EACH
@pytest.mark.parametrize(("contract", "case"), SHOWN)
def test_what_the_contract_pages_promise(
    loop: Loop,
    contract: str,
    case: case_table.Case,
    tmp_path: Path,
    home: Path,
    ours: run_tag.Tag,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(tmp_path / "place", home, contract, case)
    place.prepare()
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)

    def script(replies: list[str]) -> Call | str:
        return "done" if replies else (case.get("tool", "bash"), place.arguments)

    async def converse(tool: nacre.Tool) -> list[Told]:
        task = asyncio.ensure_future(loop(tool, script))
        if place.cancel_file is None:
            return await task
        while not place.cancel_file.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return []

    with (
        Ended(case, ours),
        nacre.Tool(contract, cwd=place.cwd, options=case.get("options", {})) as tool,
    ):
        told = asyncio.run(converse(tool))
        if place.cancel_file is not None:
            eventually(lambda: not any(named(each) for each in case.get("gone", [])))
        elif contract == "harness":
            assert json.loads(told[0].text) == case["reply"]
            assert told[0].error in (None, "error" in case["reply"])
        else:
            place.compare_text(told[0].text)
            place.look_around()
            assert told[0].error in (None, case.get("is_error", False))
    if case.get("leaves"):
        wardens.end(home, runs=True)


@EACH
def test_the_model_gets_the_refusal_of_invalid_arguments(loop: Loop, tmp_path: Path) -> None:
    def script(replies: list[str]) -> Call | str:
        return "done" if replies else ("bash", {"command": 5, "wait": "long"})

    with nacre.Tool(cwd=tmp_path) as tool:
        (told,) = asyncio.run(loop(tool, script))
    assert told.text == "[refused: command must be a string, not 5]"
    assert told.error in (None, True)


@EACH
def test_the_tool_job_is_there_too(loop: Loop, tmp_path: Path) -> None:
    def script(replies: list[str]) -> Call | str:
        if not replies:
            return "bash", {"command": "echo up; sleep 75.1", "until": {"output": "up"}}
        if len(replies) == 1:
            return "job", {"action": "signal", "run": "r1"}
        return "done"

    with nacre.Tool(cwd=tmp_path) as tool:
        started, ended = asyncio.run(loop(tool, script))
    assert started.text.startswith("up\n[r1 is running: line 1 matches up; cursor 3; pid ")
    assert ended.text == "[killed by SIGTERM]"


# Tests of the providers' built-in tools.


def block(**given: Any) -> Any:
    from anthropic.types import ToolUseBlock

    return ToolUseBlock(id="toolu_1", name="bash", input=given, type="tool_use")


def test_the_built_in_bash_tool_restarts(tmp_path: Path) -> None:
    with nacre.Tool(cwd=tmp_path, options={"wait": 1.5}) as tool:
        bash = anthropic.Bash(tool)
        builtin, job = bash.tools
        assert builtin == {"type": "bash_20250124", "name": "bash"}
        assert job.get("name") == "job"
        assert bash.answer(block(command="echo hi", restart=False)) == {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": "hi\n",
            "is_error": False,
        }
        other = tool.call({"command": "sleep 75.2", "wait": 0})  # a run that the test starts itself
        said = bash.answer(block(command="(setsid sleep 75.3 &); sleep 75.3"))
        assert "is running; pid" in str(said["content"])
        assert "restarted" in str(bash.answer(block(restart=True))["content"])
        assert named("sleep 75.3") == []
        assert named("sleep 75.2")
        tool.run(str(other.run)).end()
        assert bash.answer(block())["is_error"]


def test_the_built_in_bash_tool_restarts_in_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        with nacre.Tool(cwd=tmp_path, options={"wait": 1.5}) as tool:
            bash = anthropic.Bash(tool)
            await bash.aanswer(block(command="sleep 75.4"))
            assert named("sleep 75.4")
            assert "restarted" in str((await bash.aanswer(block(restart=True)))["content"])
            assert named("sleep 75.4") == []

    asyncio.run(main())


def test_anthropic_without_asyncio(tmp_path: Path) -> None:
    with nacre.Tool("phoenix", cwd=tmp_path) as tool:
        result = anthropic.answer(tool, block(command="exit 3"))
        assert (result["content"], result["is_error"]) == ("[command failed: exit code 3]\n", True)
        (bash,) = anthropic.runnable(tool)
        assert bash.call({"command": "echo hi"}) == "hi\n"
        with pytest.raises(Exception, match=r"exit code 3"):
            bash.call({"command": "exit 3"})


def shell_call(*commands: str, **more: int) -> Any:
    from openai.types.responses import ResponseFunctionShellToolCall

    return ResponseFunctionShellToolCall.model_validate(
        {
            "type": "shell_call",
            "id": "sh_1",
            "call_id": "call_1",
            "status": "completed",
            "action": {"commands": commands, **more},
        }
    )


EXPECTED = {
    "type": "shell_call_output",
    "call_id": "call_1",
    "max_output_length": 1000,
    "output": [
        {"stdout": "out\n", "stderr": "err\n", "outcome": {"type": "exit", "exit_code": 3}},
        {"stdout": "early\n", "stderr": "", "outcome": {"type": "timeout"}},
        {
            "stdout": "",
            "stderr": "command is required",
            "outcome": {"type": "exit", "exit_code": 125},
        },
        {"stdout": "last\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    ],
}
COMMANDS = ("echo out; echo err >&2; exit 3", "echo early; sleep 75.5", " ", "echo last")


def test_the_shell_tool_of_openai(tmp_path: Path) -> None:
    call = shell_call(*COMMANDS, timeout_ms=1000, max_output_length=1000)
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        assert openai.shell_answer(tool, call) == EXPECTED
        assert asyncio.run(openai.ashell_answer(tool, call)) == EXPECTED
    assert named("sleep 75.5") == []
    with (
        nacre.Tool(cwd=tmp_path) as tool,
        pytest.raises(ValueError, match=r"nacre.Tool\('harness'"),
    ):
        openai.shell_answer(tool, call)


def test_the_shell_tool_of_openai_keeps_within_limits_and_minds_no_nonsense(tmp_path: Path) -> None:
    with nacre.Tool("harness", cwd=tmp_path) as tool:
        call = shell_call("seq 1000000", "seq 30", timeout_ms=-5, max_output_length=21)
        first, second = openai.shell_answer(tool, call)["output"]
        assert first["stdout"].startswith("1\n2\n3\n4\n5\n6")
        assert len(first["stdout"]) < 60
        assert first["stdout"].endswith("1000000\n")
        assert "bytes left out" in second["stdout"]
        (quiet,) = openai.shell_answer(tool, shell_call("seq 20000"))["output"]
        assert len(quiet["stdout"]) < 21_000
        (small,) = openai.shell_answer(tool, shell_call("seq 3", max_output_length=6))["output"]
        assert small["stdout"] == "1\n2\n3\n"


def test_the_shell_tool_of_openai_in_a_conversation(tmp_path: Path) -> None:
    def script(replies: list[str]) -> Call | str:
        return "done" if replies else ("shell", {"commands": ["echo a", "exit 4"]})

    async def main() -> list[Any]:
        items: list[Any] = [{"role": "user", "content": "go"}]
        with nacre.Tool("harness", cwd=tmp_path) as tool:
            async with openai_client(script) as client:
                response = await client.responses.create(
                    model="script", input=items, tools=[{"type": "shell"}]
                )
                (item,) = response.output
                items += [item.model_dump(exclude_none=True)]
                items += [await openai.ashell_answer(tool, item)]
                response = await client.responses.create(model="script", input=items)
                assert response.output_text == "done"
        return items

    output = asyncio.run(main())[-1]["output"]
    assert [each["outcome"] for each in output] == [
        {"type": "exit", "exit_code": 0},
        {"type": "exit", "exit_code": 4},
    ]


def test_the_shell_tool_of_the_agents_sdk(tmp_path: Path) -> None:
    import agents

    def script(replies: list[str]) -> Call | str:
        if replies:
            return replies[-1]
        return "shell", {"commands": ["echo out", "sleep 75.6"], "timeout_ms": 1000}

    async def main() -> str:
        with nacre.Tool("harness", cwd=tmp_path) as tool:
            agents.set_tracing_disabled(True)
            made: Any = [openai_agents.shell(tool)]
            agent = agents.Agent(name="dev", model=agents_model(script), tools=made)
            return str((await agents.Runner.run(agent, "go")).final_output)

    said = asyncio.run(main())
    assert "out" in said
    assert "timeout" in said
    assert named("sleep 75.6") == []
    with nacre.Tool(cwd=tmp_path) as tool, pytest.raises(ValueError, match="harness"):
        openai_agents.shell(tool)


def test_chat_completions(tmp_path: Path) -> None:
    from openai.types.chat import ChatCompletionMessageFunctionToolCall as ToolCall

    def call(arguments: str) -> ToolCall:
        function = {"name": "bash", "arguments": arguments}
        return ToolCall.model_validate({"id": "c1", "type": "function", "function": function})

    with nacre.Tool("pi", cwd=tmp_path) as tool:
        assert openai.chat_tools(tool)[0]["function"]["name"] == "bash"
        made = openai.chat_answer(tool, call('{"command": "exit 3"}'))
        assert (made["role"], made["tool_call_id"]) == ("tool", "c1")
        assert str(made["content"]).endswith("Command exited with code 3")
        made = asyncio.run(openai.achat_answer(tool, call("{not JSON")))
        assert "must be a JSON object" in str(made["content"])


PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "sdks.md").read_text()


@pytest.mark.parametrize("code", blocks("python", PAGE))
def test_python_in_the_page_works_when_pasted(code: str, tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error::DeprecationWarning", "-c", code]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stderr) == (0, "")


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("with_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_run_without_a_key(example: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, timeout=60
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert "must say hello" in said.stdout
    assert said.stdout.endswith("It passes now: ok\n")


def test_with_a_key_the_examples_ask_the_real_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use the real client of the SDK with a scripted API, because the test has no real key."""
    import anthropic as sdk
    import httpx2

    http = httpx2.Client(transport=anthropic_api(recover))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    client = sdk.Anthropic(http_client=http)
    monkeypatch.setattr(sdk, "Anthropic", lambda: client)
    (tmp_path / "check.sh").write_text(CHECK)
    with nacre.Tool(cwd=tmp_path) as tool, http:
        script, replies = model(tool.specs("anthropic")), list[str]()
        while not isinstance(said := script(replies), str):
            replies.append(tool.call(said[1], tool=said[0]).text)
    assert said == "It passes now: ok"


def test_what_is_missing_is_named_as_one_installs_it() -> None:
    code = (
        "import sys, nacre; sys.modules['agents'] = None\n"
        "from nacre.adapters import openai_agents\n"
        "try: openai_agents.tools(nacre.Tool('harness'))\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == (
        "this needs the package openai-agents; install it with: pip install openai-agents\n"
    )


def test_importing_nacre_or_an_adapter_loads_no_sdk() -> None:
    code = (
        "import sys, nacre\n"
        "from nacre.adapters import anthropic, langchain, openai, openai_agents, pydantic_ai\n"
        "print([m for m in ('anthropic', 'openai', 'agents', 'pydantic_ai', 'langchain_core',"
        "'mcp', 'pydantic') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "[]\n"
