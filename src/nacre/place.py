"""Here or there: in this process, or in the warden.

Patience decides. Whoever waits to the end runs it here; whoever may want it handed back while it
runs has it started in the warden, since nothing can be handed over safely later. A host may choose
that everything runs there (`warden`), or nothing does (`here`).
"""

import os
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
from nacre.engine.supervise import Supervised
from nacre.events import Listening
from nacre.outcome import Outcome
from nacre.plan import Held, Keep, Plan
from nacre.process import terms
from nacre.refusals import NoBackground, Refused
from nacre.store import reading
from nacre.store.reading import NoSuchRun
from nacre.store.store import Store

if TYPE_CHECKING:
    from nacre.warden.remote import Remote

Where = Literal["auto", "here", "warden"]


class Place:
    _remote: "type[Remote] | None" = None

    def __init__(self, engine: Engine, store: Store, where: Where) -> None:
        self._engine = engine
        self._store = store
        self.where = where
        if where != "here":
            engine.leave = _leave

    def begin(
        self, ask: asks.Run, listening: Listening | None, cancel: CancelToken | None
    ) -> Ticket[Outcome] | Ticket[Reached]:
        """Start it, here or there. Raises Refused when nothing can be started at all."""
        here = self.where == "here"
        if here and (ask.patience == 0 or ask.until or isinstance(ask.plan.stdin, Held)):
            raise Refused(NoBackground())
        if here and ask.request is not None:
            return self._requested(ask, ask.request, listening, cancel)
        if here or (self.where == "auto" and ask.patience is None):
            record = self._store.record(ask.plan, ask.workspace)
            return self._engine.begin(ask.plan, listen=listening, cancel=cancel, record=record)
        return self._there(ask, listening, cancel)

    def _requested(
        self,
        ask: asks.Run,
        request: asks.Request,
        listening: Listening | None,
        cancel: CancelToken | None,
    ) -> Ticket[Outcome] | Ticket[Reached]:
        number = self._store.number()
        claimed = self._store.claim(request, ask.workspace, number)
        if claimed == number:
            record = self._store.record(ask.plan, ask.workspace, number)
            return self._engine.begin(ask.plan, listen=listening, cancel=cancel, record=record)
        from nacre.pursue import Pursuing
        from nacre.reach import Known

        earlier = asks.Earlier(run=f"r{claimed}")

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

        def make(ground: Ground, answer: Callable[[Reached], None]) -> "Remote":
            return remote(
                _for_the_warden(ask),
                ground,
                answer,
                name=name,
                lose=lambda: _lost(ask, number),
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


def _lost(ask: asks.Run, number: int) -> Outcome | asks.Wait | None:
    """What is known of a run whose warden has hung up. None: it was not begun."""
    try:
        run = reading.find(number, ask.workspace)
    except (NoSuchRun, OSError):
        return None
    # The warden lives: only the line was lost.
    wait = asks.Wait(
        run=run.name,
        workspace=ask.workspace,
        patience=ask.patience,
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
