"""The `phoenix` contract: one tool that takes a command and a mode.

A reply of the `phoenix` contract shows stdout and stderr merged, in the order of writing. A reply
truncates long output in the middle, and its status lines are in brackets. Each call is checked in
this order: arguments, directory, safety rules, co-author trailer, artifact links, environment,
terminal needs.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import Meta, Struct

from nacre.contracts.arguments import bad_arguments, object_schema, read_arguments, read_script
from nacre.contracts.contract import Admitted, Reply, ToolSpec, no_user_command, reply_to_json
from nacre.contracts.option_reader import OFF, Limit, Seconds, read_options
from nacre.contracts.phrases import (
    SPILL,
    artifact_reference,
    bad_directory_text,
    incomplete_note,
    leftover_lines,
)
from nacre.contracts.shared_options import Safety, SharedOptions, safety_steps, trailer_steps
from nacre.model.caller import Caller
from nacre.model.findings import AnyFinding
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    TimedOut,
)
from nacre.model.plan import KIB, Command, CompletionLine, Keep, Limits, Plan, Streams, When
from nacre.model.refusals import (
    AnyRefusal,
    BadArguments,
    BadDirectory,
    BadLink,
    CalledOff,
    Dangerous,
    DirectoryProblem,
    Refused,
    UnknownTool,
)
from nacre.model.requests import Result, Running, StartRun
from nacre.model.signals import signal_name
from nacre.prepare.decide import Step
from nacre.prepare.directory import check_directory
from nacre.prepare.environment import EDITORS, environment_step
from nacre.prepare.internal_urls import internal_urls_step
from nacre.prepare.terminal_needs import note_terminal_needs
from nacre.text.clean import decode, fit_end, fit_start, human_size, shown_size

_KEEP: Final = Keep(whole=128 * KIB, head=4 * KIB, tail=4 * KIB)
_RECREATE: Final = " (conversation may need to be recreated)"
_SAVED_TEXT: Final = msgspec.structs.replace(SPILL, when=When.ALWAYS)
_COMPLETION_LINE: Final = CompletionLine(
    zero="\n\n[background process completed]\n",
    exited="\n\n[background process failed: exit code {code}]\n",
    killed="\n\n[background process failed: signal {number} ({name})]\n",
    error="\n\n[background process error: {why}]\n",
)
_SNIP: Final = "\n\n[snip]\n\n"

_DESCRIPTION: Final = """\
Executes shell commands via bash -c, returning combined stdout/stderr.
Bash state changes (working dir, variables, aliases) don't persist between calls.

With {background}, returns immediately with output redirected to a file.
Use background for servers/demos that need to stay running.

MUST set {slow} for potentially slow commands: builds, downloads,
installs, tests, or any other substantive operation.
A command is stopped after {limit}, with {slow} after {slow_limit}.
Of output above {whole} you see the first and last {end}; all of it is in artifact://N,
which stands for a file in further commands.

IMPORTANT: Keep commands concise. The command input must be less than 60k tokens.
For complex scripts, write them to a file first and then execute the file.

