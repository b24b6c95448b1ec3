"""pi's background jobs: what is said when one begins, and the tool `job`."""

from typing import Any, Final

from msgspec import Struct

from nacre.asks import Job, Jobs, Listing, Running
from nacre.contracts.arguments import bad, object_schema, read_arguments
from nacre.contracts.contract import Reply, ToolSpec
from nacre.contracts.pi_words import LIMIT, Said, ending, plain, shown
from nacre.contracts.words import left_running
from nacre.outcome import Capture, Exited, Outcome
from nacre.text import decode, human_size, settled, without_cut_start

_LABEL: Final = 120  # characters of a command
_DESCRIPTION: Final = """\
See to background jobs. {{"list": true}} shows all of them at once; {{"poll": [ids]}} waits until \
one of them has ended (at most {wait:g} s) and shows each, {{}} does so for all that run; \
{{"cancel": [ids]}} ends jobs, with everything they have started. Looking at a job does not use it \
up: its output stays readable, also in commands as artifact://N, where N is its id without the r."""


class Arguments(Struct, frozen=True, kw_only=True):
    list: bool = False
    poll: tuple[str, ...] | None = None
    cancel: tuple[str, ...] | None = None


def spec(wait: float) -> ToolSpec:
    told = {
        "list": "Show every job, running or ended, without waiting",
        "poll": "Ids of jobs to wait for",
        "cancel": "Ids of jobs to end",
    }
    schema = object_schema(Arguments, told)
    from nacre.contracts.shapes import PI_JOB  # who only calls needs no schemas

    description = _DESCRIPTION.format(wait=wait)
    return ToolSpec(name="job", description=description, schema=schema, shape=PI_JOB)


def admitted(arguments: object, wait: float, grace: float) -> tuple[Jobs, Arguments]:
    """Raises Refused."""
    given = read_arguments(arguments, Arguments)
    if given.list and (given.poll is not None or given.cancel is not None):
        raise bad("list goes alone; leave out poll and cancel")
    if given.list:
        return Jobs(most=0), given
    if given.cancel is not None and given.poll is None:
        return Jobs(runs=given.cancel, end=given.cancel, grace=grace), given
    ask = Jobs(
        runs=given.poll,
        live=given.poll is None,
        end=given.cancel or (),
        grace=grace,
        patience=wait,
    )
    return ask, given


def started(answer: Running, said: Said) -> Reply:
    """It goes on in the background."""
    preview = _tail(answer.output)
    if preview and not preview.endswith("\n"):
        preview += "\n"
    name = answer.run
    lines = [
        *said.notices,
        f"Background job {name} started: {_label(decode(said.script))}",
        f'Use the tool job: {{"poll": ["{name}"]}} waits for it, {{"list": true}} shows all jobs, '
        f'{{"cancel": ["{name}"]}} ends it.',
    ]
    details: dict[str, Any] = {"timeoutSeconds": plain(said.timeout)}
    if said.requested is not None and said.requested != said.timeout:
        details["requestedTimeoutSeconds"] = plain(said.requested)
    details["async"] = {"state": "running", "jobId": name, "type": "bash"}
    return Reply(text=preview + "\n".join(lines), is_error=False, details=details)


def listed(answer: Listing, given: Arguments) -> Reply:
    details: dict[str, Any] = {"jobs": [_data(job) for job in answer.jobs]}
    for each in details["jobs"]:
        if each["id"] in answer.ended:
            each["status"] = "cancelled"
    sections = []
    if given.cancel is not None:
        fates = {
            **dict.fromkeys(answer.ended, "cancelled"),
            **dict.fromkeys(answer.over, "already_completed"),
        }
        details["cancelled"] = [
            {"id": each, "status": fates.get(_name(each), "not_found")} for each in given.cancel
        ]
        sections += [f"{each['id']}: {each['status']}" for each in details["cancelled"]]
    elif answer.unknown:
        sections += [f"{each}: not_found" for each in answer.unknown]
    if answer.unknown:
        details["unknown"] = list(answer.unknown)
    if given.list:
        sections += [_line(job) for job in answer.jobs]
    elif given.cancel is None or given.poll is not None:
        sections += [_section(job) for job in answer.jobs]
    nothing = bool(answer.unknown) and not answer.jobs
    separator = "\n" if given.list or (given.poll is None and given.cancel is not None) else "\n\n"
    text = separator.join(sections)
    text = text or ("No background jobs." if given.list else "No background jobs run.")
    return Reply(text=text, is_error=nothing, details=details)


def _name(given: str) -> str:
    """As people may write it: 17, r17, artifact://17."""
    return "r" + given.removeprefix("artifact://").removeprefix("r")


def _label(command: str) -> str:
    flat = " ".join(command.split())
    return flat if len(flat) <= _LABEL else f"{flat[: _LABEL - 1]}…"


def _status(job: Job) -> str:
    if job.state is None:
        return "running"
    return "completed" if job.state == Exited(0) else "failed"


def _data(job: Job) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": job.run,
        "type": "bash",
        "status": _status(job),
        "label": _label(job.command),
        "durationMs": round(job.seconds * 1000),
    }
    if job.state is not None and (code := _outcome(job).exit_code) is not None:
        data["exitCode"] = code
    return data


def _line(job: Job) -> str:
    return f"{job.run:<5} {_status(job):<9} {job.seconds:>8.1f}s  {_label(job.command)}"


def _section(job: Job) -> str:
    head = f"{job.run} {_status(job)}: {_label(job.command)}"
    if job.state is None:
        output = _tail(job.output) or "(no output yet)"
        return f"{head}\n{output.rstrip()}\nRunning for {job.seconds:.2f} seconds"
    outcome = _outcome(job)
    part, ends = shown(outcome, None, None), ending(outcome)
    lines = [
        head,
        part.text.rstrip("\n") or "(no output)",
        *([part.notice] if part.notice else []),
        *map(left_running, job.left_running),
        f"Wall time: {job.seconds:.2f} seconds",
        *([ends] if ends else []),
    ]
    return "\n".join(lines)


def _outcome(job: Job) -> Outcome:
    assert job.state is not None
    return Outcome(
        run=job.run,
        ending=job.state,
        output=job.output,
        seconds=job.seconds,
        left_running=job.left_running,
        stored=job.stored,
    )


def _tail(capture: Capture) -> str:
    """The end of what there is so far."""
    data = (capture.head + capture.tail)[-LIMIT:]
    if len(data) == capture.size:
        return settled(decode(data))
    shown_size, size = human_size(len(data)), human_size(capture.size)
    return f"[last {shown_size} of {size} so far]\n{settled(decode(without_cut_start(data)))}"
