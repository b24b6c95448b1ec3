"""`nacre.run` and `nacre.arun`: functions that run one shell script directly, without a tool
contract.

The script and its options become a `Plan`; the engine executes the plan and returns an `Outcome`.
`nacre.run` and `nacre.arun` read no settings files, apply no safety rules, and do not use nacre's
store on disk.
"""

import os
from collections.abc import Mapping
from typing import TypedDict, Unpack

import msgspec

from nacre.engine.engine import Engine
from nacre.engine.ticket import Ticket
from nacre.model.cancel import CancelToken
from nacre.model.events import Listener, Listening
from nacre.model.outcome import Capture, NotStarted, Outcome
from nacre.model.plan import Command, Keep, Limits, Plan, Spill, Streams
from nacre.model.refusals import BadArguments, BadDirectory, DirectoryProblem, Refused

StrPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_engine = Engine()


class RunOptions(TypedDict, total=False):
    """Options of `nacre.run` and `nacre.arun`, all with default values."""

    cwd: StrPath  # working directory of the command; default: that of this process
    # complete environment of the command; default: the environment of this process
    env: Mapping[str, str] | Mapping[bytes, bytes]
    stdin: bytes  # bytes that the command reads from stdin; default: /dev/null
    timeout: float | None  # maximum seconds that the command may run; None, the default: no limit
    grace: float  # seconds between TERM and KILL when the command is stopped; default: 2
    streams: Streams  # whether stdout and stderr share one pipe; default: MERGED, one shared pipe
    # Amount of the command's output that is kept in memory. By default, output of up to 1 MiB is
    # kept whole in memory; of longer output, the first 256 KiB and the last 768 KiB are kept.
    keep: Keep
    spill: Spill | None  # file for the command's complete output; default: no file
    shell: StrPath  # path of the shell that runs the script; default: /bin/bash


def run(
    command: str | bytes,
    *,
    listen: Listener | Listening | None = None,
    cancel: CancelToken | None = None,
    **options: Unpack[RunOptions],
) -> Outcome:
    """Run a shell script to its end and return its outcome.

    A failure of the command or of the machine raises no exception; `Outcome.ending` reports the
    failure.
    """
    ticket = None
    try:
        ticket = _start(command, listen, cancel, options)
        return ticket.wait()
    except Refused as refused:
        return _not_started(refused, options)
    except BaseException:
        # If KeyboardInterrupt arrives after the start of the command but before `ticket.wait`, only
        # this `except` block stops the command.
        if ticket is not None:
            ticket.abandon()
        raise


async def arun(
    command: str | bytes,
    *,
    listen: Listener | Listening | None = None,
    cancel: CancelToken | None = None,
    **options: Unpack[RunOptions],
) -> Outcome:
    """Run a shell script to its end under asyncio and return its outcome.

    Cancelling the asyncio task stops the command and every process that the command started.
    """
    ticket = None
    try:
        ticket = _start(command, listen, cancel, options)
        return await ticket
    except Refused as refused:
        return _not_started(refused, options)
    except BaseException:
        if ticket is not None:
            ticket.cancel()
        raise


def _start(
    command: str | bytes,
    listen: Listener | Listening | None,
    cancel: CancelToken | None,
    options: RunOptions,
) -> Ticket[Outcome]:
    return _engine.start(_build_plan(command, options), listen=listen, cancel=cancel)


def _build_plan(command: str | bytes, options: RunOptions) -> Plan:
    """Build the plan (command, streams, limits, environment) for one call of `nacre.run`.

    Raises Refused for an option value that no command can have, such as a script with a NUL byte.
    Raises TypeError for an unknown option or an option value of the wrong type.
    """
    for name in options.keys() - RunOptions.__annotations__.keys():
        # Lazy import: `did_you_mean` is needed only for the error about an unknown option.
        from nacre.text.similar_names import did_you_mean

        hint = did_you_mean(name, RunOptions.__annotations__)
        raise TypeError(f"nacre.run has no option {name!r}; {hint}".rstrip("; "))
    script = _encode(command, "command")
    env = options.get("env")
    where = Command(
        original=script,
        script=script,
        cwd=_directory(options.get("cwd")),
        env=None if env is None else dict(_variable(*each) for each in env.items()),
    )
    stdin = options.get("stdin")
    if stdin is not None and not isinstance(stdin, bytes):
        raise TypeError(f"stdin must be bytes, not {type(stdin).__name__}; encode it")
    plan = Plan(
        command=where, limits=_build_limits(options), spill=options.get("spill"), stdin=stdin
    )
    return msgspec.structs.replace(
        plan,
        shell=os.fsencode(options.get("shell", plan.shell)),
        streams=options.get("streams", plan.streams),
        keep=options.get("keep", plan.keep),
    )


def _build_limits(options: RunOptions) -> Limits:
    timeout, grace = options.get("timeout"), options.get("grace", 2.0)
    for name, value in (("timeout", timeout), ("grace", grace)):
        if value is not None and not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        return Limits(timeout=None if timeout == float("inf") else timeout, grace=grace)
    except ValueError as error:
        raise Refused(BadArguments(problem=str(error))) from None


def _encode(value: str | bytes, name: str) -> bytes:
    try:
        data = os.fsencode(value)
    except UnicodeEncodeError:
        raise Refused(BadArguments(problem=f"{name} is not encodable text: {value!r}")) from None
    if b"\0" in data:
        raise Refused(BadArguments(problem=f"{name} contains a NUL byte; remove it"))
    return data


def _variable(name: str | bytes, value: str | bytes) -> tuple[bytes, bytes]:
    key = _encode(name, "a variable's name")
    if not key or b"=" in key:
        raise Refused(BadArguments(problem=f"{name!r} cannot be a variable's name; rename it"))
    return key, _encode(value, f"the variable {name!r}")


def _directory(cwd: StrPath | None) -> bytes:
    try:
        if cwd is None:
            return os.getcwdb()
        return os.path.abspath(_encode(os.fspath(cwd), "cwd"))
    except OSError:
        raise Refused(BadDirectory(path=b".", problem=DirectoryProblem.MISSING)) from None


def _not_started(refused: Refused, options: RunOptions) -> Outcome:
    separate = options.get("streams") is Streams.SEPARATE
    return Outcome(
        run="u0",
        ending=NotStarted(refused.refusal),
        output=Capture(),
        errors=Capture() if separate else None,
    )
