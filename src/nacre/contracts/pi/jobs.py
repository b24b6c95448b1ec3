"""Background jobs of the `pi` contract: the reply when a job starts, and pi's tool `job`."""

import signal
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from nacre.contracts.arguments import bad_arguments, object_schema, read_arguments
from nacre.contracts.contract import Reply, ToolSpec
from nacre.contracts.phrases import incomplete_note, leftover_lines, moved_notes, process_texts
from nacre.contracts.pi.reply import (
    LIMIT,
    ReplyContext,
    cut_output,
    ending_line,
    format_number,
    wall_time_line,
    wall_time_ms,
)
from nacre.model.findings import AnyFinding
from nacre.model.outcome import Capture, Outcome, job_state
from nacre.model.plan import Keep
from nacre.model.requests import EndRun, Excerpt, Interact, Jobs, Listing, Running, RunStatus
from nacre.text.clean import as_displayed, decode, displayed_size, fit_end, human_size

_LABEL: Final = 120  # maximum number of characters of a command that a reply quotes
_DESCRIPTION: Final = """\
See to background jobs. {{"list": true}} shows all of them at once; {{"poll": [ids]}} waits until \
one of them has ended (at most {wait:g} s) and shows each, {{}} does so for all that run; \
{{"cancel": [ids]}} ends jobs, with everything they have started. Looking at a job does not use it \
up: its output stays readable, also in commands as artifact://N, where N is its id without the r."""


class Arguments(Struct, frozen=True, kw_only=True):
    list: bool = False
    poll: tuple[str, ...] | None = None
    cancel: tuple[str, ...] | None = None


def build_spec(wait: float) -> ToolSpec:
    descriptions = {
        "list": "Show every job, running or ended, without waiting",
        "poll": "Ids of jobs to wait for",
        "cancel": "Ids of jobs to end",
    }
    schema = object_schema(Arguments, descriptions)
    # Lazy import: the schema of a job's reply is needed only for the tool declarations that a model
    # gets.
    from nacre.contracts.reply_schemas import PI_JOB_REPLY

    description = _DESCRIPTION.format(wait=wait)
    return ToolSpec(name="job", description=description, schema=schema, reply_schema=PI_JOB_REPLY)


def admit_job(arguments: object, wait: float, grace: float) -> tuple[Interact, Arguments]:
    """Convert the arguments of pi's tool `job` to an internal request. Raises Refused."""
    given = read_arguments(arguments, Arguments)
    if given.list and (given.poll is not None or given.cancel is not None):
        raise bad_arguments("list excludes poll and cancel; leave them out")
    request = Interact(
        runs=Jobs(only_live=True),
        wait_limit=wait,
        since=0,
        keep=Keep(whole=LIMIT, head=0, tail=LIMIT),
        input_is_event=False,
        skip_unknown=True,
        action_limit=None,
        report_when_cancelled=True,
    )
    if given.list:
        nothing = Keep(whole=0, head=0, tail=0)
        return replace(request, runs=Jobs(), wait_limit=0.0, keep=nothing), given
    if given.poll is not None:
        request = replace(request, runs=given.poll)
    if given.cancel is not None:
        request = replace(
            request,
            action=EndRun(signal=signal.SIGTERM, grace=grace, cancel=True),
            act_on=given.cancel,
        )
        if given.poll is None:
            request = replace(request, runs=given.cancel, wait_limit=0.0)
    return request, given


def build_started_reply(
    answer: Running, reply_context: ReplyContext, findings: Sequence[AnyFinding]
) -> Reply:
    """Build the reply to a call whose command continues as a background job."""
    preview = _output_tail(answer.output)
    if preview and not preview.endswith("\n"):
        preview += "\n"
    name = answer.run
    lines = [
        *reply_context.notices,
        *(f"[{note}]" for note in moved_notes(findings)),
        f"Background job {name} started: {_job_label(decode(reply_context.script))}",
        f'Use the tool job: {{"poll": ["{name}"]}} waits for it, {{"list": true}} shows all jobs, '
        f'{{"cancel": ["{name}"]}} ends it.',
    ]
    details: dict[str, Any] = {"timeoutSeconds": format_number(reply_context.timeout)}
    if reply_context.requested is not None and reply_context.requested != reply_context.timeout:
        details["requestedTimeoutSeconds"] = format_number(reply_context.requested)
    details["async"] = {"state": "running", "jobId": name, "type": "bash"}
    return Reply(text=preview + "\n".join(lines), is_error=False, details=details)


