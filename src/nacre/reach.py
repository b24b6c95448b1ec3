"""Reaching a run by its name, whoever runs it: the warden, another one before it, a host, nobody.

The store says who its owner is. A warden is asked; a host cannot be, so its runs are watched and
signalled by what identifies them; of one whose owner is dead there is only what it has left behind.
Everything here is waited for like a command: by a thread, or in an event loop.
"""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre import asks
from nacre.asks import Done, No, Reached, Running
from nacre.cancel import CancelToken
from nacre.engine.engine import Engine, Ticket
from nacre.engine.ground import Ground
from nacre.engine.supervise import Supervised
from nacre.loop import Call, Timer, now
from nacre.outcome import Lost, Outcome, state_of
from nacre.plan import KIB, MIB, Keep
from nacre.process.tag import Tag
from nacre.process.tag import read as read_tag
from nacre.process.tree import Remains
from nacre.refusals import Refused, Unavailable, UnknownRun
from nacre.store import owner, reading
from nacre.store.reading import NoSuchRun, Run
from nacre.warden import door
from nacre.warden.line import Line
from nacre.warden.remote import Remote

KEEP: Final = Keep(whole=MIB, head=256 * KIB, tail=768 * KIB)
GRACE: Final = 5.0
# How soon we look again at what nobody tells us of.
_LOOK: Final = 0.05
_SURRENDER: Final = 2.0
# How long it takes to see that a run waits for input.
_QUESTION: Final = 0.4


class Reach:
    """The runs of one workspace."""

    def __init__(self, engine: Engine, workspace: bytes) -> None:
        self._engine = engine
        self.workspace = workspace

    def find(self, name: str) -> Run:
        """Raises NoSuchRun, OSError."""
        return reading.find(reading.number(name), self.workspace)

    def wait(
        self, name: str, patience: float | None, cancel: CancelToken | None = None
    ) -> Ticket[Outcome | None]:
        """How it ended; None when it has not within the patience. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._engine.attend(
            lambda ground, answer: self.waiting(run, ground, answer, patience), cancel
        )

    def end(self, name: str, number: int, grace: float) -> Ticket[Outcome | None]:
        """This signal, the grace, KILL, to all of it; then how it ended. None when something
        could not be killed. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._engine.attend(
            lambda ground, answer: self.ending(run, ground, answer, number, grace)
        )

    def waiting(
        self,
        run: Run,
        ground: Ground,
        answer: "Answer",
        patience: float | None = None,
        *,
        asked: Call | None = None,
    ) -> Supervised:
        """To be begun on this ground. `asked` is called, once, when it waits for input."""
        return _Waiting(run, self.workspace, patience, ground, answer, asked)

    def glance(self, run: Run, ground: Ground, answer: Callable[[Reached], None]) -> Supervised:
        """How it stands at this moment; to be begun on this ground."""
        ask = asks.Wait(run=run.name, workspace=self.workspace, patience=0.0, input=True)
        return self._asked(run, ground, answer, ask)

    def writing(
        self,
        run: Run,
        ground: Ground,
        answer: Callable[[Reached], None],
        data: bytes,
        *,
        eof: bool,
    ) -> Supervised:
        """To be begun on this ground."""
        ask = asks.Write(run=run.name, workspace=self.workspace, data=data, eof=eof)
        return self._asked(run, ground, answer, ask)

    def signalling(
        self, run: Run, ground: Ground, answer: Callable[[Reached], None], number: int
    ) -> Supervised:
        """To be begun on this ground."""
        ask = asks.Signal(run=run.name, workspace=self.workspace, signal=number)
        if _kept(run):
            return self._asked(run, ground, answer, ask)
        remains = _remains(run)
        if remains is not None and remains.signal(number):
            return Known(Done(), answer)
        return Known(_no(run), answer)

    def _asked(
        self, run: Run, ground: Ground, answer: Callable[[Reached], None], ask: asks.Ask
    ) -> Supervised:
        if not _kept(run):
            return Known(_no(run), answer)
        return Remote(ask, ground, answer, line=_line(run, ground))

    def ending(
        self,
        run: Run,
        ground: Ground,
        answer: "Answer",
        number: int = signals.SIGTERM,
        grace: float = GRACE,
    ) -> Supervised:
        """To be begun on this ground."""
        return _Ending(run, self.workspace, number, grace, ground, answer)

    def signal(self, name: str, number: int) -> Ticket[Reached]:
        """To everything that it has started. Raises NoSuchRun, OSError."""
        run = self.find(name)
        return self._engine.attend(
            lambda ground, answer: self.signalling(run, ground, answer, number)
        )

    def write(self, name: str, data: bytes, *, eof: bool, waits: bool = False) -> Ticket[Reached]:
        """`waits`: until there is room, if the program does not read. Raises NoSuchRun, OSError."""
        run = self.find(name)
        ask = asks.Write(run=run.name, workspace=self.workspace, data=data, eof=eof, waits=waits)
        return self._engine.attend(lambda ground, answer: self._asked(run, ground, answer, ask))


