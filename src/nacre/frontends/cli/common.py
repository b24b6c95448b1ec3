"""What the commands share: a tool in a process of our own, and signals that cancel."""

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
from nacre.store.workspace import find_workspace
from nacre.tool.tool import Tool

# By these a person or a supervisor asks us to stop; by those they speak to the command.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class UsageError(Exception):
    """The command line cannot be understood; the message says how it can."""


def own_tool(
    contract: str,
    *,
    cwd: str | None,
    tools: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    session: str | None = None,
    max_wait: float | None = None,
    engine: Engine | None = None,
) -> Tool:
    """A tool whose process is ours: nothing that a stopped command started gets away, and
    what a command must not have it does not find in its parent either. Where a process has
    several of them, they share an `engine`."""
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
            engine=engine or own_engine(),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    chosen = getattr(tool.contract, "options", None)
    if (policy := getattr(chosen, "environment", None)) is not None:
        scrub_environ(dropped_names(policy, getattr(chosen, "allow", ()), env))
    return tool


def own_engine(*, serves: bool = False, wake_on_signals: bool = True) -> Engine:
    """`serves`: there will be many calls, so shells are kept ready for them. `wake_on_signals`: not
    under asyncio, which has a wake-up descriptor for signals of its own."""
    return Engine(
        own_process=become_subreaper(),
        keep_loop=True,
        prewarm=serves,
        wake_on_signals=wake_on_signals,
        on_leftover=hand_over_leftover,
    )


def find_current_workspace(cwd: str | None) -> bytes:
    """The workspace there. Raises OSError."""
    try:
        return find_workspace(os.path.abspath(os.fsencode(cwd or os.getcwd())))
    except FileNotFoundError:
        raise OSError("the directory that we are in is gone; go to another, or say --cwd") from None


def parse_settings(given: list[str]) -> dict[str, str]:
    """What `--set` says."""
    parsed = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each} has no value; write --set {each}=VALUE")
        parsed[key] = value
    return parsed


def check_directory(cwd: str | None) -> None:
    """For who serves: what is wrong with it is said now, not to each caller. Raises UsageError."""
    if cwd is not None and not os.path.isdir(cwd):
        raise UsageError(f"--cwd {cwd} is no directory; name one that is there")


def print_server_hint(language: str) -> None:
    """To a person who has started a server in a terminal."""
    if sys.stdin.isatty():
        print_note(
            f"nacre: this speaks {language} on stdin and stdout, for a program; Ctrl-D ends it"
        )


@functools.cache
def initial_environment() -> dict[bytes, bytes] | None:
    """What we were started with; asked once, since some of it is forgotten then. Python itself
    adds LC_CTYPE to it where no locale is set."""
    try:
        with open("/proc/self/environ", "rb") as file:
            block = file.read()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def cancel_on_signals(cancel: CancelToken, *more: signal.Signals) -> None:
    for number in (*STOP_SIGNALS, *more):
        # Whoever started us with a signal ignored (nohup, say) wants it ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: cancel.cancel(received))


def forward_signals(send: Callable[[int], object]) -> None:
    for number in FORWARDED_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: send(received))


def print_line(text: str) -> None:
    """A line on stdout, in UTF-8 whatever the locale is."""
    sys.stdout.flush()
    write_all(1, f"{text}\n".encode())


def print_problem(problem: str) -> None:
    """A line on stderr; where that cannot be written, nobody can be told."""
    print_note(f"nacre: {problem}")


def print_note(text: str) -> None:
    with contextlib.suppress(OSError):
        write_all(2, f"{text}\n".encode())


def pause(seconds: float) -> None:
    """Pause, unless nobody reads our stdout any more. Raises BrokenPipeError."""
    poll = select.poll()
    poll.register(1, 0)  # only what is wrong with it
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


def write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def escape_controls(text: str) -> str:
    """Without what could move the cursor, or turn the text around."""
    return "".join(
        each if each.isprintable() or unicodedata.combining(each) else f"\\x{ord(each):02x}"
        for each in text.replace("\t", " ")
    )
