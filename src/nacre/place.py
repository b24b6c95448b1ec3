"""Here or there: in this process, or in the warden.

Patience decides. Whoever waits to the end runs it here; whoever may want it handed back while it
runs has it started in the warden, since nothing can be handed over safely later. A host may choose
that everything runs there (`warden`), or nothing does (`here`).
"""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from nacre import asks
from nacre.asks import Listing, No, Reached, Wishes
from nacre.cancel import CancelToken
from nacre.engine import leftovers
from nacre.engine.engine import Engine, Ticket
from nacre.engine.ground import Ground
from nacre.engine.leftovers import Leftover
from nacre.engine.run import Run
from nacre.engine.supervise import Supervised
from nacre.events import Listening
from nacre.loop import now
from nacre.outcome import NotStarted, Outcome
from nacre.plan import Held, Keep, Plan
from nacre.process import terms
from nacre.refusals import NoBackground, Refused, TooMany
from nacre.store import reading, requests
from nacre.store.reading import NoSuchRun
from nacre.store.store import Store, claimed
from nacre.text import decode

if TYPE_CHECKING:
    from nacre.warden.remote import Remote

Where = Literal["auto", "here", "warden"]


class Place:
    _remote: "type[Remote] | None" = None

    def __init__(self, engine: Engine, store: Store, where: Where) -> None:
        self._engine = engine
        self._store = store
        self.where = where
        self._lock = threading.Lock()
        self._live: dict[int, str] = {}  # that are counted, and their commands
        if where != "here":
            engine.leave = _leave

    def begin(
        self, ask: asks.Run, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Outcome] | Ticket[Reached]:
        """Start it, here or there. Raises Refused when nothing can be started at all."""
        held = isinstance(ask.plan.stdin, Held)
        if self.where == "here":
            if ask.patience == 0 or ask.until or held:
                raise Refused(NoBackground())
            if ask.request is not None or ask.most is not None:
                return self._counted(ask, listening, cancel)
        waits_to_the_end = ask.patience is None and not (ask.until or ask.request or held)
        if self.where == "here" or (self.where == "auto" and waits_to_the_end):
            record = self._store.record(ask.plan, ask.workspace)
            return self._engine.begin(ask.plan, listen=listening, cancel=cancel, record=record)
        return self._there(ask, listening, cancel)

    def _counted(
        self, ask: asks.Run, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Outcome] | Ticket[Reached]:
        """Here, one of so many at most, and perhaps under a name by which it runs only once."""
        number = self._store.number()
        with self._lock:
            if ask.most is not None and len(self._live) >= ask.most:
                live = tuple((f"r{each}", command) for each, command in self._live.items())
                raise Refused(TooMany(most=ask.most, runs=live, kind="commands"))
            self._live[number] = decode(ask.plan.command.given)
        try:
            if ask.request is not None:
                run = claimed(ask.request, ask.workspace, number, "host")
                if run != number:
                    self._live.pop(number)
                    return self._earlier(ask, run, cancel)
            record = self._store.record(ask.plan, ask.workspace, number)
            record.early = ask.request is not None

            def make(ground: Ground, answer: Callable[[Outcome], None]) -> Supervised:
                def ended(outcome: Outcome) -> None:
                    self._live.pop(number, None)
                    if isinstance(outcome.ending, NotStarted):
                        _give_back(ask, number)
                    answer(outcome)

                return Run("", ask.plan, ground, listening=listening, record=record, answer=ended)

            return self._engine.attend(make, cancel)
        except Refused:  # nothing ran; one who is interrupted cannot know that
            _give_back(ask, number)
            self._live.pop(number, None)
            raise
        except BaseException:
            self._live.pop(number, None)
            raise

    def _earlier(self, ask: asks.Run, run: int, cancel: CancelToken | None) -> Ticket[Reached]:
        """What an earlier call has begun, here or elsewhere."""
        from nacre.pursue import Pursuing
        from nacre.reach import Known

        earlier = asks.Earlier(run=f"r{run}")

        def follow(ground: Ground, answer: Callable[[Reached], None]) -> Supervised:
            return Pursuing(ask, self._engine, ground, answer, lambda told: Known(earlier, told))

        return self._engine.attend(follow, cancel)

    def _there(
        self, ask: asks.Run, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Reached]:
        if self._remote is None:  # who never goes there need not load it
            from nacre.warden.remote import Remote

            self._remote = Remote
        number, remote = self._store.number(), self._remote
        ask = msgspec.structs.replace(
            ask, plan=_travelling(ask.plan), number=number, wishes=_wishes(listening)
        )
        name, keep, workspace = f"r{number}", ask.plan.keep, ask.workspace
        began = now()

        def make(ground: Ground, answer: Callable[[Reached], None]) -> "Remote":
            return remote(
                _for_the_warden(ask),
                ground,
                answer,
                name=name,
                lose=lambda: _lost(ask, number, began),
                fill=lambda outcome: _filled(outcome, workspace, keep),
                listening=listening,
            )

        if not (ask.until or ask.request):
            return self._engine.attend(make, cancel)
        from nacre.pursue import Pursuing  # who waits for no more than the end need not load it

        def pursue(ground: Ground, answer: Callable[[Reached], None]) -> Supervised:
            return Pursuing(ask, self._engine, ground, answer, lambda told: make(ground, told))

        return self._engine.attend(pursue, cancel)

    def attend(
        self, ask: asks.JobAsk, workspace: bytes, cancel: CancelToken | None
    ) -> Ticket[Listing | No]:
        from nacre.attend import attended

        return self._engine.attend(
            lambda ground, answer: attended(ask, workspace, self._engine, ground, answer), cancel
        )

    def jobs(self, ask: asks.Jobs, workspace: bytes, cancel: CancelToken | None) -> Ticket[Listing]:
        from nacre.gather import Gathering  # who has no jobs need not load it

        return self._engine.attend(
            lambda ground, answer: Gathering(ask, workspace, self._engine, ground, answer), cancel
        )


