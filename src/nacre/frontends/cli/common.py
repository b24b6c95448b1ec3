"""Helpers that several commands of the command line share: building a tool, signals, printing.

This module builds tools and engines only for processes that belong to nacre, not for host programs.
"""

import contextlib
import functools
import os
import select
import signal
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nacre.engine.engine import Engine
from nacre.model.cancel import CancelToken
from nacre.prepare.environment import dropped_names
from nacre.process.own_process import become_subreaper, scrub_environ
from nacre.runs.dispatch import hand_over_leftover
from nacre.store.url_resolvers import HostResolver
from nacre.store.workspace import find_workspace
from nacre.tool.tool import Tool

# STOP_SIGNALS come from a user or a service manager that wants nacre to stop; FORWARDED_SIGNALS are
# meant for the command that nacre runs.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class UsageError(Exception):
    """Invalid command line of nacre; the error message says how to correct it."""


def own_tool(
    contract: str,
    *,
    cwd: str | None,
    tools: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    session: str | None = None,
    max_wait: float | None = None,
    resolvers: Mapping[str, HostResolver] | None = None,
    engine: Engine | None = None,
) -> Tool:
    """Build a tool in a process that belongs to nacre, not to a host program. Raises UsageError.

    A process that calls `own_tool` becomes a subreaper, so that no process of a stopped command
    escapes from nacre. Environment variables that commands must not get are erased from this
    process's /proc/PID/environ. A caller that builds several tools in one process passes the same
    `engine` to each.
    """
    env = initial_environment()
    try:
        tool = Tool(
            contract,
            cwd=cwd,
            env=env,
            tools=tools,
            options=options,
            session=session,
            max_wait=max_wait,
            resolvers=resolvers,
            engine=engine or own_engine(),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    chosen = getattr(tool.contract, "options", None)
    if (policy := getattr(chosen, "environment", None)) is not None:
        scrub_environ(dropped_names(policy, getattr(chosen, "allow", ()), env))
    return tool


def own_engine(*, serves: bool = False, wake_on_signals: bool = True) -> Engine:
    """Build the engine of a process that belongs to nacre, not to a host program.

    `serves` is True for a server with many calls, whose engine keeps prewarmed shells.
    `wake_on_signals` must be False under asyncio, because asyncio sets its own wake-up descriptor
    for signals.
    """
    return Engine(
        own_process=become_subreaper(),
        keep_loop=True,
        prewarm=serves,
        wake_on_signals=wake_on_signals,
        on_leftover=hand_over_leftover,
    )


def find_current_workspace(cwd: str | None) -> bytes:
    """Return the workspace of the directory `cwd`, or of the current directory if `cwd` is None.
    Raises OSError."""
    try:
        return find_workspace(os.path.abspath(os.fsencode(cwd or os.getcwd())))
    except FileNotFoundError:
        raise OSError(
            "the current directory was deleted; change to another one, or give --cwd"
        ) from None


def parse_settings(given: list[str]) -> dict[str, str]:
    """Parse the KEY=VALUE arguments of the option `--set`. Raises UsageError."""
    parsed = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each} has no value; write --set {each}=VALUE")
        parsed[key] = value
    return parsed


def check_directory(cwd: str | None) -> None:
    """Check once, before a server's first call, that its `--cwd` is a directory. Raises
    UsageError."""
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(f"--cwd {cwd} is not a directory; give an existing one")


def print_server_hint(language: str) -> None:
    """Print a hint if a user has started a server, such as `nacre rpc`, in a terminal."""
    if sys.stdin.isatty():
        print_note(f"nacre: serving a program on stdin and stdout, with {language}; Ctrl-D ends it")


@functools.cache
def initial_environment() -> dict[bytes, bytes] | None:
    """Return the environment that this process was started with, or None if it is unreadable.

    `initial_environment` reads /proc/self/environ only once and caches the result, because
    `own_tool` later erases variables from that file. `os.environ` is not used, because Python adds
    LC_CTYPE to it where no locale is set.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def cancel_on_signals(cancel: CancelToken, *more: signal.Signals) -> None:
    for number in (*STOP_SIGNALS, *more):
        # A signal that was already ignored when this process was started, for example by nohup,
        # stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: cancel.cancel(received))


def forward_signals(send: Callable[[int], object]) -> None:
    for number in FORWARDED_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: send(received))


def print_line(text: str) -> None:
    """Print a line on stdout, always in UTF-8."""
    sys.stdout.flush()
    write_all(1, f"{text}\n".encode())


def print_problem(problem: str) -> None:
    """Print an error message on stderr; a failed write to stderr is ignored."""
    print_note(f"nacre: {problem}")


def print_note(text: str) -> None:
    with contextlib.suppress(OSError):
        write_all(2, f"{text}\n".encode())


def pause(seconds: float) -> None:
    """Sleep for `seconds`. Raises BrokenPipeError when the reader of stdout has closed the pipe."""
    poll = select.poll()
    poll.register(1, 0)  # with event mask 0, poll(2) reports only errors and hang-up
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


def write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def escape_controls(text: str) -> str:
    """Escape characters that could move the terminal's cursor or reverse the direction of text."""
    return "".join(
        each if each.isprintable() or unicodedata.combining(each) else f"\\x{ord(each):02x}"
        for each in text.replace("\t", " ")
    )
