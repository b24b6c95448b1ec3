"""`nacre sessions`: list, show, reset, fork or remove the sessions (persistent shells) of one
workspace."""

import argparse
import shutil
import time

import msgspec

from nacre.frontends.cli.common import (
    UsageError,
    escape_controls,
    find_current_workspace,
    print_line,
    print_problem,
)
from nacre.frontends.cli.run_formatting import format_age, short_path
from nacre.sessions import handle
from nacre.sessions.handle import SessionHandle, SessionProblem
from nacre.store import journal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the sessions (persistent shells) of this workspace, or act on one."
    parser.add_argument("--cwd", metavar="D", help="directory (default: the current one)")
    parser.add_argument("--contract", metavar="C", help="only sessions of this contract")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "reset", "fork", "remove"),
        help="list (default), or the action on session NAME",
    )
    parser.add_argument("session", nargs="?", metavar="NAME", help="name of the session")
    parser.add_argument("new", nargs="?", metavar="NEW", help="name of the fork")


def main(options: argparse.Namespace) -> int:
    try:
        _check(options)
        _do(options, journal.workspace_key(find_current_workspace(options.cwd)))
    except UsageError as error:
        print_problem(str(error))
        return 2
    except (SessionProblem, LookupError, ValueError) as error:
        print_problem(str(error.args[0]))
        return 1
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        print_problem(str(error))
        return 1
    return 0


def _check(options: argparse.Namespace) -> None:
    """Check that the user gave the session names that the action, such as `show` or `fork`, needs.
    Raises UsageError."""
    action, name, new = options.action, options.session, options.new
    if action == "list" and name is not None:
        raise UsageError(f"to see one of them, write: nacre sessions show {name}")
    if action != "list" and name is None:
        raise UsageError(f"no name was given; write: nacre sessions {action} NAME")
    if (action == "fork") != (new is not None):
        raise UsageError(
            "no new name was given; write: nacre sessions fork NAME NEW"
            if action == "fork"
            else f"{action} takes one name; {new!r} is one too many"
        )


def _do(options: argparse.Namespace, place: str) -> None:
    if options.action == "list":
        there = handle.list_sessions(place)
        chosen = [each for each in there if options.contract in (None, each.contract)]
        _list(chosen, as_json=options.json)
        return
    session = handle.find_session(place, options.session, options.contract)
    match options.action:
        case "show":
            _show(session, as_json=options.json)
        case "reset":
            session.reset()
        case "fork":
            session.fork(options.new)
        case "remove":
            session.remove()


def _list(sessions: list[SessionHandle], *, as_json: bool) -> None:
    if as_json:
        print_line(msgspec.json.encode([_as_json(each) for each in sessions]).decode())
        return
    if not sessions:
        print_line("no sessions in this workspace; nacre run --session NAME makes one")
        return
    rows = [("NAME", "CONTRACT", "USED", "DIRECTORY")]
    rows += [
        (
            escape_controls(each.name),
            each.contract,
            f"{format_age(time.time() - each.used.timestamp())} ago",
            short_path(escape_controls(each.cwd)) or "-",
        )
        for each in sessions
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    width = shutil.get_terminal_size((1000, 24)).columns
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        print_line("  ".join((*cells, row[3]))[:width].rstrip())


def _show(session: SessionHandle, *, as_json: bool) -> None:
    if as_json:
        print_line(msgspec.json.encode(_as_json(session)).decode())
        return
    print_line(f"{escape_controls(session.name)}, of {session.contract}")
    print_line(f"directory  {escape_controls(session.cwd) or '-'}")
    print_line(f"variables  {escape_controls(' '.join(session.variables)) or '-'}")
    print_line(f"functions  {escape_controls(' '.join(session.functions)) or '-'}")


def _as_json(session: SessionHandle) -> dict[str, object]:
    return {
        "name": session.name,
        "contract": session.contract,
        "cwd": session.cwd or None,
        "made": session.made.isoformat(),
        "used": session.used.isoformat(),
        "variables": session.variables,
        "functions": session.functions,
    }
