"""Collecting data about a run while it runs, and building the run's outcome from the data."""

import enum
import signal
from typing import TYPE_CHECKING

import msgspec

from nacre.engine.output import Output
from nacre.model.outcome import (
    Cancelled,
    Capture,
    Ending,
    Exited,
    Killed,
    Lost,
    NotStarted,
    Outcome,
    Survivor,
    TimedOut,
)
from nacre.model.plan import Plan, Streams
from nacre.model.refusals import AnyRefusal, CalledOff
from nacre.procfs import processes

if TYPE_CHECKING:
    from nacre.sessions.lease import SessionLease
    from nacre.store.run_record import RunRecord


class EndReason(enum.Enum):
    """Reason why a run ended, for endings that the exit status of its shell does not show."""

    NOT_STARTED = "not started"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


class OutcomeBuilder:
    """Builder of one run's outcome. The docstring of `engine.run.Run` explains why attributes have
    class-level defaults."""

    refusal: AnyRefusal = CalledOff()  # reason why the command was not started
    reason: EndReason | None = None
    started_at = 0.0
    ended_at = 0.0
    exited = False  # whether the run's shell has exited
    status: Exited | Killed | None = None
    killing = False  # whether nacre has sent KILL to the run's process tree
    # The kernel's count of OOM kills soon after the run's start; None: not counted.
    oom_kills_before: int | None = None
    left_running: tuple[Survivor, ...] = ()
    at_exit: tuple[Survivor, ...] = ()  # processes of the run that were alive when its shell exited
    # reason why the command ran without its session; empty: no session problem
    session_problem = ""
    # exit statuses of the script's pipelines, if a stage failed; as in `Outcome`
    pipelines: tuple[tuple[int, ...], ...] = ()

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at

    def ending(self, timeout: float | None) -> Ending:
        match self.reason:
            case EndReason.NOT_STARTED:
                return NotStarted(self.refusal)
            case EndReason.TIMEOUT:
                return TimedOut(timeout or 0.0, self.status)
            case EndReason.CANCEL:
                return Cancelled(self.status)
            case None:
                return self.status or Lost(last_seen=self.seconds)

    def build(
        self,
        name: str,
        plan: Plan,
        output: Output | None,
        record: "RunRecord | None",
        lease: "SessionLease | None",
    ) -> Outcome:
        """Close the run's output, build the outcome and write it to the run record. `output` is
        None if the command was not started."""
        ending, completion = self.ending(plan.limits.timeout), plan.completion_line
        if output is None:
            captures = [Capture()] * (2 if plan.streams is Streams.SEPARATE else 1)
        else:
            if completion is not None:
                output.add_completion_line(completion.text_of(ending).encode())
            captures = output.close()
        outcome = Outcome(
            run=name if record is None else record.assign_name(),
            ending=ending,
            output=captures[0],
            errors=captures[1] if len(captures) == 2 else None,
            seconds=self.seconds,
            left_running=self.left_running,
            terminated=tuple(each for each in self.at_exit if each not in self.left_running),
            out_of_memory=self._out_of_memory(),
            session_saved=self._session_saved(lease),
            session_problem=self.session_problem,
            previous_state_lost=lease is not None and lease.lost,
            session_moved=None if lease is None else lease.moved,
            session_errexit=lease is not None and lease.errexit,
            session_taken=lease is not None and lease.taken,
            session_taken_from="" if lease is None else lease.taken_from,
            pipelines=self.pipelines,
        )
        if record is None:
            return outcome
        write_line = None if output is None or completion is None else output.write_completion_line
        stored = record.write_end(outcome, write_line)
        return msgspec.structs.replace(outcome, stored=True) if stored else outcome

    def _session_saved(self, lease: "SessionLease | None") -> bool | None:
        """Return whether the session state was saved; None if the run has no session."""
        if lease is None:
            return False if self.session_problem else None
        return lease.saved

    def _out_of_memory(self) -> bool:
        """Return whether the kernel killed the run's shell for lack of memory: the shell died of
        KILL, nacre sent no KILL, and the kernel's count of OOM kills has grown."""
        killed = self.status in (Killed(signal.SIGKILL), Exited(128 + signal.SIGKILL))
        if not killed or self.killing or self.oom_kills_before is None:
            return False
        return processes.count_oom_kills() > self.oom_kills_before
