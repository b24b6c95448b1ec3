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
from nacre.asks import Listing, Reached, Wishes
from nacre.cancel import CancelToken
from nacre.engine import leftovers
from nacre.engine.engine import Engine, Ticket
from nacre.engine.leftovers import Leftover
from nacre.engine.run import Ground
from nacre.engine.supervise import Supervised
from nacre.events import Listening
from nacre.outcome import Outcome
from nacre.plan import Keep, Plan
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
        if here and ask.patience == 0:
            raise Refused(NoBackground())
        if here or (self.where == "auto" and ask.patience is None):
            record = self._store.record(ask.plan, ask.workspace)
            return self._engine.begin(ask.plan, listen=listening, cancel=cancel, record=record)
        return self._there(ask, listening, cancel)

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

        def make(ground: Ground, answer: Callable[[Reached], None]) -> Supervised:
            return remote(
                ask,
                ground,
                answer,
                name=name,
                lose=lambda: _lost(number, workspace, keep),
                fill=lambda outcome: _filled(outcome, workspace, keep),
                listening=listening,
            )

        return self._engine.attend(make, cancel)

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


def _lost(number: int, workspace: bytes, keep: Keep) -> Outcome | asks.Wait | None:
    """What is known of a run whose warden has hung up. None: it was not begun."""
    try:
        run = reading.find(number, workspace)
    except (NoSuchRun, OSError):
        return None
    wait = asks.Wait(run=run.name, workspace=workspace)  # the warden lives: only the line was lost
    return reading.outcome(run, keep) or wait


def _filled(outcome: Outcome, workspace: bytes, keep: Keep) -> Outcome:
    """With the output that its warden has on disk only."""
    try:
        run = reading.find(reading.number(outcome.run), workspace)
        return reading.outcome(run, keep) or outcome
    except (NoSuchRun, OSError):
        return outcome
