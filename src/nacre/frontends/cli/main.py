"""The command line. `main` is the table of contents; each command is a module of its own, loaded
when it is used."""

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import NoReturn

from nacre import __version__
from nacre.model.refusals import Refused

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
    words = sys.argv[1:] if argv is None else list(argv)
    # A word before the command can only be an option without a value.
    parser = build_parser([word for word in words if not word.startswith("-")][:1])
    options, rest = parser.parse_known_args(words)
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
    except Refused as refused:
        _print_error(f"nacre: {refused}\n")
        code = 1
    except OSError as error:
        _print_error(f"nacre: cannot write: {error.strerror or error}\n")
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


def _print_error(text: str) -> None:
    try:
        os.write(2, text.encode())
    except OSError:
        return


def build_parser(loaded: Collection[str] = tuple(_COMMANDS)) -> argparse.ArgumentParser:
    """All commands; only those of `loaded` have their arguments, as these are in their modules."""
    parser = argparse.ArgumentParser(prog="nacre", description="The shell tool for agents.")
    parser.add_argument("--version", action="version", version=f"nacre {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND")
    for name, does in _COMMANDS.items():
        made = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        if name in loaded:
            import_module(f"nacre.frontends.cli.{name}").add_arguments(made)
    return parser
