"""The command line of nacre: the list of commands, argument parsing and the exit of the process.

Each command of nacre has its own module, which is imported only when the command is used.
"""

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from itertools import pairwise
from typing import NoReturn

from nacre import __version__
from nacre.model.refusals import Refused

_COMMANDS = {
    "run": "run one command like an agent, stream its output, and exit with its code",
    "call": "make one tool call and print the reply as one JSON object",
    "schema": "print the tool schemas in the format of a model provider",
    "ps": "list the runs of this workspace: the live ones and the last that have ended",
    "read": "print the output of a run: all of it, some lines, or matching lines",
    "wait": "wait until a run has ended, and exit with its code",
    "write": "write to the stdin of a run that was started as interactive",
    "kill": "end runs and their process trees: TERM, a grace, KILL",
    "attach": "show a run's output live, and forward stdin to the run",
    "sessions": "list, show, reset, fork or remove sessions (persistent shells)",
    "log": "print the audit log: one line for each call",
    "explain": "show what the safety checks find in a command, without running it",
    "mcp": "serve the tools to an MCP client, on stdio or HTTP",
    "rpc": "serve the tools to a program as JSON lines on stdio",
    "warden": "run the daemon that keeps runs alive; nacre starts it when needed",
    "doctor": "check this machine, with a remedy for what is missing",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = _insert_rpc_command(sys.argv[1:] if argv is None else list(argv))
    # The options that `nacre` accepts before the name of a command take no value, except `--mode`,
    # which `_insert_rpc_command` handles; so the first word without a dash is the command's name.
    parser = build_parser([word for word in words if not word.startswith("-")][:1])
    options, rest = parser.parse_known_args(words)
    if rest and options.name == "write" and not any(word.startswith("-") for word in rest):
        # argparse cannot assign a text that comes after an option, or all words of a text without
        # quotes; `nacre write` adds the unassigned words to the text that it writes.
        options.text, rest = " ".join([*([options.text] if options.text else []), *rest]), []
    if rest:
        remedy = (
            "quote a command with blanks"
            if options.name in ("run", "explain")
            else f"nacre {options.name or ''} --help lists the arguments".replace("  ", " ")
        )
        parser.error(f"unrecognized arguments: {' '.join(rest)}; {remedy}")
    if options.name is None:
        parser.print_help()
        return 2
    code: int = import_module(f"nacre.frontends.cli.{options.name}").main(options)
    return code


def _insert_rpc_command(words: list[str]) -> list[str]:
    """Return the words of the command line. If the words contain `--mode rpc`, as those of the RPC
    clients of pi do, put the command name `rpc` in front."""
    selected = "--mode=rpc" in words or ("--mode", "rpc") in pairwise(words)
    begins_with_option = words[:1] and words[0].startswith("-")
    return ["rpc", *words] if selected and begins_with_option else words


def entry() -> NoReturn:
    """Run the command line of nacre and exit.

    An error on stdin, stdout or stderr is reported as one sentence, never as a traceback.
    """
    _fill_standard_descriptors()
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 141  # 128+SIGPIPE: the reader of stdout has closed the pipe
    except Refused as refused:
        _print_error(f"nacre: {refused}\n")
        code = 1
    except OSError as error:
        _print_error(f"nacre: cannot write: {error.strerror or error}\n")
        code = 1
    if (sessions := sys.modules.get("nacre.sessions.manager")) is not None:
        sessions.close_all()
    # `os._exit` ends the process without flushing stdout again and without waiting for a blocked
    # writer thread.
    os._exit(code)


def _fill_standard_descriptors() -> None:
    """Open /dev/null on each closed standard descriptor; otherwise the next opened file would get
    the number of a standard descriptor."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _print_error(text: str) -> None:
    try:
        os.write(2, text.encode())
    except OSError:
        return


def build_parser(loaded: Collection[str] = tuple(_COMMANDS)) -> argparse.ArgumentParser:
    """Build the argument parser of all commands.

    The parser gets arguments only for the commands in `loaded`, because adding the arguments of a
    command imports the command's module.
    """
    parser = argparse.ArgumentParser(
        prog="nacre",
        description="The shell tool for language-model agents.",
        epilog="nacre COMMAND --help lists the arguments of a command.",
    )
    parser.add_argument("--version", action="version", version=f"nacre {__version__}")
    parser.add_argument(
        "--mode", choices=["rpc"], help="nacre --mode rpc does the same as nacre rpc"
    )
    commands = parser.add_subparsers(dest="name", metavar="COMMAND")
    for name, does in _COMMANDS.items():
        made = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        if name in loaded:
            import_module(f"nacre.frontends.cli.{name}").add_arguments(made)
    return parser
