"""The `nacre` contract, a dialect of the tool in which every command is a run with an id and two
time limits.

The argument `wait` limits how long a call blocks, and `timeout` limits how long a command runs.
This module converts the arguments of the tool `bash` to a request to the engine. The module
`contracts.nacre.reply` writes the replies, and `contracts.nacre.job` implements the tool `job`.

A call is checked in this order before its command runs: variable names, directory, safety rules,
co-author trailer, internal URLs, environment, need for a terminal.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from nacre.contracts.arguments import (
    InvalidValue,
    Kind,
    bad_arguments,
    check_name,
    count_kind,
    object_schema,
    read_arguments,
    read_bytes,
    read_script,
    seconds_kind,
)
from nacre.contracts.contract import Admitted, Reply, ToolSpec, no_user_command, reply_to_json
from nacre.contracts.nacre.argument_aliases import looks_like_milliseconds, translate_bash
from nacre.contracts.nacre.reply_context import HAS_TERMINALS, ReplyContext
from nacre.contracts.nacre.until import MAX_WAIT, UNTIL
from nacre.contracts.option_reader import LESS, OFF, Seconds, read_options
from nacre.contracts.phrases import SPILL
from nacre.contracts.session_key import select_session
from nacre.contracts.shared_options import (
    Safety,
    SharedOptions,
    resolve_cwd,
    safety_steps,
    trailer_steps,
)
from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.ids import digest
from nacre.model.plan import (
    KIB,
    MIB,
    Command,
    Keep,
    LeftoverPolicy,
    Limits,
    OpenStdin,
    Plan,
    Session,
    Streams,
)
from nacre.model.refusals import AnyRefusal, Refused, Unavailable, UnknownTool
from nacre.model.requests import IdempotencyKey, Listing, Result, StartRun
from nacre.model.wait_conditions import NO_CONDITIONS, Conditions
from nacre.prepare.decide import Step
from nacre.prepare.directory import check_directory
from nacre.prepare.environment import (
    EDITORS,
    INTERACTIVE,
    NON_INTERACTIVE,
    check_variable_names,
    dropped_names,
    environment_step,
    secret_names,
)
from nacre.prepare.internal_urls import internal_urls_step
from nacre.prepare.pipeline_stages import request_pipeline_reports
from nacre.prepare.terminal_needs import note_terminal_needs
from nacre.prepare.until_files import resolve_files
from nacre.text.clean import decode

MAX_OUTPUT: Final = 200_000
_MAX_NAME: Final = 200  # maximum characters of a `request_id`
_KEEP: Final = Keep(whole=2 * MIB, head=512 * KIB, tail=1536 * KIB)
_NO_TERMINALS: Final = Unavailable(
    problem="terminals are not available yet: a command has pipes; leave pty out, and use "
    "interactive to answer its questions"
)
_MAX_TIMEOUT: Final = 86_400  # maximum seconds of the argument `timeout`, except 0 for no timeout
# Seconds beyond the timeout and the grace for which a call waits that gives only `timeout`, so that
# the reply reports the timeout instead of a running command.
_TIMEOUT_MARGIN: Final = 1.0
# Seconds for which a detached command keeps its session, so that quick commands of a session run
# one after another, even if no call waits for them.
_SESSION_HOLD: Final = 0.5
# Arguments that are refused with an explanation, and that no message offers.
_UNDECLARED: Final = () if HAS_TERMINALS else ("pty",)
_RUN_ID: Final = re.compile(r"r\d+")

_DESCRIPTION: Final = """\
Run a bash script. The reply is its output (stdout and stderr), then lines in brackets about the \
run; no such line means exit code 0.
{shell}
After `wait` seconds (default {wait:g}) you get an id, like r7, for the tool job; the command \
goes on. `wait` is NOT a timeout; `timeout` kills, also in the background.
Start servers without &, with `until` or wait: 0. Never sleep to wait.
stdin is empty. interactive: true returns when a program waits for input; job write answers.
Variables that look like secrets are withheld from commands.
Output over {most:,} bytes is cut; job read shows the rest."""


_NEW_SHELL_TEXT: Final = """\
Each call is a new shell: cd, export and functions do not last; use cwd, env or a session."""
_SESSION_TEXT: Final = """\
Calls share one shell that keeps directory, variables, functions and options, one call after \
another; a session is another one."""


def _convert_pty(value: Any) -> bool:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in ("rows", "cols"):
                raise InvalidValue("", "true, or an object with rows and cols", value)
            count_kind(1, 10_000).convert(each)
        return True
    if not isinstance(value, bool):
        raise ValueError
    return value


_PTY: Final = Kind(
    description="true, or an object with rows and cols",
    schema={"type": "boolean"},
    convert=_convert_pty,
)
_TIMEOUT: Final = msgspec.structs.replace(
    seconds_kind(0, _MAX_TIMEOUT),
    description=f"a number of seconds from 0 to {_MAX_TIMEOUT} (seconds, not milliseconds)",
)
Wait = Annotated[float | None, seconds_kind(0, MAX_WAIT)]
MostOutput = Annotated[int | None, count_kind(0, MAX_OUTPUT)]


class Bash(Struct, frozen=True, kw_only=True):
    command: str
    wait: Wait = None
    timeout: Annotated[float | None, _TIMEOUT] = None
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | None = None
    interactive: bool = False
    pty: Annotated[bool, _PTY] = False
    session: str | None = None
    until: Annotated[Conditions, UNTIL] = NO_CONDITIONS
    max_output: MostOutput = None
    leave: Literal["keep", "end"] | None = None
    request_id: str | None = None


class Options(SharedOptions, frozen=True, kw_only=True):
    safety: Safety = ("disk",)
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT, extra=LESS)] = 30.0
    max_wait: Annotated[float, Meta(ge=0, le=MAX_WAIT, extra=LESS)] = MAX_WAIT
    # Maximum seconds that a command may run; 0 means no limit.
    timeout: Annotated[float, Meta(ge=0, extra={"tighter": "limit"})] = 3600.0
    grace: Seconds = 5.0
    max_output: Annotated[int, Meta(ge=0, le=MAX_OUTPUT, extra=LESS)] = 20_000
    max_runs: Annotated[int, Meta(ge=1, extra=LESS)] = 100
    # Whether a new session first loads what the user's shell startup files define.
    snapshot: Annotated[bool, Meta(extra=OFF)] = False


class Nacre:
    name = "nacre"
    event_interval = 0.05
    has_sessions = True
    to_json = staticmethod(reply_to_json)
    admit_user_command = staticmethod(no_user_command)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.steps: tuple[Step, ...] = (
            check_variable_names,
            check_directory,
            *safety_steps(options),
            *trailer_steps(options),
            internal_urls_step(("artifact",)),
            environment_step(
                options.environment,
                {**NON_INTERACTIVE, **EDITORS},
                options.allow,
                with_input={**INTERACTIVE, **EDITORS},
            ),
            note_terminal_needs,
            request_pipeline_reports,
        )

    def with_max_wait(self, seconds: float) -> "Nacre":
        most = min(self.options.max_wait, seconds)
        return Nacre(msgspec.structs.replace(self.options, max_wait=most))

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        options = self.options
        wait = self._effective_wait(None)[0]
        limit = f"{options.timeout:g}" if options.timeout else "none"
        descriptions = {
            "command": "Bash script",
            "wait": f"Seconds this call waits, 0 to {options.max_wait:g}; default {wait:g}, or "
            "timeout if given. NOT a kill timeout: the command goes on and you get its id",
            "timeout": f"Seconds until the command is killed. Default {limit}, 0: none",
            "cwd": "Directory of this call",
            "env": "Variables of this call, literal: $X is not expanded",
            "stdin": "Text for stdin, then end of file",
            "interactive": "Keep stdin open for job write",
            "session": "Name of a shell that keeps its state; created on first use; its calls run "
            "one after another, unless one outlives wait",
            "until": "Conditions; the call returns when one is met; the run goes on. Also a list",
            "max_output": f"Bytes of output in the reply, default {options.max_output}",
            "leave": "Processes left running: keep (default) or end them",
            "request_id": "A retry with the same id gets the first call's run",
        }
        shell = _SESSION_TEXT if caller.session_name else _NEW_SHELL_TEXT
        description = _DESCRIPTION.format(wait=wait, most=options.max_output, shell=shell)
        from nacre.contracts.nacre import job as job_tool
        from nacre.contracts.reply_schemas import NACRE_REPLY

        schema = job_tool.with_longest_wait(object_schema(Bash, descriptions), options.max_wait)
        bash = ToolSpec(
            name="bash", description=description, schema=schema, reply_schema=NACRE_REPLY
        )
        job = job_tool.build_spec(wait, options.max_wait, options.max_output, options.grace)
        return (bash, job)

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool == "job":
            from nacre.contracts.nacre import (
                job as job_tool,  # lazy import: needed only for the tool `job`
            )

            options = self.options
            return job_tool.admit_job(
                arguments,
                caller,
                self._effective_wait,
                options.max_output,
                options.grace,
                self._withheld,
            )
        if tool != "bash":
            raise Refused(UnknownTool(tool=tool, known=("bash", "job")))
        arguments, notes = translate_bash(arguments)
        given = read_arguments(arguments, Bash, undeclared=_UNDECLARED, lenient=True)
        _check_arguments(given)
        session, caller = self._select_session(given.session or caller.session_name, caller)
        plan = self._build_plan(given, caller)
        wait, clamped = self._wait_of_call(given)
        if session is not None:
            session = msgspec.structs.replace(session, hold=_SESSION_HOLD)
            plan = msgspec.structs.replace(plan, session=session, lane=session.key)
        until = resolve_files(given.until, plan.command.cwd, caller.home) if wait else NO_CONDITIONS
        if given.until and not wait:
            notes += ("until is not watched with wait: 0; give wait, or use action wait of job",)
        request = StartRun(
            plan=plan,
            wait_limit=wait,
            until=until,
            max_live=self.options.max_runs,
            idempotency_key=_build_idempotency_key(given, plan),
        )
        most = self.options.max_output if given.max_output is None else given.max_output
        reply_context = ReplyContext(
            max_bytes=most,
            page_bytes=self.options.max_output,
            wait_clamped_to=clamped,
            cwd=plan.command.cwd,
            script=plan.command.original,
            path=plan.command.call_env.get(b"PATH") or caller.variable(b"PATH") or b"",
            find_run=caller.find_run,
            read_output=caller.read_output,
            open_stdin=plan.stdin is not None,
            until=until,
            session="" if session is None else session.name,
            literal_env=_find_unexpanded(given.env),
            notes=notes,
        )
        return Admitted(
            request=request, steps=self.steps, reply_context=reply_context, caller=caller
        )

    def _withheld(self, caller: Caller) -> tuple[str, ...]:
        """Return the names of the variables that the commands of a caller do not get because they
        look like secrets."""
        options = self.options
        dropped = dropped_names(options.environment, options.allow, caller.env)
        return secret_names(map(decode, dropped))

    def _select_session(self, name: str, caller: Caller) -> tuple[Session | None, Caller]:
        if not name:
            return None, caller
        made_of = (self.options.environment, self.options.allow)
        setup = caller.setup_signature() if self.options.snapshot else ""
        return select_session(self.name, caller, name, owner=name, shell_kind=made_of, setup=setup)

    def _wait_of_call(self, given: Bash) -> tuple[float, float | None]:
        """Return the seconds that a call of the tool `bash` waits, and the maximum wait if the call
        asked for more. A call that gives only `timeout` waits until the timeout is over, unless
        the model probably meant milliseconds."""
        if given.wait is not None or not given.timeout or looks_like_milliseconds(given.timeout):
            return self._effective_wait(given.wait)
        wait = given.timeout + self.options.grace + _TIMEOUT_MARGIN
        return min(wait, self.options.max_wait), None

    def _effective_wait(self, asked: float | None) -> tuple[float, float | None]:
        """Return two values: the seconds that the call waits, and the maximum wait if the call
        asked for more than the maximum, else None."""
        most = self.options.max_wait
        wait = self.options.wait if asked is None else asked
        return (wait, None) if wait <= most else (most, most if asked is not None else None)

    def _build_plan(self, given: Bash, caller: Caller) -> Plan:
        plan = self.plan(read_script(given.command), caller)
        command = msgspec.structs.replace(
            plan.command,
            cwd=_resolve_cwd(given.cwd, caller),
            cwd_given=given.cwd is not None,
            call_env={
                read_bytes(name, "env"): read_bytes(value, f"env.{name}")
                for name, value in given.env.items()
            },
        )
        limits = plan.limits
        if given.timeout is not None:
            limits = msgspec.structs.replace(limits, timeout=given.timeout or None)
        fed = None if given.stdin is None else given.stdin.encode("utf-8", "surrogateescape")
        stdin = OpenStdin(initial=fed or b"") if given.interactive else fed
        leave = LeftoverPolicy.END if given.leave == "end" else LeftoverPolicy.KEEP
        return msgspec.structs.replace(
            plan, command=command, limits=limits, stdin=stdin, leftovers=leave
        )

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(original=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=Limits(timeout=self.options.timeout or None, grace=self.options.grace),
            keep=_KEEP,
            spill=SPILL,
        )

    def reply(self, result: Result, reply_context: Any, findings: Sequence[AnyFinding]) -> Reply:
        if isinstance(result, Listing):
            from nacre.contracts.nacre import job_reply

            reply = job_reply.build_job_reply(result, reply_context)
        else:
            from nacre.contracts.nacre import reply as reply_text

            reply = reply_text.build_reply(result, reply_context, findings)
        return _with_notes(reply, reply_context.notes) if reply_context.notes else reply

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply:
        from nacre.contracts.nacre import reply as reply_text

        return reply_text.build_refusal_reply(refusal)


def _with_notes(reply: Reply, notes: Sequence[str]) -> Reply:
    """Return a reply that also says which arguments of the call were translated."""
    body = reply.text if reply.text.endswith("\n") else f"{reply.text}\n"
    return msgspec.structs.replace(reply, text=f"{body}[note: {'; '.join(notes)}]")


# A reference to a variable, which bash would expand in an assignment.
_REFERENCE: Final = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*[^}]*\})|^~(?=/|$)")


def _find_unexpanded(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the assignments of `env` that look as if the model expects bash to expand them."""
    found = ((name, _REFERENCE.search(value)) for name, value in env.items())
    return tuple(f"{match[0]} in {name}" for name, match in found if match is not None)


