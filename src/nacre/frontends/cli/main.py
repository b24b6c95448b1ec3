"""The command line. `main` is the table of contents; each command is a module of its own, loaded
when it is used."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from nacre import __version__
from nacre.contracts import registry

_COMMANDS = {
    "run": "run one command as an agent would, stream its output, exit with its code",
    "call": "make one tool call and print the reply as one JSON object",
    "schema": "print the tools as a model provider wants them",
    "ps": "list the runs of this workspace, those that live and the last that have ended",
    "read": "print the output of a run, all of it, some lines, or what matches",
    "wait": "wait until a run has ended, and exit with its code",
    "write": "write to the stdin of a run, where that was left open",
    "kill": "end runs and all that they have started: TERM, a grace, KILL",
    "attach": "show a run's output as it comes, and give it our stdin",
    "sessions": "list the shells that remember, or reset, fork, remove one",
    "log": "print the audit log: one line a call",
    "explain": "show what the checks see in a command and would do about it; runs nothing",
    "mcp": "serve the tools to an MCP client, on stdio or HTTP",
    "rpc": "serve the tools to a program, as JSON lines on stdio",
    "warden": "be the process that keeps runs alive; it is started by itself when it is needed",
    "doctor": "say what this machine offers, with the remedy for what is missing",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = _build_parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.name == "write" and not any(word.startswith("-") for word in rest):
        # argparse loses a last word that comes after an option; and a line may come unquoted.
        options.text, rest = " ".join([*([options.text] if options.text else []), *rest]), []
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}; is something to be quoted?")
    if options.name is None:
        parser.print_help()
        return 2
    code: int = import_module(f"nacre.frontends.cli.{options.name}").main(options)
    return code


def entry() -> NoReturn:
    """The program. Whatever happens to its descriptors ends in a sentence, never a traceback."""
    _fill_standard_descriptors()
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 141  # whoever read us has seen enough
    except OSError as error:
        _print_help(f"nacre: cannot write: {error.strerror or error}\n")
        code = 1
    if (sessions := sys.modules.get("nacre.sessions.manager")) is not None:
        sessions.close_all()
    os._exit(code)  # not to flush again, nor to wait for a writer that is stuck


def _fill_standard_descriptors() -> None:
    """Closed standard descriptors would be given to the next file that is opened."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _print_help(text: str) -> None:
    try:
        os.write(2, text.encode())
    except OSError:
        return


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nacre", description="The shell tool for agents.")
    parser.add_argument("--version", action="version", version=f"nacre {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND")
    parsers = {
        name: commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        for name, does in _COMMANDS.items()
    }
    for name in ("run", "call", "schema", "mcp", "rpc"):
        parsers[name].add_argument(
            "--contract",
            default=registry.DEFAULT,
            metavar="C",
            help=f"one of {', '.join(registry.contract_names())} (default {registry.DEFAULT})",
        )
    _run(parsers["run"])
    _call(parsers["call"])
    _read(parsers["read"])
    _runs(parsers)
    _sessions(parsers["sessions"])
    _log(parsers["log"])
    _explain(parsers["explain"])
    parsers["schema"].add_argument(
        "--format", choices=("anthropic", "openai", "mcp"), default="anthropic"
    )
    parsers["schema"].add_argument("--cwd", metavar="D", help="as if called there")
    _add_option_arguments(parsers["schema"])
    _rpc(parsers["rpc"])
    _mcp(parsers["mcp"])
    parsers["doctor"].add_argument("--cwd", metavar="D", help="as if called there")
    parsers["doctor"].add_argument(
        "--all", action="store_true", help="list also the settings that nobody has changed"
    )
    return parser


def _add_session_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--session", metavar="NAME", help="in the shell of that name, which remembers (nacre, pi)"
    )


def _sessions(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the shells of this workspace that remember; or do something to one."
    parser.add_argument("--cwd", metavar="D", help="as if called there")
    parser.add_argument("--contract", metavar="C", help="only those of this contract")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "reset", "fork", "remove"),
        help="list (default), or what to do to NAME",
    )
    parser.add_argument("session", nargs="?", metavar="NAME", help="which one")
    parser.add_argument("new", nargs="?", metavar="NEW", help="what a fork of it is called")


def _rpc(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve the tools to a program, as JSON lines on stdio; docs/guide/rpc.md."
    parser.add_argument("--cwd", metavar="D", help="where calls run that name no directory")
    _add_option_arguments(parser)


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve the tools to an MCP client, on stdio or HTTP; docs/guide/mcp.md."
    _add_session_argument(parser)
    parser.add_argument("--cwd", metavar="D", help="where commands run (default: here)")
    _add_caller_arguments(parser)
    parser.add_argument(
        "--max-wait",
        type=seconds,
        default=45.0,
        metavar="S",
        help="how long a call may block, where what still runs can be handed back (default 45)",
    )
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="HTTP instead of stdio, on this machine unless HOST is another; 0 is any free port",
    )
    parser.add_argument(
        "--token-file", metavar="F", help="with --http: the token (default: in the state directory)"
    )
    parser.add_argument("--no-token", action="store_true", help="with --http: let everybody in")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="H", help="another name of this server"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="O",
        help="a page's origin, from which it may call",
    )