def _why_not(run: Run) -> str:
    """Why nothing can be said to it."""
    if run.state is not None:
        return f"{run.name} has ended ({state_of(run.state)})"
    if run.owner is not None and run.owner.kind == "host":
        return (
            f"{run.name} runs in another program (process {run.owner.pid}), and only that could "
            "write to it"
        )
    return f"{run.name} runs on, but the warden that ran it was killed; it can only be ended"


def checked(answer: Reached) -> None:
    """Raises Refused for what was not done."""
    if isinstance(answer, No):
        raise Refused(answer.refusal)


def _kept(run: Run) -> bool:
    """Whether it runs in a warden that can be asked."""
    owned = run.owner
    return run.ended is None and owned is not None and owned.kind == "warden" and owned.lives


def _line(run: Run, ground: Ground) -> Line | None:
    """To the very warden that has it, which may have given its place to a newer one; None: the
    usual one."""
    assert run.owner is not None
    if owner.read(door.signed() or "") == run.owner:
        return None
    return Line(ground.loop, door.own_socket(run.owner.pid))


def _is_recovered(run: Run) -> bool:
    """Whether another warden than the one that had it is there to see how it ends."""
    current, owned = owner.read(door.signed() or ""), run.owner
    watched = run.begun.shell is not None and owned is not None and owned.boot == owner.boot()
    return watched and current is not None and current != owned and current.lives


def tag_of(run: Run) -> Tag | None:
    """By which all that it has started is known; None: that was before the machine was started."""
    owned = run.owner
    return None if owned is None or owned.boot != owner.boot() else read_tag(run.begun.tag)


def _remains(run: Run) -> Remains | None:
    """What can still be found of it; None: nothing, ever."""
    mark = tag_of(run)
    return None if mark is None else Remains(mark)


def _no(run: Run) -> No:
    return No(refusal=Unavailable(problem=_why_not(run)))


class Known:
    """An answer that is there already."""

    name = ""

    def __init__(self, known: Reached, answer: Callable[[Reached], None]) -> None:
        self._known = known
        self._answer = answer

    def begin(self) -> None:
        self._answer(self._known)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """It is over."""

    def signal(self, number: int) -> None:
        """It is over."""

    def work(self) -> None:
        """It is done."""

    def enough(self) -> None:
        """It is there."""


Answer = Callable[[Outcome | None], None]


class _Watching:
    """What waiting and ending have in common. Its owner is asked, if it can be; but whether it
    answers or not, our own clock counts, and what the store says."""

    _remote: Remote | None = None
    _over = False
    _doubt_until = 0.0

    def __init__(self, run: Run, workspace: bytes, ground: Ground, answer: Answer) -> None:
        self.name = run.name
        self._run = run
        self._workspace = workspace
        self._ground = ground
        self._answer = answer
        self._timers: list[Timer] = []

    def signal(self, number: int) -> None:
        """What is sent to whoever waits is not for the run."""

    def work(self) -> None:
        if self._remote is not None:
            self._remote.work()

    def cancel(self, number: int = signals.SIGTERM) -> None:
        """Wait no longer; the run goes on."""
        del number
        self._settle(None)

    def _ask(self, ask: asks.Ask) -> None:
        line = _line(self._run, self._ground)
        self._remote = Remote(ask, self._ground, self._heard, line=line)
        self._remote.begin()

    def _heard(self, answer: Reached) -> None:
        raise NotImplementedError

    def _known(self) -> Outcome | None:
        """What the store says; None: it has no end yet."""
        try:
            self._run = reading.find(self._run.number, self._workspace)
        except (NoSuchRun, OSError):
            return _lost(self._run)  # swept, or removed
        known = reading.outcome(self._run, KEEP)
        if known is None or self._run.ended is not None or not _is_recovered(self._run):
            return known
        # Nobody has written down how it ended; but a new warden may be about to.
        self._doubt_until = self._doubt_until or now() + _SURRENDER
        return known if now() >= self._doubt_until else None

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self._ground.loop.after(seconds, call))

    def _settle(self, outcome: Outcome | None) -> None:
        if self._over:
            return
        self._over = True
        for timer in self._timers:
            timer.cancel()
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.give_up()
        self._answer(outcome)