def make(options: Mapping[str, Any]) -> Nacre:
    return Nacre(read_options(options, Options))


def _check_arguments(given: Bash) -> None:
    """Check the arguments of a call of the tool `bash`. Raises Refused for arguments that exclude
    each other, are invalid or are unavailable."""
    if given.pty and given.interactive:
        raise bad_arguments(
            "pty and interactive do not go together: a terminal is interactive; choose one"
        )
    if given.pty:
        raise Refused(_NO_TERMINALS)
    if given.session is not None and _RUN_ID.fullmatch(given.session):
        raise bad_arguments(
            f"session: {given.session} is the id of a run, and a session has a name that you "
            f"choose; to answer or read {given.session}, use the tool job with run"
        )
    if given.session is not None:
        check_name("session", given.session)
    name = given.request_id
    if name is not None and not 0 < len(name) <= _MAX_NAME:
        raise bad_arguments(
            f"request_id must have 1 to {_MAX_NAME} characters, not {{}}", len(name)
        )
    try:
        (given.stdin or "").encode("utf-8", "surrogateescape")
        (name or "").encode()
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise bad_arguments(
            f"stdin or request_id contains {odd!r}, which is no character"
        ) from None


def _resolve_cwd(given: str | None, caller: Caller) -> bytes:
    if given is None:
        return caller.cwd
    found = resolve_cwd(given, caller)
    if found is None:
        raise bad_arguments(
            "cwd {} cannot be resolved: there is no home directory; give an absolute path", given
        )
    return found


def _build_idempotency_key(given: Bash, plan: Plan) -> IdempotencyKey | None:
    """Return the idempotency key of a call, which prevents a retry from running the command twice;
    None without a `request_id`. The idempotency key contains a digest of what the call executes,
    such as the command and its directory, but not of how long the call waits or how much output the
    reply shows."""
    if given.request_id is None:
        return None
    command = plan.command
    identity = (
        command.original,
        command.cwd,
        sorted(command.call_env.items()),
        plan.limits.timeout,
        plan.stdin,
        plan.leftovers,
        None if plan.session is None else plan.session.key,
    )
    return IdempotencyKey(id=given.request_id, digest=digest(msgspec.msgpack.encode(identity), 16))
