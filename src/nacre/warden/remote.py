"""One ask of the warden, waited for and cancelled as if it were a run of our own."""

import signal as signals
from collections.abc import Callable
from typing import Final

from nacre import asks
from nacre.asks import Ask, No, Reached, Running
from nacre.engine.ground import Ground
from nacre.engine.relay import Relay, relayed
from nacre.events import Chunk, Finished, Listening, Started
from nacre.outcome import Capture, NotStarted, Outcome
from nacre.refusals import AnyRefusal, CalledOff, Unavailable
from nacre.warden.frames import Enough, More
from nacre.warden.line import Line, line_of

_LAST_WORDS: Final = 1.0  # how long the listener of something cancelled is waited for

# What is known of a run whose warden has hung up: how it ended, that it was never begun (and may be
# asked for again: None), or that it lives and can be waited for.
Lose = Callable[[], Outcome | asks.Wait | None]


class Remote:
    number = 0  # in its connection
    handed = False  # it has been answered that it goes on
    _again = 2  # times that we ask another warden
    _on_disk = False  # the warden has its output on disk only
    _owed = 0  # bytes that our listener has not heard yet
    _unwanted = False
    _has_enough = False
    _held: Reached | None = None  # the answer, until our listener has heard everything

    def __init__(
        self,
        ask: Ask,
        ground: Ground,
        answer: Callable[[Reached], None],
        *,
        name: str = "",
        line: Line | None = None,
        lose: Lose | None = None,
        fill: Callable[[Outcome], Outcome] | None = None,
        listening: Listening | None = None,
    ) -> None:
        """`line` is one for this ask alone. `fill` puts the output into the outcome of a run that
        its warden has on disk only."""
        self.name = name
        self.ask = ask
        self._ground = ground
        self._answer: Callable[[Reached], None] | None = answer
        self._lose = lose
        self._fill = fill
        self._line = line or line_of(ground)
        self._own = line is not None
        self._listening = listening
        self._relay = None if listening is None else self._make_relay(listening)

    # What the supervisor does with it.

    def begin(self) -> None:
        self._line.ask(self)

    def cancel(self, number: int = signals.SIGTERM) -> None:
        self._unwanted = True
        if self._answer is None:
            return
        if self._held is not None:
            self._deliver()  # only its listener is still busy, and shall not be waited for
        elif not self._line.cancel(self, number):
            self.refused(CalledOff())  # before it was begun

    def enough(self) -> None:
        """Wait no longer: have it handed back now, or as soon as it has begun."""
        self._has_enough = True
        self._line.tell(self, Enough(self.number))

    def sent(self) -> None:
        """It is asked; perhaps not for the first time."""
        if self._has_enough:
            self._line.tell(self, Enough(self.number))

    def give_up(self) -> None:
        """Call it off, and hear no more of it."""
        self._line.cancel(self, signals.SIGTERM)
        self._line.forget(self)
        self._answer = None
        if self._own:
            self._line.close()

    def signal(self, number: int) -> None:
        if isinstance(self.ask, asks.Run):
            ask = asks.Signal(run=self.name, workspace=self.ask.workspace, signal=number)
            self._line.remark(ask)

    def work(self) -> None:
        self._line.resume()

    # What the line has heard.

    def answered(self, answer: Reached) -> None:
        if isinstance(answer, Running):
            self.handed = self._on_disk = True
            if self._relay is None:
                self._line.forget(self)
            self._settle(answer)
            return
        self._line.forget(self)
        if isinstance(answer, Outcome) and self._on_disk and self._fill is not None:
            answer = self._fill(answer)
        if self._relay is None or self._listening is None:
            self._settle(answer)
            return
        self._held = answer
        self._relay.finish(Finished(run=self.name, outcome=_outcome(self.name, answer)))
        linger = self._listening.linger
        if self._unwanted:
            linger = _LAST_WORDS if linger is None else min(linger, _LAST_WORDS)
        if linger is not None and self._answer is not None:
            self._ground.loop.after(linger, self._deliver)

    def heard(self, event: Started | Chunk) -> None:
        if self._relay is None:
            return
        if isinstance(event, Started):
            self.name = event.run
            self._relay.start(event)
            return
        if event.skipped:
            self._relay.missed(event.stream, event.skipped)
        self._relay.chunk(event.stream, event.data, may_skip=self._unwanted)
        self._owed += len(event.data)
        if not self._relay.full:
            self._room()

    def refused(self, refusal: AnyRefusal) -> None:
        self.answered(No(refusal=refusal))

    def lost(self) -> bool:
        """The warden has hung up. False when it is to be asked again, or the next one: whatever it
        begins it writes down first."""
        if self._lose is None:
            self.refused(Unavailable(problem="the warden died before it could answer; ask again"))
            return True
        known = self._lose()
        if isinstance(known, asks.Wait):
            self.ask, self._on_disk = known, True
        if not isinstance(known, Outcome) and self._again > 0 and not self._unwanted:
            self._again -= 1
            return False
        if isinstance(known, Outcome):
            self.answered(known)
        else:
            self.refused(Unavailable(problem="the warden died before it could start it; try again"))
        return True

    def abandon(self) -> None:
        """Nobody listens any more."""
        if self._relay is not None:
            self._relay.abandon()

    def _deliver(self) -> None:
        answer, self._held = self._held, None
        if answer is not None:
            self._settle(answer)

    def _settle(self, answer: Reached) -> None:
        """Answer, once."""
        tell, self._answer = self._answer, None
        if self._own:
            self._line.close()
        if tell is not None:
            tell(answer)

    # Telling a listener of ours.

    def _make_relay(self, listening: Listening) -> Relay:
        return relayed(listening, self._ground.loop, room=self._room, heard=self._heard)

    def _room(self) -> None:
        owed, self._owed = self._owed, 0
        if owed:
            self._line.tell(self, More(self.number, owed))

    def _heard(self) -> None:
        if self._relay is not None:
            self._relay.join()
        self._deliver()


def _outcome(name: str, answer: Reached) -> Outcome:
    """What a listener is told at the end."""
    if isinstance(answer, Outcome):
        return answer
    why = answer.refusal if isinstance(answer, No) else CalledOff()
    return Outcome(run=name, ending=NotStarted(why), output=Capture())
