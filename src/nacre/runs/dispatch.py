"""Where a run is started: in this process, or in the warden.

A call that waits to the end of its command (it has no wait limit) runs the command in this process.
A call that may detach the command starts it in the warden (nacre's daemon), because a running
command cannot be moved to another process later. A host can choose one place for all its runs:
`warden`, or `here` for its own process.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from nacre.engine import leftover_pipes
from nacre.engine.engine import Engine
from nacre.engine.leftover_pipes import LeftoverPipes
from nacre.engine.loop_context import LoopContext
from nacre.engine.run import Run
from nacre.engine.supervisor import Operation
from nacre.engine.ticket import Ticket
from nacre.eventloop import now
from nacre.model import requests
from nacre.model.caller import copy_environment
from nacre.model.cancel import CancelToken
from nacre.model.events import Listening
from nacre.model.outcome import NotStarted, Outcome
from nacre.model.plan import Keep, OpenStdin, Plan
from nacre.model.refusals import CalledOff, NoBackground, Refused, TooMany
from nacre.model.requests import ListenOptions, Listing, Rejected, Response
from nacre.model.wait_conditions import NO_CONDITIONS
from nacre.process import rlimits
from nacre.store import stored_run
from nacre.store.store import Store, claim_run, release_claim
from nacre.store.stored_run import NoSuchRun
from nacre.text.clean import decode

if TYPE_CHECKING:
    from nacre.warden.client_request import WardenRequest

Placement = Literal["auto", "here", "warden"]


class Dispatcher:
    def __init__(self, engine: Engine, store: Store, where: Placement) -> None:
        self._request_type: type[WardenRequest] | None = None
        self._engine = engine
        self._store = store
        self.placement = where
        self._lock = threading.Lock()
        # maps the number of each live run to its command; `max_live` limits the number of live runs
        self._live_commands: dict[int, str] = {}

    def start(
        self, request: requests.StartRun, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Response]:
        """Start the run in this process or in the warden. Raises Refused when the run cannot be
        started."""
        open_stdin = isinstance(request.plan.stdin, OpenStdin)
        if self.placement == "here":
            if request.wait_limit == 0 or request.until or open_stdin:
                raise Refused(NoBackground())
            if request.idempotency_key is not None or request.max_live is not None:
                return self._start_limited(request, listening, cancel)
        waits_to_the_end = request.wait_limit is None and not (
            request.until or request.idempotency_key or open_stdin
        )
        if self.placement == "here" or (self.placement == "auto" and waits_to_the_end):
            record = self._store.new_record(request.plan, request.workspace)
            return self._engine.start(request.plan, listen=listening, cancel=cancel, record=record)
        return self._start_in_warden(request, listening, cancel)

    def _start_limited(
        self, request: requests.StartRun, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Response]:
        """Start a run in this process, after checking the request's limit of live runs and its
        idempotency key."""
        number = self._store.next_number()
        with self._lock:
            if request.max_live is not None and len(self._live_commands) >= request.max_live:
                live = tuple((f"r{each}", command) for each, command in self._live_commands.items())
                raise Refused(TooMany(limit=request.max_live, runs=live, kind="commands"))
            self._live_commands[number] = decode(request.plan.command.original)
        try:
            if request.idempotency_key is not None:
                run = claim_run(request.idempotency_key, request.workspace, number, "host")
                if run != number:
                    self._live_commands.pop(number)
                    return self._follow_earlier(request, run, cancel)
            record = self._store.new_record(request.plan, request.workspace, number)
            record.write_early = request.idempotency_key is not None

            def make(context: LoopContext, answer: Callable[[Outcome], None]) -> Operation:
                def on_end(outcome: Outcome) -> None:
                    self._live_commands.pop(number, None)
                    if isinstance(outcome.ending, NotStarted):
                        release_claim(request, number)
                    answer(outcome)

                return Run(
                    "", request.plan, context, listening=listening, record=record, on_outcome=on_end
                )

            return self._engine.start_operation(make, cancel)
        except Refused:  # a refused command has not run; an interrupted one may have run
            release_claim(request, number)
            self._live_commands.pop(number, None)
            raise
        except BaseException:
            self._live_commands.pop(number, None)
            raise

    def _follow_earlier(
        self, request: requests.StartRun, run: int, cancel: CancelToken | None
    ) -> Ticket[Response]:
        """Wait for the run of an earlier call with the same idempotency key."""
        from nacre.runs.sequence import SequenceOperation
        from nacre.runs.watched_start import follow_earlier

        def follow(context: LoopContext, answer: Callable[[Response], None]) -> Operation:
            steps = follow_earlier(f"r{run}", request, context)
            return SequenceOperation(
                steps, context.loop, answer, cancelled=Rejected(refusal=CalledOff())
            )

        return self._engine.start_operation(follow, cancel)

    def _start_in_warden(
        self, request: requests.StartRun, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Response]:
        if self._request_type is None:  # imported lazily: a host may never need the warden
            from nacre.warden.client_request import WardenRequest

            self._request_type = WardenRequest
        number, request_type = self._store.next_number(), self._request_type
        request = msgspec.structs.replace(
            request,
            plan=_with_caller_env(request.plan),
            number=number,
            listen=_listen_options(listening),
        )
        name, keep, workspace = f"r{number}", request.plan.keep, request.workspace
        began = now()

        def make(context: LoopContext, answer: Callable[[Response], None]) -> "WardenRequest":
            return request_type(
                _without_conditions(request),
                context,
                answer,
                name=name,
                find_lost=lambda: _find_lost_run(request, number, began),
                fill_output=lambda outcome: with_stored_output(outcome, workspace, keep),
                listening=listening,
            )

        if not (request.until or request.idempotency_key):
            return self._engine.start_operation(make, cancel)
        from nacre.runs.watched_start import WatchedStart

        def start_watched(context: LoopContext, answer: Callable[[Response], None]) -> Operation:
            return WatchedStart(
                request, context, answer, lambda on_response: make(context, on_response)
            )

        return self._engine.start_operation(start_watched, cancel)

    def run_job_request(
        self, request: requests.JobRequest, workspace: bytes, cancel: CancelToken | None
    ) -> Ticket[Listing | Rejected]:
        """Carry out a call of the tool `job` in this process."""
        from nacre.runs.interact import build_job_operation

        return self._engine.start_operation(
            lambda context, answer: build_job_operation(request, workspace, context, answer), cancel
        )


def hand_over_leftover(leftover: LeftoverPipes) -> None:
    """Hand the pipes of an ended command's leftover processes to the warden, so that the output of
    these processes still reaches the log after this process has exited."""
    from nacre.warden.pipe_handover import hand_over_pipes
    from nacre.warden.protocol import Adopt

    pipes = leftover.pipes
    if pipes and leftover.workspace is not None and leftover.run.startswith("r"):
        adopt = Adopt(
            run=leftover.run,
            workspace=leftover.workspace,
            streams=tuple(pipes),
            limit=leftover.limit,
        )
        if hand_over_pipes(adopt, list(pipes.values())):
            leftover.close()
    if not leftover.closed:
        leftover_pipes.park(leftover)


def _listen_options(listening: Listening | None) -> ListenOptions | None:
    if listening is None:
        return None
    return ListenOptions(buffer=listening.buffer, full=listening.full)


def _with_caller_env(plan: Plan) -> Plan:
    """Add to the plan what its command would inherit from this process: environment, umask and
    resource limits."""
    command = plan.command
    env = copy_environment() if command.env is None else command.env
    return msgspec.structs.replace(
        plan,
        command=msgspec.structs.replace(
            command, env=env, caller_limits=rlimits.read_caller_limits()
        ),
        findings=(),
    )


def _without_conditions(request: requests.StartRun) -> requests.StartRun:
    """Return the request to the warden without the conditions of the argument `until`, because the
    warden does not check these conditions; this process does.

    The field `watched` makes the warden write the run's output to a file at once, so that this
    process can search the file for the text that an `until` condition waits for.
    """
    if not request.until:
        return request
    return msgspec.structs.replace(request, until=NO_CONDITIONS, watched=True)


def _find_lost_run(
    request: requests.StartRun, number: int, began: float
) -> Outcome | requests.Wait | None:
    """Look up a run in the store after the connection to its warden was lost.

    Return the run's outcome, a `Wait` request when the run is alive, or None when it was never
    started.
    """
    try:
        run = stored_run.find_run(number, request.workspace)
    except (NoSuchRun, OSError):
        return None
    # If the warden is alive and only the connection was lost, the caller waits for the rest of its
    # wait limit.
    left = None if request.wait_limit is None else max(0.0, request.wait_limit - (now() - began))
    wait = requests.Wait(
        run=run.name,
        workspace=request.workspace,
        wait_limit=left,
        input=isinstance(request.plan.stdin, OpenStdin) and request.wait_limit is not None,
    )
    return stored_run.build_outcome(run, request.plan.keep) or wait


def with_stored_output(outcome: Outcome, workspace: bytes, keep: Keep) -> Outcome:
    """Return the outcome of a run with the run's output from the store, because the warden has the
    output only on disk and did not send it."""
    try:
        run = stored_run.find_run(stored_run.parse_run_id(outcome.run), workspace)
        stored = stored_run.build_outcome(run, keep)
    except (NoSuchRun, OSError):
        return outcome
    if stored is None:
        return outcome
    return msgspec.structs.replace(
        outcome, output=stored.output, errors=stored.errors, stored=stored.stored
    )