def _lost(run: Run) -> Outcome:
    return Outcome(
        run=run.name,
        ending=Lost(last_seen=run.seconds),
        output=run.capture(KEEP),
        seconds=run.seconds,
    )


class _Waiting(_Watching):
    def __init__(
        self,
        run: Run,
        workspace: bytes,
        patience: float | None,
        ground: Ground,
        answer: Answer,
        asked: Call | None,
    ) -> None:
        super().__init__(run, workspace, ground, answer)
        self._patience = patience
        self._asked = asked

    def begin(self) -> None:
        if self._patience is not None and self._run.state is None:
            # A question takes a look, also of one who does not wait for it.
            spare = _QUESTION if self._asked is not None and self._run.begun.open_stdin else 0.0
            self._later(max(self._patience, spare), lambda: self._settle(None))
        if _kept(self._run):
            self._ask_for_its_end(for_input=self._asked is not None)
        else:
            self._look()

    def _ask_for_its_end(self, *, for_input: bool) -> None:
        self._ask(asks.Wait(run=self.name, workspace=self._workspace, input=for_input))

    def _heard(self, answer: Reached) -> None:
        self._remote = None
        if self._over:
            return
        known = self._known()
        if known is not None:
            self._settle(known)
        elif isinstance(answer, Running):
            if self._asked is not None:
                self._asked()
            if not self._over:
                self._ask_for_its_end(for_input=False)
        elif isinstance(answer, Outcome):
            self._settle(answer)  # it could not be written down
        elif isinstance(answer, No) and isinstance(answer.refusal, UnknownRun):
            self._settle(_lost(self._run))  # its owner lives, and does not know it
        else:
            self._look()

    def _look(self) -> None:
        """Nobody tells us of it: look again and again."""
        if self._over:
            return
        known = self._known()
        if known is not None:
            self._settle(known)
        else:
            self._later(_LOOK, self._look)


class _Ending(_Watching):
    """Its owner ends it; or, when that is no warden, or says nothing, we do, by what identifies
    all that it has started."""

    def __init__(
        self,
        run: Run,
        workspace: bytes,
        number: int,
        grace: float,
        ground: Ground,
        answer: Answer,
    ) -> None:
        super().__init__(run, workspace, ground, answer)
        self._signal = number
        self._grace = grace
        self._remains = _remains(run)

    def begin(self) -> None:
        if _kept(self._run):
            ask = asks.End(
                run=self.name, workspace=self._workspace, signal=self._signal, grace=self._grace
            )
            self._later(self._grace + _SURRENDER, self._sweep)
            self._ask(ask)
        else:
            self._sweep()

    def _heard(self, answer: Reached) -> None:
        """It has ended; what it has left behind goes, too."""
        self._remote = None
        if isinstance(answer, Outcome):
            self._told = answer
        self._sweep()

    _told: Outcome | None = None
    _kill_at = _give_up_at = 0.0

    def _sweep(self) -> None:
        if self._over or self._give_up_at:
            return
        self._kill_at = now() + self._grace
        self._give_up_at = self._kill_at + _SURRENDER
        if self._remains is not None:
            self._remains.signal(self._signal)
        self._check()

    def _check(self) -> None:
        if self._over:
            return
        left = self._remains.members() if self._remains is not None else []
        known = self._known() or self._told
        if not left and known is not None:
            self._settle(known)
            return
        if now() >= self._give_up_at:
            # Either something cannot be killed, or nobody says how it ended.
            self._settle(None if left else _lost(self._run))
            return
        if left and now() >= self._kill_at and self._remains is not None:
            self._remains.signal(signals.SIGKILL)
        self._later(_LOOK, self._check)