def _leave(leftover: Leftover) -> None:
    """What a command of ours has left running goes to the warden, with its pipes."""
    from nacre.warden.frames import Adopt
    from nacre.warden.inheritance import hand_over

    pipes = leftover.pipes
    if pipes and leftover.workspace is not None and leftover.run.startswith("r"):
        adopt = Adopt(
            run=leftover.run,
            workspace=leftover.workspace,
            streams=tuple(pipes),
            limit=leftover.limit,
        )
        if hand_over(adopt, list(pipes.values())):
            leftover.close()
    if not leftover.over:
        leftovers.shelve(leftover)


def _wishes(listening: Listening | None) -> Wishes | None:
    if listening is None:
        return None
    return Wishes(buffer=listening.buffer, full=listening.full)


def _travelling(plan: Plan) -> Plan:
    """With everything that a command here would have from us."""
    command = plan.command
    env = _environment() if command.env is None else command.env
    return msgspec.structs.replace(
        plan,
        command=msgspec.structs.replace(command, env=env, terms=terms.mine()),
        findings=(),
    )


def _environment() -> dict[bytes, bytes]:
    """All that this process has; copied in C where that can be had."""
    known = getattr(os.environb, "_data", None)
    return dict(known if isinstance(known, dict) else os.environb)


def _for_the_warden(ask: asks.Run) -> asks.Run:
    """What we wait for is no business of who runs it, but that we look."""
    if not ask.until:
        return ask
    return msgspec.structs.replace(ask, until=(), watched=True)


def _give_back(ask: asks.Run, number: int) -> None:
    """Nothing was run: the same may be asked again."""
    if ask.request is not None:
        requests.release(ask.request, ask.workspace, number)


def _lost(ask: asks.Run, number: int, began: float) -> Outcome | asks.Wait | None:
    """What is known of a run whose warden has hung up. None: it was not begun."""
    try:
        run = reading.find(number, ask.workspace)
    except (NoSuchRun, OSError):
        return None
    # The warden lives: only the line was lost. What was waited for already counts.
    patience = None if ask.patience is None else max(0.0, ask.patience - (now() - began))
    wait = asks.Wait(
        run=run.name,
        workspace=ask.workspace,
        patience=patience,
        input=isinstance(ask.plan.stdin, Held) and ask.patience is not None,
    )
    return reading.outcome(run, ask.plan.keep) or wait


def _filled(outcome: Outcome, workspace: bytes, keep: Keep) -> Outcome:
    """With the output that its warden has on disk only."""
    try:
        run = reading.find(reading.number(outcome.run), workspace)
        return reading.outcome(run, keep) or outcome
    except (NoSuchRun, OSError):
        return outcome