def _read(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", help="17, r17 or artifact://17")
    parser.add_argument("--from", dest="first", type=int, metavar="A", help="from this line on")
    parser.add_argument("--to", dest="last", type=int, metavar="B", help="up to this line")
    parser.add_argument("--lines", "-n", type=int, metavar="N", help="the last N lines")
    parser.add_argument("--grep", metavar="REGEX", help="the lines that match, with their numbers")
    parser.add_argument("--context", type=int, metavar="C", help="and C lines around each")
    parser.add_argument("--errors", action="store_true", help="stderr, where it is kept apart")
    parser.add_argument("--follow", "-f", action="store_true", help="and what is yet to come")
    parser.add_argument("--cwd", metavar="D", help="a run of the workspace there")


def _runs(parsers: dict[str, argparse.ArgumentParser]) -> None:
    _ps(parsers["ps"])
    for name in ("wait", "write", "attach"):
        parsers[name].add_argument("run", metavar="ID", help="17 or r17")
    parsers["wait"].add_argument(
        "--timeout", type=seconds, metavar="S", help="wait at most so long; then exit with 124"
    )
    _write(parsers["write"])
    _kill(parsers["kill"])
    _attach(parsers["attach"])
    for name in ("ps", "wait", "write", "kill", "attach"):
        parsers[name].add_argument("--cwd", metavar="D", help="of the workspace there")
    parsers["warden"].add_argument(
        "--stdio", action="store_true", help="speak to it through stdin and stdout, as over ssh"
    )


def _ps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="of all workspaces")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    parser.add_argument(
        "--lines",
        "-n",
        type=lines,
        default=20,
        metavar="N",
        help="of those that have ended, the last N (default 20)",
    )


def _write(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="?", help="a line; without: our own stdin")
    parser.add_argument("--no-newline", action="store_true", help="exactly TEXT")
    parser.add_argument("--eof", action="store_true", help="and then nothing more, ever")


def _kill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="ID", nargs="+", help="17 or r17")
    parser.add_argument("--signal", metavar="S", help="just send this one: INT, HUP, 9, ...")
    parser.add_argument(
        "--grace", type=seconds, default=5.0, metavar="S", help="between TERM and KILL (default 5)"
    )


def _attach(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show a run's output as it comes, and give it our stdin, also its end. "
        "Ctrl-C lets go of it; it goes on."
    )
    parser.add_argument("--no-stdin", action="store_true", help="only watch")


def seconds(text: str) -> float:
    """Its name stands in argparse's message."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", "-f", action="store_true", help="and what is yet to come")
    parser.add_argument(
        "--lines", "-n", type=lines, default=50, metavar="N", help="the last N (default 50)"
    )
    parser.add_argument("--json", action="store_true", help="the lines as they are")


def lines(text: str) -> int:
    """Its name stands in argparse's message."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _run(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "nacre run [--contract C] [--cwd D] [--session NAME] [--timeout S] [--json]\n"
        "                 [--detach [--interactive]] -- COMMAND ..."
    )
    _add_session_argument(parser)
    parser.add_argument("--cwd", metavar="D", help="run there instead of here")
    parser.add_argument(
        "--timeout", metavar="S", help="seconds, instead of the contract's; 0 is no limit"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome instead of streaming the output"
    )
    parser.add_argument(
        "--detach", action="store_true", help="let it run in the background; print its name"
    )
    parser.add_argument(
        "--interactive", action="store_true", help="with --detach: nacre write can write to it"
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one word is a script; several are a program and its arguments, quoted for you",
    )


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--contract",
        default=registry.DEFAULT,
        metavar="C",
        help=f"one of {', '.join(registry.contract_names())} (default {registry.DEFAULT})",
    )
    parser.add_argument("--cwd", metavar="D", help="as if called there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_caller_arguments(parser)
    parser.add_argument("command", metavar="COMMAND", help="a script, or - for stdin")


def _add_caller_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        default="",
        metavar="a,b",
        help="what else the caller has, for interception (option intercept, of pi)",
    )
    _add_option_arguments(parser)


def _add_option_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the contract (nacre doctor --all lists them); may be repeated",
    )


def _call(parser: argparse.ArgumentParser) -> None:
    _add_session_argument(parser)
    parser.add_argument("--tool", default="bash", metavar="T", help="which tool (default bash)")
    parser.add_argument("--cwd", metavar="D", help="call it there instead of here")
    _add_caller_arguments(parser)
    parser.add_argument("arguments", metavar="ARGUMENTS", help="a JSON object, or - for stdin")
