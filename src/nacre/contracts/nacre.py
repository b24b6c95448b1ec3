"""nacre: every command a run with an id, two clocks.

`wait` is how long a call blocks, `timeout` how long a command may live. What a reply says, and how,
is in `nacre_words`; the tool `job` in `nacre_job`.

Order of decisions: names of variables, directory, safety, co-author, links, environment.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from nacre.asks import Answer, Listing, Request, Run, Until
from nacre.caller import Caller
from nacre.contracts.arguments import (
    Kind,
    Wrong,
    bad,
    count,
    object_schema,
    read_arguments,
    read_bytes,
    read_script,
    seconds,
)
from nacre.contracts.contract import Admitted, Reply, ToolSpec, no_own, printed
from nacre.contracts.nacre_said import Said
from nacre.contracts.nacre_until import LONGEST_WAIT, UNTIL, placed
from nacre.contracts.options import LESS, OFF, Seconds, read_options
from nacre.contracts.sessions import remembering, session_name
from nacre.contracts.shared import Safety, Shared, checked, directory_of, signed
from nacre.contracts.words import SPILL
from nacre.digest import digest
from nacre.findings import AnyFinding
from nacre.plan import KIB, MIB, AtExit, Command, Held, Keep, Limits, Plan, Session, Streams
from nacre.prepare.decide import Step
from nacre.prepare.directory import directory
from nacre.prepare.environment import EDITORS, NON_INTERACTIVE, environment, variable_names
from nacre.prepare.links import links
from nacre.prepare.terminal import terminal_needs
from nacre.refusals import AnyRefusal, Refused, Unavailable, UnknownTool

MOST_OUTPUT: Final = 200_000
_LONGEST_NAME: Final = 200  # of a request
_KEEP: Final = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)
_NO_TERMINALS: Final = Unavailable(
    problem="there are no terminals yet: a command has pipes; leave pty out, and use interactive "
    "to answer what it asks"
)

_DESCRIPTION: Final = """\
Run a bash command; stdout and stderr come back as one. No status line means exit code 0.
If it still runs after `wait` seconds ({wait:g} by default) you get its id, like r7, and it goes \
on: the tool job waits for it, reads it, answers it, ends it. `wait` is NOT a timeout: nothing is \
ended by it; `wait: 0` starts something in the background.
Never sleep to wait for something: give `until`, or use job wait.
{shell} If it may ask something, give \
interactive: true; you are told what it asks.
Of long output you see the beginning and the end, {most:,} bytes; job read shows the rest."""


_NEW_SHELL: Final = """\
Each call is a new shell: give cwd and env instead of cd and export, or a session, which remembers \
them."""
_ONE_SHELL: Final = """\
Calls share one shell that remembers: directory, variables, functions, options; a session is \
another one."""


def _pty(value: Any) -> bool:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in ("rows", "cols"):
                raise Wrong("", "true, or an object with rows and cols", value)
            count(1, 10_000).take(each)
        return True
    if not isinstance(value, bool):
        raise ValueError
    return value


_PTY: Final = Kind(
    words="true, or an object with rows and cols", schema={"type": "boolean"}, take=_pty
)
Wait = Annotated[float | None, seconds(0, LONGEST_WAIT)]
MostOutput = Annotated[int | None, count(0, MOST_OUTPUT)]


class Bash(Struct, frozen=True, kw_only=True):
    command: str
    wait: Wait = None
    timeout: Annotated[float | None, seconds(0, 10**9)] = None
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    interactive: bool = False
    pty: Annotated[bool, _PTY] = False
    session: str | None = None
    until: Annotated[tuple[Until, ...], UNTIL] = ()
    max_output: MostOutput = None
    leave: Literal["keep", "end"] | None = None
    request_id: str | None = None


class Options(Shared, frozen=True, kw_only=True):
    safety: Safety = ("disk",)
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, extra=LESS)] = 30.0
    max_wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, extra=LESS)] = LONGEST_WAIT
    timeout: Annotated[float, Meta(ge=0, extra={"tighter": "limit"})] = 3600.0  # 0: none
    grace: Seconds = 5.0
    max_output: Annotated[int, Meta(ge=0, le=MOST_OUTPUT, extra=LESS)] = 20_000
    max_runs: Annotated[int, Meta(ge=1, extra=LESS)] = 100
    snapshot: Annotated[bool, Meta(extra=OFF)] = False  # sessions begin with the user's own set-up


class Nacre:
    name = "nacre"
    every = 0.05
    remembers = True
    printed = staticmethod(printed)
    admit_own = staticmethod(no_own)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.steps: tuple[Step, ...] = (
            variable_names,
            directory,
            *checked(options),
            *signed(options),
            links(("artifact",)),
            environment(options.environment, {**NON_INTERACTIVE, **EDITORS}, options.allow),
            terminal_needs,
        )

    def within(self, seconds: float) -> "Nacre":
        most = min(self.options.max_wait, seconds)
        return Nacre(msgspec.structs.replace(self.options, max_wait=most))

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        options = self.options
        wait = self._wait(None)[0]
        limit = f"{options.timeout:g}" if options.timeout else "none"
        told = {
            "command": "A bash script",
            "wait": f"Seconds this call waits, 0 to {options.max_wait:g}, default {wait:g}. NOT a "
            "kill timeout: the command goes on and you get its id",
            "timeout": f"Hard limit in seconds: then it is ended. Default {limit}, 0: none",
            "cwd": "Directory to run in",
            "env": "Extra environment variables",
            "stdin": "Text for its stdin, then end of file; default: nothing",
            "interactive": "Keep stdin open for job write, and tell when it waits for input",
            "pty": "Not available yet",
            "session": "Name of a shell that remembers: directory, variables, functions, options",
            "until": "Come back early, with what was seen, on the first of these",
            "max_output": f"Bytes of output in the reply, default {options.max_output}",
            "leave": 'What it leaves running: "keep" (default) or "end"',
            "request_id": "The same id never runs twice: a retry gets the first one's run",
        }
        shell = _ONE_SHELL if caller.session_name else _NEW_SHELL
        description = _DESCRIPTION.format(wait=wait, most=options.max_output, shell=shell)
        from nacre.contracts import nacre_job
        from nacre.contracts.shapes import NACRE

        schema = nacre_job.waiting(object_schema(Bash, told), options.max_wait)
        bash = ToolSpec(name="bash", description=description, schema=schema, shape=NACRE)
        job = nacre_job.spec(wait, options.max_wait, options.max_output, options.grace)
        return (bash, job)

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool == "job":
            from nacre.contracts import nacre_job  # a program that only runs needs no words

            options = self.options
            return nacre_job.admitted(
                arguments, caller, self._wait, options.max_output, options.grace
            )
        if tool != "bash":
            raise Refused(UnknownTool(tool=tool, known=("bash", "job")))
        given = read_arguments(arguments, Bash)
        _check(given)
        session, caller = self._session(given.session or caller.session_name, caller)
        plan = self._given_plan(given, caller)
        wait, clamped = self._wait(given.wait)
        if session is not None:
            session = msgspec.structs.replace(session, apart=wait == 0)
            lane = session.key if wait else None
            plan = msgspec.structs.replace(plan, session=session, lane=lane)
        until = placed(given.until, plan.command.cwd, caller)
        ask = Run(
            plan=plan,
            patience=wait,
            until=until if wait else (),
            most=self.options.max_runs,
            request=_request(given, plan),
        )
        most = self.options.max_output if given.max_output is None else given.max_output
        said = Said(
            most=most,
            clamped=clamped,
            cwd=plan.command.cwd,
            script=plan.command.given,
            path=plan.command.extra.get(b"PATH") or caller.variable(b"PATH") or b"",
            run_of=caller.run_of,
            open_stdin=plan.stdin is not None,
            until=bool(until) and wait > 0,
            session="" if session is None else session.name,
        )
        return Admitted(ask=ask, steps=self.steps, said=said, caller=caller)

    def _session(self, name: str, caller: Caller) -> tuple[Session | None, Caller]:
        if not name:
            return None, caller
        made_of = (self.options.environment, self.options.allow)
        setup = caller.setup() if self.options.snapshot else ""
        return remembering(self.name, caller, name, whose=name, made_of=made_of, setup=setup)

    def _wait(self, asked: float | None) -> tuple[float, float | None]:
        """How long to wait; and, if the one who asks for us waits less than was asked, how long."""
        most = self.options.max_wait
        wait = self.options.wait if asked is None else asked
        return (wait, None) if wait <= most else (most, most if asked is not None else None)

    def _given_plan(self, given: Bash, caller: Caller) -> Plan:
        plan = self.plan(read_script(given.command), caller)
        command = msgspec.structs.replace(
            plan.command,
            cwd=_directory(given.cwd, caller),
            placed=given.cwd is not None,
            extra={
                read_bytes(name, "env"): read_bytes(value, f"env.{name}")
                for name, value in given.env.items()
            },
        )
        limits = plan.limits
        if given.timeout is not None:
            limits = msgspec.structs.replace(limits, timeout=given.timeout or None)
        fed = None if given.stdin is None else given.stdin.encode("utf-8", "surrogateescape")
        stdin = Held(first=fed or b"") if given.interactive else fed
        leave = AtExit.END if given.leave == "end" else AtExit.KEEP
        return msgspec.structs.replace(
            plan, command=command, limits=limits, stdin=stdin, leave=leave
        )

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(given=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout or None, grace=self.options.grace),
            keep=_KEEP,
            spill=SPILL,
        )

    def reply(self, answer: Answer, said: Any, findings: Sequence[AnyFinding]) -> Reply:
        if isinstance(answer, Listing):
            from nacre.contracts import nacre_job_words

            return nacre_job_words.replied(answer, said)
        from nacre.contracts import nacre_words

        return nacre_words.replied(answer, said, findings)

    def refused(self, refusal: AnyRefusal) -> Reply:
        from nacre.contracts import nacre_words

        return nacre_words.refused(refusal)


def make(options: Mapping[str, Any]) -> Nacre:
    return Nacre(read_options(options, Options))


def _check(given: Bash) -> None:
    """Raises Refused for what does not go together, or cannot be had."""
    if given.pty and given.interactive:
        raise bad("pty and interactive do not go together: a terminal is interactive; choose one")
    if given.pty:
        raise Refused(_NO_TERMINALS)
    if given.session is not None:
        try:
            session_name(given.session)
        except ValueError as error:
            raise bad(f"session: {error}") from None
    name = given.request_id
    if name is not None and not 0 < len(name) <= _LONGEST_NAME:
        raise bad(f"request_id must have 1 to {_LONGEST_NAME} characters, not {{}}", len(name))
    try:
        (given.stdin or "").encode("utf-8", "surrogateescape")
        (name or "").encode()
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise bad(f"stdin or request_id contains {odd!r}, which is no character") from None


def _directory(given: str | None, caller: Caller) -> bytes:
    if given is None:
        return caller.cwd
    found = directory_of(given, caller)
    if found is None:
        raise bad("cwd {} leads nowhere: there is no home directory; give a whole path", given)
    return found


def _request(given: Bash, plan: Plan) -> Request | None:
    """What makes the plan counts; not how long the call waits, nor how much it shows."""
    if given.request_id is None:
        return None
    command = plan.command
    made = (
        command.given,
        command.cwd,
        sorted(command.extra.items()),
        plan.limits.timeout,
        plan.stdin,
        plan.leave,
        None if plan.session is None else plan.session.key,
    )
    return Request(id=given.request_id, digest=digest(msgspec.msgpack.encode(made), 16))
