"""The `pi` contract: a persistent shell per session, and background jobs.

This module converts the arguments of pi's tool `bash` to a request, and the result to a reply. A
call of pi's `bash` passes these checks in order: names of environment variables, a leading `cd`,
the argument `async`, interception (a better tool exists), internal URLs, directory, safety rules,
co-author trailer, environment. A reply of pi's `bash` contains the end of the output, notices, the
wall time and the command's ending. Long output can be read completely as an artifact
(`artifact://N`). The module `contracts.pi.jobs` implements pi's tool `job`, which manages
background jobs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from nacre.bash.analyze import analyze
from nacre.contracts.arguments import object_schema, read_arguments, read_bytes, read_script
from nacre.contracts.contract import Admitted, Reply, ToolSpec, reply_to_pi
from nacre.contracts.option_reader import read_options
from nacre.contracts.phrases import (
    SPILL,
    bad_directory_text,
    incomplete_note,
    leftover_lines,
    session_notes,
)
from nacre.contracts.pi import jobs as job_tool
from nacre.contracts.pi import user_command
from nacre.contracts.pi.options import LONGEST, SHORTEST, Options
from nacre.contracts.pi.reply import (
    LIMIT,
    ReplyContext,
    ShownOutput,
    build_details,
    cut_output,
    ending_line,
    finding_notices,
    wall_time_line,
)
from nacre.contracts.session_key import select_session
from nacre.contracts.shared_options import resolve_cwd, safety_steps, trailer_steps
from nacre.hints.progress_lines import drop_progress
from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding, LinesLimited
from nacre.model.outcome import NotStarted, Outcome
from nacre.model.plan import BASH, Command, Keep, Limits, Plan, Session, Streams
from nacre.model.refusals import (
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
from nacre.model.requests import Listing, Result, Running, StartRun
from nacre.prepare import interception
from nacre.prepare.command_prefix import prefix_step
from nacre.prepare.decide import Step, refuse_step
from nacre.prepare.directory import check_directory
from nacre.prepare.environment import PI_NON_INTERACTIVE, check_variable_names, environment_step
from nacre.prepare.head_tail import limit_lines
from nacre.prepare.internal_urls import internal_urls_step
from nacre.prepare.leading_cd import lift_leading_cd
from nacre.prepare.terminal_needs import note_terminal_needs

_URL: Final = re.compile(r"[a-z]+://")

_ASYNC_OFF: Final = BadArguments(
    problem="Async bash execution is disabled. Leave async out, or have it enabled (option async)."
)
_NO_JOBS: Final = "Async job manager unavailable for this session."

_DESCRIPTION: Final = """\
Execute a shell command in the session workspace. stdout and stderr come back as one, in order.
Commands share one shell that remembers {remembers}. {starts} At its timeout a command is stopped; \
you get the output so far. Of long output you see the last {limit}; all of it is in artifact://N, \
which stands for a file in further commands."""


_REMEMBERS: Final = "variables, functions, aliases and options"
_CWD_PERSISTS: Final = "cwd and env set the directory and variables of one command only."
_CWD_FIXED: Final = (
    "Each command starts in the session workspace: give cwd, or a leading cd, for another "
    "directory."
)


class Bash(Struct, frozen=True, kw_only=True):
    """Arguments of pi's tool `bash`, including arguments that are accepted only if an option
    enables them."""

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
    event_interval = 0.05
    has_sessions = True
    to_json = staticmethod(reply_to_pi)

    def __init__(self, options: Options, *, most: float | None = None) -> None:
        """`most` is the maximum number of seconds that a tool call may block; None means no
        maximum."""
        self.options = options
        self._most = most
        self.rules = options.interception()
        self._shell = _find_shell(options.shell)
        self._first: tuple[Step, ...] = (check_variable_names, lift_leading_cd)
        # Checks that also apply to a command of the user, which runs as given.
        self._checks: tuple[Step, ...] = (
            check_directory,
            *safety_steps(options),
            *trailer_steps(options),
            environment_step(options.environment, PI_NON_INTERACTIVE, options.allow),
            note_terminal_needs,
            *((prefix_step(options.prefix),) if options.prefix else ()),
        )
        self.steps: tuple[Step, ...] = (
            *self._first,
            *((limit_lines,) if options.head_tail else ()),
            interception.interception_step(self.rules, options.intercept),
            internal_urls_step(),
            *self._checks,
        )

    def with_max_wait(self, seconds: float) -> "Pi":
        wait = min(self.options.poll_wait, seconds)
        return Pi(msgspec.structs.replace(self.options, poll_wait=wait), most=seconds)

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        del caller  # `caller` is not used: every caller gets the same tool declarations
        told = {
            "command": "Shell command to execute",
            "env": "Extra environment variables",
            "timeout": f"Seconds, {SHORTEST} to {LONGEST}; default {self.options.timeout:g}",
            "cwd": "Directory to run in; a relative path starts at the session's directory"
            if self.options.persist_cwd
            else "Directory to run in; a relative path starts at the session workspace",
            "pty": "Run on a terminal, where the caller has a screen for it",
        }
        if self.options.async_:
            told["async"] = "Return at once, with the id of a background job"
        if self.options.head_tail:
            told["head"] = "Show only the first lines"
            told["tail"] = "Show only the last lines (of those that head leaves)"
        description = _DESCRIPTION.format(
            limit=f"{LIMIT // 1024} KB",
            remembers=_REMEMBERS + (", and the directory" if self.options.persist_cwd else ""),
            starts=_CWD_PERSISTS if self.options.persist_cwd else _CWD_FIXED,
        )
        schema = object_schema(Bash, told)
        # Lazy import: the schema of pi's replies is needed only for the tool declarations that a
        # model gets.
        from nacre.contracts.reply_schemas import PI_REPLY

        bash = ToolSpec(name="bash", description=description, schema=schema, reply_schema=PI_REPLY)
        return (bash, job_tool.build_spec(self.options.poll_wait)) if self._has_jobs else (bash,)

    @property
    def _has_jobs(self) -> bool:
        options = self.options
        return options.async_ or options.auto_background is not None or self._most is not None

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool == "job" and self._has_jobs:
            options = self.options
            jobs, asked = job_tool.admit_job(arguments, options.poll_wait, options.grace)
            return Admitted(request=jobs, reply_context=asked)
        if tool != "bash":
            known = ("bash", "job") if self._has_jobs else ("bash",)
            raise Refused(UnknownTool(tool=tool, known=known))
        hidden = () if self.options.head_tail else ("head", "tail")
        given = read_arguments(arguments, Bash, without=hidden)
        timeout = self._clamp_timeout(given.timeout)
        session, caller = self._select_session(caller)
        plan = self._build_plan(given, timeout, caller)
        shared = self.options.concurrency == "shared" or given.async_
        lane = None if shared else session.key
        if given.async_:
            session = msgspec.structs.replace(session, read_only=True)
        plan = msgspec.structs.replace(plan, lane=lane, session=session)
        reply_context = ReplyContext(
            script=plan.command.original,
            timeout=timeout,
            requested=given.timeout,
            head=given.head,
            tail=given.tail,
            notices=tuple(_build_notices(given, timeout, caller)),
        )
        patience = 0.0 if given.async_ else self._wait_limit(timeout)
        request = StartRun(plan=plan, wait_limit=patience, job=True, max_live=self.options.max_jobs)
        off = given.async_ and not self.options.async_
        steps = (*self._first, refuse_step(_ASYNC_OFF)) if off else self.steps
        return Admitted(request=request, steps=steps, reply_context=reply_context, caller=caller)

    def admit_user_command(self, arguments: object, caller: Caller) -> Admitted:
        given = user_command.read_user_command(arguments)
        session, caller = self._select_session(caller, "own")
        plan = self._build_plan(given, given.timeout or 0.0, caller)
        plan = msgspec.structs.replace(plan, session=session)
        steps = (check_variable_names, *self._checks)
        return Admitted(
            request=StartRun(plan=plan),
            steps=steps,
            reply_context=user_command.UserCommandContext(),
            caller=caller,
        )

    def _select_session(self, caller: Caller, kind: str = "") -> tuple[Session, Caller]:
        options = self.options
        setup = caller.setup_signature() if options.snapshot else ""
        made_of = (
            kind,
            # The session key contains only whether the user's shell startup files are loaded. The
            # content of the startup files is not in the session key, because a session keeps the
            # definitions with which it started.
            options.snapshot,
            options.prefix,
            *((self._shell,) if options.shell else ()),
            options.environment,
            options.allow,
            # The key of a named session omits environment variables inherited from the host
            # process, so that a call from another terminal finds the same session.
            () if caller.session_name and caller.inherits_env else caller.variables,
        )
        return select_session(
            self.name,
            caller,
            caller.session_name,
            owner=caller.session,
            shell_kind=made_of,
            setup=setup,
            fixed_cwd=not options.persist_cwd,
        )

    def _build_plan(
        self, given: Bash | user_command.Arguments, timeout: float, caller: Caller
    ) -> Plan:
        plan = self.plan(read_script(given.command), caller)
        command = msgspec.structs.replace(
            plan.command,
            cwd=_resolve_cwd(given.cwd, caller),
            cwd_given=given.cwd is not None,
            call_env={read_bytes(k, "env"): _resolve_value(k, v) for k, v in given.env.items()},
        )
        limits = msgspec.structs.replace(plan.limits, timeout=timeout or None)
        return msgspec.structs.replace(plan, command=command, limits=limits)

    def _wait_limit(self, timeout: float) -> float | None:
        """Return the seconds after which a running call becomes a background job; None means
        never."""
        wait, most = self.options.auto_background, self._most
        if wait is not None:
            wait = wait if not timeout else max(0.0, min(wait, timeout - 1))
            return wait if most is None else min(wait, most)
        # A command never needs to become a background job if its timeout plus the grace (seconds
        # between TERM and KILL) is within the maximum wait, because then the command ends in time.
        over = most is None or (timeout and timeout + self.options.grace <= most)
        return None if over else most

    def _clamp_timeout(self, asked: float | None) -> float:
        if asked is None:
            return self.options.timeout
        if asked == 0 and self.options.timeout_zero == "none":
            return 0.0
        return min(max(asked, SHORTEST), LONGEST)

    def plan(self, script: bytes, caller: Caller) -> Plan:
        head = LIMIT if self.options.head_tail else 0
        return Plan(
            command=Command(
                original=script, script=_trim_script(script), cwd=caller.cwd, env=caller.env
            ),
            shell=self._shell,
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout, grace=self.options.grace),
            keep=Keep(whole=LIMIT, head=head, tail=LIMIT),
            spill=SPILL,
        )

    def reply(self, result: Result, reply_context: Any, findings: Sequence[AnyFinding]) -> Reply:
        match result:
            case Listing():
                return job_tool.build_jobs_reply(result, reply_context)
            case Running():
                return job_tool.build_started_reply(result, reply_context, findings)
            case Outcome():
                return self._reply_to_end(result, reply_context, findings)

    def _reply_to_end(
        self,
        answer: Outcome,
        reply_context: ReplyContext | user_command.UserCommandContext,
        findings: Sequence[AnyFinding],
    ) -> Reply:
        if isinstance(reply_context, user_command.UserCommandContext) and user_command.has_result(
            answer
        ):
            return user_command.build_reply(answer, findings)
        if isinstance(answer.ending, NotStarted):
            return self.reply_to_refusal(answer.ending.why)
        assert isinstance(reply_context, ReplyContext)
        part = cut_output(answer, *_line_limits(reply_context, findings))
        text, footer = self._minimize_output(answer, reply_context, part)
        ends = ending_line(answer)
        notes = [
            *footer,
            *([part.notice] if part.notice else incomplete_note(answer.output)),
            *reply_context.notices,
            *finding_notices(findings),
            *leftover_lines(answer.left_running),
            *(
                [f"[{state}]"]
                if (state := session_notes(answer, moved=answer.session_moved))
                else []
            ),
            wall_time_line(answer.seconds),
            *([ends] if ends else []),
        ]
        text = text or "(no output)"
        text += "\n" if text.endswith("\n") else "\n\n"
        return Reply(
            text=text + "\n".join(notes),
            is_error=ends is not None,
            details=build_details(answer, reply_context, part, findings),
        )

    def _minimize_output(
        self, answer: Outcome, reply_context: ReplyContext, part: ShownOutput
    ) -> tuple[str, list[str]]:
        """Return the output text without progress lines, and a list with one note that names the
        artifact with the complete output; if no progress line was removed, return the unchanged
        text and an empty list."""
        if not (self.options.minimizer and answer.stored):
            return part.text, []
        short = drop_progress(analyze(reply_context.script), part.text)
        if short is None:
            return part.text, []
        return short, [f"[raw output: artifact://{answer.run.removeprefix('r')}]"]

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply:
        details: dict[str, Any] = {}
        match refusal:
            case Intercepted(message=message, command=command, tool=tool, arguments=arguments):
                text = f"Blocked: {message}\n\nOriginal command: {command}"
                details = {"suggestion": {"tool": tool, "arguments": arguments}}
            case BadVariable(name=name):
                text = f"Invalid bash env name: {name}"
            case BadDirectory():
                text = bad_directory_text(refusal)
            case NoBackground():
                text = _NO_JOBS
            case CalledOff():
                text, details = "Command aborted", {"aborted": True}
            case _:
                text = str(refusal)
        return Reply(text=text, is_error=True, details=details)


def make(options: Mapping[str, Any]) -> Pi:
    return Pi(read_options(options, Options))


def _find_shell(given: str) -> bytes:
    """Return the path of the shell for all commands. Raises ValueError."""
    if not given:
        return BASH
    # Lazy import: only a chosen shell is checked, and importing `subprocess` takes long.
    from nacre.prepare.shell_check import find_shell

    return find_shell(given)


def _line_limits(
    reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> tuple[int | None, int | None]:
    """Return how many lines of the output the reply shows from the head and from the tail. The
    arguments `head` and `tail` of a call override a `| head` or `| tail` at the end of its
    command."""
    head, tail = reply_context.head, reply_context.tail
    for finding in findings:
        if isinstance(finding, LinesLimited):
            head = finding.head if head is None else head
            tail = finding.tail if tail is None else tail
    return head, tail


def _trim_script(script: bytes) -> bytes:
    """Return the script without whitespace at its ends, except for a last blank that a backslash
    escapes."""
    script = script.lstrip()
    short = script.rstrip()
    backslashes = len(short) - len(short.rstrip(b"\\"))
    return script[: len(short) + 1] if backslashes % 2 else short


def _resolve_value(name: str, value: str) -> bytes:
    return read_bytes(value, f"env.{name}")


def _resolve_cwd(given: str | None, caller: Caller) -> bytes:
    if given is None:
        return caller.cwd
    if _URL.match(given):
        # If `cwd` is an internal URL such as `local://x`, a later preparation step converts the URL
        # to a path.
        return read_bytes(given, "cwd")
    found = resolve_cwd(given, caller)
    return caller.cwd if found is None else found


def _build_notices(given: Bash, timeout: float, caller: Caller) -> Iterator[str]:
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
