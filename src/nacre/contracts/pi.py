"""pi: env, timeout, cwd, interception, internal URLs, the end of the output and all as artifact.

Order of decisions: names of variables, leading cd, async, interception, internal URLs, directory,
timeout. Then it runs; the reply is the output, notices, the wall time, and how it ended.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from nacre.asks import Answer, Listing, Run, Running
from nacre.caller import Caller
from nacre.contracts import pi_bang, pi_jobs
from nacre.contracts.arguments import object_schema, read_arguments, read_bytes, read_script
from nacre.contracts.contract import Admitted, Reply, ToolSpec, printed
from nacre.contracts.options import read_options
from nacre.contracts.pi_options import LONGEST, SHORTEST, Options
from nacre.contracts.pi_words import LIMIT, Said, Shown, details, ending, notices, shown
from nacre.contracts.sessions import remembering
from nacre.contracts.shared import checked, directory_of, signed
from nacre.contracts.words import SPILL, bad_directory, left_running, remembered
from nacre.findings import AnyFinding, Limited
from nacre.hindsight.minimize import minimized
from nacre.outcome import NotStarted, Outcome
from nacre.plan import Command, Keep, Limits, Plan, Session, Streams
from nacre.prepare import interception
from nacre.prepare.decide import Step, refusing
from nacre.prepare.directory import directory
from nacre.prepare.environment import NON_INTERACTIVE, environment, variable_names
from nacre.prepare.lift import lift
from nacre.prepare.limits import lines
from nacre.prepare.links import links
from nacre.prepare.prefix import prefixed
from nacre.prepare.terminal import terminal_needs
from nacre.refusals import (
    AnyRefusal,
    BadArguments,
    BadDirectory,
    BadVariable,
    CalledOff,
    Intercepted,
    NoBackground,
    Refused,
    UnknownTool,
)
from nacre.script.read import read

_URL: Final = re.compile(r"[a-z]+://")

_ASYNC_OFF: Final = BadArguments(
    problem="Async bash execution is disabled. Leave async out, or have it enabled (option async)."
)
_NO_JOBS: Final = "Async job manager unavailable for this session."

_DESCRIPTION: Final = """\
Execute a shell command in the session workspace. stdout and stderr come back as one, in order.
Commands share one shell that remembers: directory, variables, functions, options. For one command \
alone, give cwd and env. At its timeout a command is stopped; \
you get the output so far. Of long output you see the last {limit}; all of it is in artifact://N, \
which stands for a file in further commands."""


class Bash(Struct, frozen=True, kw_only=True):
    """The arguments, in all editions."""

    command: str
    env: dict[str, str] = {}
    timeout: float | None = None
    cwd: str | None = None
    pty: bool = False
    async_: bool = msgspec.field(default=False, name="async")
    head: int | None = None
    tail: int | None = None


class Pi:
    name = "pi"
    every = 0.05
    remembers = True
    printed = staticmethod(printed)

    def __init__(self, options: Options, *, most: float | None = None) -> None:
        """`most`: seconds that whoever asks for us can wait."""
        self.options = options
        self._most = most
        self.rules = options.interception()
        self._first: tuple[Step, ...] = (variable_names, lift)
        self._rest: tuple[Step, ...] = (
            links(),
            directory,
            *checked(options),
            *signed(options),
            environment(options.environment, NON_INTERACTIVE, options.allow),
            terminal_needs,
            *((prefixed(options.prefix),) if options.prefix else ()),
        )
        self.steps: tuple[Step, ...] = (
            *self._first,
            *((lines,) if options.head_tail else ()),
            interception.interception(self.rules, options.intercept),
            *self._rest,
        )

    def within(self, seconds: float) -> "Pi":
        wait = min(self.options.poll_wait, seconds)
        return Pi(msgspec.structs.replace(self.options, poll_wait=wait), most=seconds)

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        del caller  # the same for everybody
        told = {
            "command": "Shell command to execute",
            "env": "Extra environment variables",
            "timeout": f"Seconds, {SHORTEST} to {LONGEST}; default {self.options.timeout:g}",
            "cwd": "Directory to run in; relative to the session's",
            "pty": "Run on a terminal, where the caller has a screen for it",
        }
        if self.options.async_:
            told["async"] = "Return at once, with the id of a background job"
        if self.options.head_tail:
            told["head"] = "Show only the first lines"
            told["tail"] = "Show only the last lines (of those that head leaves)"
        description = _DESCRIPTION.format(limit=f"{LIMIT // 1024} KB")
        schema = object_schema(Bash, told)
        from nacre.contracts.shapes import PI  # who only calls needs no schemas

        bash = ToolSpec(name="bash", description=description, schema=schema, shape=PI)
        return (bash, pi_jobs.spec(self.options.poll_wait)) if self._has_jobs else (bash,)

    @property
    def _has_jobs(self) -> bool:
        options = self.options
        return options.async_ or options.auto_background is not None or self._most is not None

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool == "job" and self._has_jobs:
            options = self.options
            jobs, asked = pi_jobs.admitted(arguments, options.poll_wait, options.grace)
            return Admitted(ask=jobs, said=asked)
        if tool != "bash":
            known = ("bash", "job") if self._has_jobs else ("bash",)
            raise Refused(UnknownTool(tool=tool, known=known))
        hidden = () if self.options.head_tail else ("head", "tail")
        given = read_arguments(arguments, Bash, without=hidden)
        timeout = self._timeout(given.timeout)
        session, caller = self._session(caller)
        plan = self._given_plan(given, timeout, caller)
        shared = self.options.concurrency == "shared" or given.async_
        lane = None if shared else session.key
        if given.async_:
            session = msgspec.structs.replace(session, apart=True)
        plan = msgspec.structs.replace(plan, lane=lane, session=session)
        said = Said(
            script=plan.command.given,
            timeout=timeout,
            requested=given.timeout,
            head=given.head,
            tail=given.tail,
            notices=tuple(_notices(given, timeout, caller)),
        )
        patience = 0.0 if given.async_ else self._patience(timeout)
        ask = Run(plan=plan, patience=patience, job=True, most=self.options.max_jobs)
        off = given.async_ and not self.options.async_
        steps = (*self._first, refusing(_ASYNC_OFF)) if off else self.steps
        return Admitted(ask=ask, steps=steps, said=said, caller=caller)

    def admit_own(self, arguments: object, caller: Caller) -> Admitted:
        given = pi_bang.given(arguments)
        session, caller = self._session(caller, "own")
        plan = self._given_plan(given, given.timeout or 0.0, caller)
        plan = msgspec.structs.replace(plan, session=session)
        steps = (variable_names, *self._rest)
        return Admitted(ask=Run(plan=plan), steps=steps, said=pi_bang.Said(), caller=caller)

    def _session(self, caller: Caller, kind: str = "") -> tuple[Session, Caller]:
        options = self.options
        setup = caller.setup() if options.snapshot else ""
        made_of = (
            kind,
            options.snapshot,  # whether; what it was when the session began stays
            options.prefix,
            options.environment,
            options.allow,
            # One with a name shall be found again, also from another terminal.
            () if caller.session_name and caller.inherits else caller.variables,
        )
        return remembering(
            self.name,
            caller,
            caller.session_name,
            whose=caller.session,
            made_of=made_of,
            setup=setup,
        )

    def _given_plan(self, given: Bash | pi_bang.Arguments, timeout: float, caller: Caller) -> Plan:
        plan = self.plan(read_script(given.command), caller)
        command = msgspec.structs.replace(
            plan.command,
            cwd=_directory(given.cwd, caller),
            placed=given.cwd is not None,
            extra={read_bytes(k, "env"): _value(k, v) for k, v in given.env.items()},
        )
        limits = msgspec.structs.replace(plan.limits, timeout=timeout or None)
        return msgspec.structs.replace(plan, command=command, limits=limits)

    def _patience(self, timeout: float) -> float | None:
        """How long a call is waited for before it becomes a job."""
        wait, most = self.options.auto_background, self._most
        if wait is not None:
            wait = wait if not timeout else max(0.0, min(wait, timeout - 1))
            return wait if most is None else min(wait, most)
        # One that has ended by then need not be handed back.
        over = most is None or (timeout and timeout + self.options.grace <= most)
        return None if over else most

    def _timeout(self, asked: float | None) -> float:
        if asked is None:
            return self.options.timeout
        if asked == 0 and self.options.timeout_zero == "none":
            return 0.0
        return min(max(asked, SHORTEST), LONGEST)

    def plan(self, script: bytes, caller: Caller) -> Plan:
        head = LIMIT if self.options.head_tail else 0
        return Plan(
            command=Command(given=script, script=_trimmed(script), cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout, grace=self.options.grace),
            keep=Keep(whole=LIMIT, head=head, tail=LIMIT),
            spill=SPILL,
        )

    def reply(self, answer: Answer, said: Any, findings: Sequence[AnyFinding]) -> Reply:
        match answer:
            case Listing():
                return pi_jobs.listed(answer, said)
            case Running():
                return pi_jobs.started(answer, said)
            case Outcome():
                return self._ended(answer, said, findings)

    def _ended(
        self, answer: Outcome, said: Said | pi_bang.Said, findings: Sequence[AnyFinding]
    ) -> Reply:
        if isinstance(said, pi_bang.Said) and pi_bang.has_result(answer):
            return pi_bang.replied(answer)
        if isinstance(answer.ending, NotStarted):
            return self.refused(answer.ending.why)
        assert isinstance(said, Said)
        part = shown(answer, *_limits(said, findings))
        text, footer = self._minimized(answer, said, part)
        ends = ending(answer)
        notes = [
            *footer,
            *([part.notice] if part.notice else []),
            *said.notices,
            *notices(findings),
            *map(left_running, answer.left_running),
            *([f"[{state}]"] if (state := remembered(answer)) else []),
            f"Wall time: {answer.seconds:.2f} seconds",
            *([ends] if ends else []),
        ]
        text = text or "(no output)"
        text += "\n" if text.endswith("\n") else "\n\n"
        return Reply(
            text=text + "\n".join(notes),
            is_error=ends is not None,
            details=details(answer, said, part, findings),
        )

    def _minimized(self, answer: Outcome, said: Said, part: Shown) -> tuple[str, list[str]]:
        """The text, perhaps shortened, and the line that says where all of it is."""
        if not (self.options.minimizer and answer.stored):
            return part.text, []
        short = minimized(read(said.script), part.text)
        if short is None:
            return part.text, []
        return short, [f"[raw output: artifact://{answer.run.removeprefix('r')}]"]

    def refused(self, refusal: AnyRefusal) -> Reply:
        said: dict[str, Any] = {}
        match refusal:
            case Intercepted(message=message, command=command, tool=tool, arguments=arguments):
                text = f"Blocked: {message}\n\nOriginal command: {command}"
                said = {"suggestion": {"tool": tool, "arguments": arguments}}
            case BadVariable(name=name):
                text = f"Invalid bash env name: {name}"
            case BadDirectory():
                text = bad_directory(refusal)
            case NoBackground():
                text = _NO_JOBS
            case CalledOff():
                text, said = "Command aborted", {"aborted": True}
            case _:
                text = str(refusal)
        return Reply(text=text, is_error=True, details=said)


def make(options: Mapping[str, Any]) -> Pi:
    return Pi(read_options(options, Options))


def _limits(said: Said, findings: Sequence[AnyFinding]) -> tuple[int | None, int | None]:
    """How many lines from the front and from the end; what the call says wins."""
    head, tail = said.head, said.tail
    for finding in findings:
        if isinstance(finding, Limited):
            head = finding.head if head is None else head
            tail = finding.tail if tail is None else tail
    return head, tail


def _trimmed(script: bytes) -> bytes:
    """Without blanks around it; one that is escaped is no blank."""
    script = script.lstrip()
    short = script.rstrip()
    backslashes = len(short) - len(short.rstrip(b"\\"))
    return script[: len(short) + 1] if backslashes % 2 else short


def _value(name: str, value: str) -> bytes:
    return read_bytes(value, f"env.{name}")


def _directory(given: str | None, caller: Caller) -> bytes:
    if given is None:
        return caller.cwd
    if _URL.match(given):
        return read_bytes(given, "cwd")  # for the step that knows what it stands for
    found = directory_of(given, caller)
    return caller.cwd if found is None else found


def _notices(given: Bash, timeout: float, caller: Caller) -> Iterator[str]:
    asked = given.timeout
    if asked is not None and asked != timeout:
        yield (
            f"Timeout clamped to {timeout:g}s (requested {asked:.15g}s; "
            f"allowed range {SHORTEST}-{LONGEST}s)."
        )
    if given.pty:
        off = [n for n in ("NACRE_NO_PTY", "PI_NO_PTY") if caller.variable(n.encode()) == b"1"]
        why = f"{off[0]} is 1" if off else "this session has no screen"
        yield f"No terminal: {why}; the command ran piped."
