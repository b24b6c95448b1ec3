"""Adapter for the OpenAI Agents SDK.

Example:

    agent = Agent(name="dev", tools=openai_agents.tools(tool))
    agent = Agent(name="dev", tools=[openai_agents.shell(nacre.Tool("harness"))])
"""

from typing import TYPE_CHECKING, Any

from nacre.adapters.extras import require
from nacre.adapters.openai import check_streams, parse_arguments, shell_command
from nacre.tool.tool import Tool

if TYPE_CHECKING:
    from agents import FunctionTool, ShellTool


def tools(tool: Tool) -> "list[FunctionTool]":
    with require("openai-agents"):
        from agents import FunctionTool

    def build(name: str) -> Any:
        async def invoke(_: Any, arguments: str) -> str:
            return (await tool.acall(parse_arguments(arguments), tool=name)).text

        return invoke

    return [
        FunctionTool(
            name=spec["name"],
            description=spec["description"],
            params_json_schema=spec["parameters"],
            on_invoke_tool=build(spec["name"]),
            strict_json_schema=spec["strict"],
        )
        for spec in (each["function"] for each in tool.specs("openai"))
    ]


def shell(tool: Tool) -> "ShellTool":
    """Return the built-in `shell` tool of the OpenAI Agents SDK, with a nacre tool that executes
    its commands. `tool` must be a nacre tool with the `harness` contract, which captures
    stdout and stderr separately."""
    with require("openai-agents"):
        from agents import ShellCallOutcome, ShellCommandOutput, ShellResult, ShellTool

    check_streams(tool)

    async def run(command: str, action: Any) -> ShellCommandOutput:
        done = await shell_command(tool, command, action)
        outcome = ShellCallOutcome(**done["outcome"])
        return ShellCommandOutput(done["stdout"], done["stderr"], outcome, command)

    async def execute(request: Any) -> ShellResult:
        action = request.data.action
        done = [await run(command, action) for command in action.commands]
        return ShellResult(output=done, max_output_length=action.max_output_length)

    return ShellTool(executor=execute)