<pwd>{cwd}</pwd>"""


class Bash(Struct, frozen=True, kw_only=True):
    """Arguments of the tool `bash` in both of its schemas: one schema has `mode`, the other has the
    booleans `slow_ok` and `background`."""

    command: str
    mode: Literal["default", "slow", "background"] | None = None
    slow_ok: bool | None = None
    background: bool | None = None


class Options(SharedOptions, frozen=True, kw_only=True):
    schema: Literal["mode", "booleans"] = "mode"
    safety: Safety = ("disk",)
    coauthor: Annotated[bool, Meta(extra=OFF)] = True
    trailer: str = "Co-authored-by: Phoenix <phoenix@exe.dev>"
    timeout: Limit = 30.0
    slow_timeout: Limit = 900.0
    grace: Seconds = 15.0


class Phoenix:
    name = "phoenix"
    event_interval = 0.0
    has_sessions = False
    to_json = staticmethod(reply_to_json)
    admit_user_command = staticmethod(no_user_command)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.steps: tuple[Step, ...] = (
            check_directory,
            *safety_steps(options),
            *trailer_steps(options),
            internal_urls_step(("artifact",)),
            environment_step(options.environment, EDITORS, options.allow),
            note_terminal_needs,
        )

    def with_max_wait(self, seconds: float) -> Self:
        # `seconds`, the maximum time that a call may block, has no effect under the `phoenix`
        # contract, because a command runs in the background only if the model asks for it.
        del seconds
        return self

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        options, booleans = self.options, self.options.schema == "booleans"
        usual, slow = _format_duration(options.timeout), _format_duration(options.slow_timeout)
        description = _DESCRIPTION.format(
            background="background=true" if booleans else 'mode="background"',
            slow="slow_ok=true" if booleans else 'mode="slow"',
            limit=usual,
            slow_limit=slow,
            whole=human_size(_KEEP.whole),
            end=human_size(_KEEP.head),
            cwd=decode(caller.cwd),
        )
        descriptions = {"command": "Shell command to execute via bash -c"}
        if booleans:
            descriptions["slow_ok"] = (
                f"Use extended {slow.removesuffix('s').replace(' ', '-')} timeout "
                "for builds, tests, installs"
            )
            descriptions["background"] = "Run detached, return immediately with PID and output file"
        else:
            descriptions["mode"] = (
                f"default: up to {usual}; slow: up to {slow}, for builds, tests, "
                "installs; background: run detached, return immediately with PID and output file"
            )
        schema = object_schema(Bash, descriptions)
        # The reply schema of the tool is imported lazily, because only the declaration of the tool
        # for a model needs it.
        from nacre.contracts.reply_schemas import PHOENIX_REPLY

        return (
            ToolSpec(
                name="bash", description=description, schema=schema, reply_schema=PHOENIX_REPLY
            ),
        )

    def admit(self, tool: str, arguments: object, caller: Caller) -> Admitted:
        if tool != "bash":
            raise Refused(UnknownTool(tool=tool, known=("bash",)))
        given = read_arguments(arguments, Bash)
        plan = self.plan(read_script(given.command), caller)
        match _select_mode(given):
            case "background":
                plan = msgspec.structs.replace(
                    plan,
                    limits=Limits(timeout=None, grace=self.options.grace),
                    spill=_SAVED_TEXT,
                    completion_line=_COMPLETION_LINE,
                )
                return Admitted(request=StartRun(plan=plan, wait_limit=0.0), steps=self.steps)
            case "slow":
                plan = msgspec.structs.replace(plan, limits=self._limits(self.options.slow_timeout))
        return Admitted(request=StartRun(plan=plan), steps=self.steps)

    def plan(self, script: bytes, caller: Caller) -> Plan:
        return Plan(
            command=Command(original=script, script=script, cwd=caller.cwd, env=caller.env),
            streams=Streams.MERGED,
            limits=self._limits(self.options.timeout),
            keep=_KEEP,
            spill=SPILL,
        )

    def _limits(self, timeout: float) -> Limits:
        return Limits(timeout=timeout, grace=self.options.grace)

    def reply(self, result: Result, reply_context: None, findings: Sequence[AnyFinding]) -> Reply:
        del reply_context, findings
        if isinstance(result, Running):
            return _background_reply(result)
        assert isinstance(result, Outcome)
        wrong = _failure_line(result)
        if isinstance(result.ending, NotStarted):
            called_off = isinstance(result.ending.why, CalledOff)
            details = {"cancelled": True} if called_off else {}
            return Reply(text=wrong or "", is_error=True, details=details)
        body, cut = _output_text(result.output)
        lines = leftover_lines(result.left_running)
        if cut:
            lines.insert(0, f"[full output: {artifact_reference(result)[1]}]")
        else:
            lines[:0] = incomplete_note(result.output)
        if lines and body and not body.endswith("\n"):
            body += "\n"
        text = (f"{wrong}\n" if wrong else "") + body + "\n".join(lines)
        return Reply(text=text, is_error=wrong is not None, details=_build_details(result, cut))

    def reply_to_refusal(self, refusal: AnyRefusal) -> Reply:
        details = {}
        if isinstance(refusal, Dangerous):
            details = {"rule": refusal.rule, "instead": refusal.instead}
        return Reply(text=_refusal_text(refusal), is_error=True, details=details)


def make(options: Mapping[str, Any]) -> Phoenix:
    return Phoenix(read_options(options, Options))


def _background_reply(running: Running) -> Reply:
    file = decode(running.log or b"")
    return Reply(
        text=f"<pid>{running.pid}</pid>\n<output_file>{file}</output_file>\n"
        f"<reminder>To stop: kill -9 -{running.pid}</reminder>",
        is_error=False,
        details={"run": running.run, "pid": running.pid, "output_file": file},
    )


def _select_mode(given: Bash) -> str:
    """Return the mode of a call, from its argument `mode` or from its booleans `slow_ok` and
    `background`. Raises Refused if `mode` contradicts `slow_ok` or `background`."""
    booleans = "background" if given.background else "slow" if given.slow_ok else "default"
    if given.mode is None:
        return booleans
    meant = {"background": given.mode == "background"}
    if given.mode != "background":  # in background mode, slow_ok may be true or false
        meant["slow_ok"] = given.mode == "slow"
    for name, value in meant.items():
        if getattr(given, name) not in (None, value):
            details = "false" if value else "true"
            raise bad_arguments(
                f'mode "{given.mode}" contradicts {name} {details}; leave one of them out'
            )
    return given.mode


def _format_duration(seconds: float) -> str:
    """Format a duration as text, such as `30 seconds` or `15 minutes`."""
    count, unit = (
        (seconds / 60, "minute") if seconds >= 60 and not seconds % 60 else (seconds, "second")
    )
    return f"{count:g} {unit}{'' if count == 1 else 's'}"


def _failure_line(outcome: Outcome) -> str | None:
    """Return the line of the reply that reports a failed command; None if the command succeeded."""
    match outcome.ending:
        case Exited(0):
            return None
        case Exited(code):
            return f"[command failed: exit code {code}]"
        case Killed(number):
            return f"[command failed: signal {number} ({signal_name(number)})]"
        case TimedOut(after=after):
            return f"[command timed out after {after:g}s]"
        case Cancelled() | NotStarted(why=CalledOff()):
            return "[command cancelled]"
        case NotStarted(why=why):
            return _refusal_text(why)
        case Lost():
            return (
                "[command failed: exit status unknown; the process that ran it was killed, or "
                "another part "
                "of this program took it]"
            )


def _output_text(capture: Capture) -> tuple[str, bool]:
    """Return the output as the reply shows it, and whether its middle is left out."""
    data, size = capture.head + capture.tail, capture.size
    if not capture.omitted:
        size = shown_size(data)
        if size <= _KEEP.whole:
            return decode(data), False
    got, most = human_size(size), human_size(_KEEP.whole)
    head = fit_start(data[: _KEEP.head], _KEEP.head)
    tail = fit_end(data[-_KEEP.tail :], _KEEP.tail)
    notice = f"[output truncated in middle: got {got}, max is {most}]\n"
    return f"{notice}{decode(head)}{_SNIP}{decode(tail)}", True


def _refusal_text(refusal: AnyRefusal) -> str:
    match refusal:
        case BadDirectory(problem=problem):
            recreate = problem is DirectoryProblem.MISSING
            return bad_directory_text(refusal) + (_RECREATE if recreate else "")
        case Dangerous(matched=matched, why=why, instead=instead):
            words = " ".join(matched)
            return f"Command contains dangerous pattern: {words}. It {why}; {instead}"
        case BadArguments() | UnknownTool() | BadLink():
            return str(refusal)
        case _:
            return f"[cannot run command: {refusal}]"


def _build_details(outcome: Outcome, cut: bool) -> dict[str, Any]:
    """Return the outcome of a run as structured data, without the fields that do not apply."""
    ending, output = outcome.ending, outcome.output
    details: dict[str, Any] = {"run": outcome.run, "seconds": round(outcome.seconds, 3)}
    if outcome.exit_code is not None:
        details["exit_code"] = outcome.exit_code
    if outcome.signal is not None:
        details["signal"] = signal_name(outcome.signal)
    if isinstance(ending, TimedOut | Cancelled):
        details["timed_out" if isinstance(ending, TimedOut) else "cancelled"] = True
    details["output"] = {
        "bytes": output.size,
        "lines": output.lines,
        "truncated": cut,
    }
    if outcome.left_running:
        details["left_running"] = [
            {"pid": each.pid, "command": each.command} for each in outcome.left_running
        ]
    return details