def build_jobs_reply(answer: Listing, given: Arguments) -> Reply:
    details: dict[str, Any] = {"jobs": [_job_details(job) for job in answer.runs]}
    sections = []
    if given.cancel is not None:
        fates = {
            **dict.fromkeys(answer.ended, "cancelled"),
            **dict.fromkeys(answer.already_ended, "already_completed"),
        }
        details["cancelled"] = [
            {"id": each, "status": fates.get(_parse_job_id(each), "not_found")}
            for each in given.cancel
        ]
        sections += [f"{each['id']}: {each['status']}" for each in details["cancelled"]]
        for job in answer.runs:
            sections += process_texts("ended", job.processes.terminated)
    elif answer.unknown:
        sections += [f"{each}: not_found" for each in answer.unknown]
    if answer.unknown:
        details["unknown"] = list(answer.unknown)
    if given.list:
        sections += [_job_line(job) for job in answer.runs]
    elif given.cancel is None or given.poll is not None:
        sections += [_job_section(job) for job in answer.runs]
    nothing = bool(answer.unknown) and not answer.runs
    separator = "\n" if given.list or (given.poll is None and given.cancel is not None) else "\n\n"
    text = separator.join(sections)
    text = text or ("No background jobs." if given.list else "No background jobs run.")
    return Reply(text=text, is_error=nothing, details=details)


def _parse_job_id(given: str) -> str:
    """Return the run id (`r17`) of a job that the model names as `17`, `r17` or `artifact://17`."""
    return "r" + given.removeprefix("artifact://").removeprefix("r")


def _job_label(command: str) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= _LABEL else f"{flat[: _LABEL - 1]}…"


def _job_status(job: RunStatus) -> str:
    return "running" if job.ending is None else job_state(job.ending)


def _job_details(job: RunStatus) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": job.run,
        "type": "bash",
        "status": _job_status(job),
        "label": _job_label(job.command),
        "durationMs": wall_time_ms(job.seconds),
    }
    if job.ending is not None and (code := _outcome_text(job).exit_code) is not None:
        data["exitCode"] = code
    return data


def _job_line(job: RunStatus) -> str:
    return f"{job.run:<5} {_job_status(job):<9} {job.seconds:>8.1f}s  {_job_label(job.command)}"


def _job_section(job: RunStatus) -> str:
    head = f"{job.run} {_job_status(job)}: {_job_label(job.command)}"
    if job.ending is None:
        output = _output_tail(_capture(job)) or "(no output yet)"
        return f"{head}\n{output.rstrip()}\nRunning for {job.seconds:.2f} seconds"
    outcome = _outcome_text(job)
    part, ends = cut_output(outcome, None, None), ending_line(outcome)
    lines = [
        head,
        part.text.rstrip("\n") or "(no output)",
        *([part.notice] if part.notice else incomplete_note(outcome.output)),
        *leftover_lines(job.processes.left_running),
        wall_time_line(job.seconds),
        *([ends] if ends else []),
    ]
    return "\n".join(lines)


def _outcome_text(job: RunStatus) -> Outcome:
    assert job.ending is not None
    return Outcome(
        run=job.run,
        ending=job.ending,
        output=_capture(job),
        seconds=job.seconds,
        left_running=job.processes.left_running,
        stored=job.stored,
    )


def _capture(job: RunStatus) -> Capture:
    assert isinstance(job.output, Excerpt)
    return job.output.capture


def _output_tail(capture: Capture) -> str:
    """Return the end of a job's output so far, at most `LIMIT` bytes."""
    data = capture.head + capture.tail
    if capture.size <= LIMIT and displayed_size(data) <= LIMIT:
        return as_displayed(decode(data))
    data = fit_end(data[-LIMIT:], LIMIT, displayed_size)
    shown, size = human_size(len(data)), human_size(capture.size)
    return f"[last {shown} of {size} so far]\n{as_displayed(decode(data))}"
