"""One run of the warden's, and who wants to know of it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from nacre import asks
from nacre.asks import Reached, Running
from nacre.engine.asking import Asking
from nacre.engine.ground import Ground
from nacre.engine.run import Run
from nacre.events import Chunk, Started
from nacre.loop import Timer
from nacre.outcome import Outcome
from nacre.plan import Held
from nacre.store.record import Record
from nacre.text import decode
from nacre.warden.wire import Wire

# One that somebody waits for has its output on disk after so long: others may want to read it.
_SOON = 0.25
_SETUP = 0.1  # seconds until we look again whether a set-up has been read

Over = Callable[["Hosted", Outcome], None]


class Client(Protocol):
    """Who asks; one ask at a time of perhaps many."""

    def answer(self, answer: Reached, *, last: bool = True) -> None:
        """`last`: nothing more will be said about what it has asked."""
        ...

    def hear(self, event: Started | Chunk) -> None: ...


class Hosted:
    handed = False
    _patience: Timer | None = None
    _soon: Timer | None = None

    def __init__(
        self, ask: asks.Run, client: Client, record: Record, ground: Ground, over: Over
    ) -> None:
        self.ask = ask
        self._record = record
        self.workspace = ask.workspace
        self.command = decode(ask.plan.command.given)
        self._client: Client | None = client  # who has asked for it, until it is answered
        self.job = ask.job
        self._waiting: dict[Client, Timer | None] = {}
        self._curious: set[Client] = set()  # who of those wants to hear that it waits for input
        self._ground = ground
        self._over = over
        self.wire: Wire | None = None
        if ask.wishes is not None:
            self.wire = Wire(ask.wishes, client.hear, room=self._room, heard=self._heard)
        self.run = Run(
            "",
            ask.plan,
            ground,
            hearing=self.wire,
            record=record,
            answer=self._ended,
            started=self._started,
        )
        self.name = self.run.name = record.number()
        self._asking = Asking(ground.loop, self.run.question, self._asks)

    def begin(self) -> None:
        self.run.begin()
        if self.run.queued and self.ask.patience is not None:
            self._patience = self._ground.loop.after(self.ask.patience, self._still_in_line)

    def _still_in_line(self) -> None:
        """Its caller has waited, and nothing was begun. While the user's set-up is read, which is
        done once, that does not count."""
        if self.run.reads_setup:
            self._patience = self._ground.loop.after(_SETUP, self._still_in_line)
        else:
            self._impatient()

    def wait(self, client: Client, patience: float | None, *, for_input: bool = False) -> None:
        """Somebody else wants to know how it ends, or that it waits for input."""
        timer = None
        if patience is not None:
            timer = self._ground.loop.after(max(0.0, patience), lambda: self._tell(client))
        self._waiting[client] = timer
        if for_input and isinstance(self.ask.plan.stdin, Held):
            self._curious.add(client)
            self._asking.begin()

    def enough(self, client: Client) -> None:
        """That one waits no longer."""
        if client is self._client:
            self._impatient()
        else:
            self._tell(client)

    def leave(self, client: Client) -> None:
        """That one is gone, or has called its waiting off: the run goes on."""
        self._forget(client)
        if client is self._client:
            self._client = None
            self._hand_over()
            if self.wire is not None:
                self.wire.cut()

    def _forget(self, client: Client) -> None:
        timer = self._waiting.pop(client, None)
        if timer is not None:
            timer.cancel()
        self._curious.discard(client)

    def _started(self) -> None:
        loop, patience = self._ground.loop, self.ask.patience
        if self._client is None:
            self._hand_over()  # it went while this stood in line
        elif patience is not None and patience <= 0:
            self._impatient()
        else:
            self._soon = loop.after(0.0 if self.ask.watched else _SOON, self._to_disk)
            if patience is not None:
                if self._patience is not None:
                    self._patience.cancel()  # it has stood in line
                self._patience = loop.after(patience, self._impatient)
                if isinstance(self.ask.plan.stdin, Held):
                    self._asking.begin()

    def _asks(self) -> None:
        """It waits for input: whoever wants to know that has waited long enough."""
        if self._client is not None and self.ask.patience is not None:
            self._impatient(asks=True)
        for client in list(self._curious):
            self._tell(client, asks=True)

    def _impatient(self, *, asks: bool = False) -> None:
        """Its caller waits no longer."""
        if not self.run.under_way and not self.run.queued:
            return  # it is just ending, and that is the better answer
        running, client = self._hand_over(), self._client
        if self.run.queued:
            self._record.begin()  # it will be run, and can be found already now
            running = self.run.running()
        if running is not None and asks:
            running = msgspec.structs.replace(running, asks=True)
        if self.wire is None:
            self._client = None  # else it hears how it ends
        if client is not None and running is not None:
            client.answer(running, last=self.wire is None)

    def _to_disk(self) -> None:
        if self.run.under_way:
            self.run.to_disk()

    def _hand_over(self) -> Running | None:
        if self.handed or not self.run.under_way:
            return None
        self.handed = True
        return self.run.hand_over(job=self.job)

    def _tell(self, client: Client, *, asks: bool = False) -> None:
        """As it is now, to one whose patience is over."""
        if client in self._waiting:
            asks = asks or (client in self._curious and self.run.question() is not None)
            self._forget(client)
            running = self.run.running()
            client.answer(msgspec.structs.replace(running, asks=asks) if asks else running)

    def _ended(self, outcome: Outcome) -> None:
        self._asking.stop()
        for timer in (self._patience, self._soon):
            if timer is not None:
                timer.cancel()
        waiting, self._waiting = self._waiting, {}
        client, self._client = self._client, None
        try:
            if client is not None:
                client.answer(outcome)
            for each, timer in waiting.items():
                if timer is not None:
                    timer.cancel()
                each.answer(outcome)
        finally:
            self._over(self, outcome)

    def _room(self) -> None:
        self._ground.loop.post(self.run.hear_again)

    def _heard(self) -> None:
        self._ground.loop.post(self.run.heard)
