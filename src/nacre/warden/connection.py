"""One client of the warden, which may ask many things at once."""

import os
import socket
from typing import Final, Protocol

import msgspec

import nacre
from nacre import asks
from nacre.asks import Done, No, Reached
from nacre.events import Chunk, Started
from nacre.loop import Loop
from nacre.refusals import AnyRefusal, CalledOff, Refused, Unavailable
from nacre.warden import frames
from nacre.warden.frames import (
    Adopt,
    Answered,
    Asked,
    Cancel,
    Enough,
    FromWarden,
    Heard,
    Hello,
    Leaving,
    More,
    Problem,
    Retire,
    Welcome,
)
from nacre.warden.hosted import Hosted
from nacre.warden.stream import Stream

_MOST_UNREAD: Final = 2 * frames.LONGEST  # that a client has not taken


class House(Protocol):
    """What a connection wants of the warden."""

    loop: Loop
    used: bool
    connections: "set[Connection]"
    hosted: dict[str, Hosted]

    def run(self, ask: asks.Run, client: "Asker") -> None:
        """Raises Refused."""
        ...

    def find(self, name: str, workspace: bytes) -> Hosted:
        """Raises Refused."""
        ...

    def take(self, frame: Adopt, fds: list[int]) -> None: ...

    def retire(self) -> None: ...

    def rest(self) -> None: ...


class Connection:
    """One client, which may ask many things at once."""

    protocol = 0  # that both sides speak; 0: it has not said Hello

    def __init__(self, warden: House, made: socket.socket) -> None:
        self._warden = warden
        self.asked: dict[int, Asker] = {}
        self._stream = Stream(
            made, warden.loop, heard=self._heard, gone=self._gone, takes_descriptors=True
        )

    def send(self, frame: FromWarden) -> None:
        """Raises OverflowError."""
        self._stream.send(frame)
        if self._stream.unsent > _MOST_UNREAD:
            self._hang_up()  # it asks, and never reads what we answer

    def close(self) -> None:
        self._warden.connections.discard(self)
        self._stream.close()

    def _gone(self, why: str) -> None:
        """It is gone, or makes no sense; what it has asked to be run goes on."""
        if why:
            self._stream.send(Problem(why))
        self._forget()

    def _forget(self) -> None:
        self._warden.connections.discard(self)
        while self.asked:
            self.asked.popitem()[1].leave()
        self._warden.rest()

    def _hang_up(self) -> None:
        self._forget()
        self._stream.close()

    def _complain(self, problem: str) -> None:
        self._stream.send(Problem(problem))
        self._hang_up()

    def _heard(self, data: bytes) -> None:
        try:
            self._handle(frames.from_client(data))
        except msgspec.MsgspecError:
            raise
        except Exception:
            self._hang_up()  # whatever it was, it must not come again
            raise

    def _handle(self, frame: frames.FromClient) -> None:
        if not self.protocol and not isinstance(frame, Hello):
            self._complain("say Hello first")
            return
        match frame:
            case Asked(id=number, ask=ask):
                self._ask(number, ask)
            case Cancel(id=number, signal=signal_number):
                if (asker := self.asked.get(number)) is not None:
                    asker.cancel(signal_number)
                else:  # it may never have come, or be answered already; then this says nothing new
                    self.send(Answered(number, No(refusal=CalledOff())))
            case Enough(id=number):
                if (asker := self.asked.get(number)) is not None:
                    asker.enough()
            case More(id=number, count=count):
                if (asker := self.asked.get(number)) is not None:
                    asker.more(count)
            case Adopt():
                self._adopt(frame)
            case Retire():
                self._warden.retire()
                self.send(Leaving())
            case Hello(protocol=protocol):
                self._hello(protocol)

    def _hello(self, protocol: int) -> None:
        if protocol < frames.OLDEST:
            self._complain(
                f"this warden speaks protocols {frames.OLDEST} to {frames.PROTOCOL}, and you "
                f"{protocol}; update the nacre that asks"
            )
            return
        self.protocol = min(protocol, frames.PROTOCOL)
        self.send(
            Welcome(
                protocol=frames.PROTOCOL,
                oldest=frames.OLDEST,
                version=nacre.__version__,
                pid=os.getpid(),
                runs=len(self._warden.hosted),
            )
        )

    def _ask(self, number: int, ask: asks.Ask) -> None:
        if number in self.asked:
            self._complain(f"{number} is asked already")
            return
        self._warden.used = True
        asker = self.asked[number] = Asker(self, number)
        try:
            asker.ask(self._warden, ask)
        except Refused as refused:
            asker.answer(No(refusal=refused.refusal))

    def _adopt(self, frame: Adopt) -> None:
        count, given = len(frame.streams), self._stream.descriptors
        fds, given[:] = given[:count], given[count:]
        self._warden.take(frame, fds)
        self.send(Answered(frame.id, Done()))

    def answered(self, number: int, answer: Reached, *, last: bool) -> None:
        if last:
            self.asked.pop(number, None)
        try:
            self.send(Answered(number, answer))
        except OverflowError:
            problem = "its output is too long for an answer; read it by the name of the run"
            self.send(Answered(number, No(refusal=Unavailable(problem=problem))))
        if last:
            self._warden.rest()

    def heard(self, number: int, event: Started | Chunk) -> None:
        self.send(Heard(number, event))


class Asker:
    """One ask of a connection."""

    hosted: Hosted | None = None
    _runs = False  # it is a run of its own that it has asked for

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def ask(self, warden: House, ask: asks.Ask) -> None:
        """Raises Refused."""
        match ask:
            case asks.Run():
                self._runs = True
                warden.run(ask, self)
            case asks.Wait(run=name, workspace=workspace, patience=patience, input=wanted):
                self.hosted = warden.find(name, workspace)
                self.hosted.wait(self, patience, for_input=wanted)
            case asks.Write(run=name, workspace=workspace, data=data, eof=eof, waits=waits):
                run = warden.find(name, workspace).run
                run.write(data, eof=eof, waits=waits, then=self._written)
            case asks.Signal(run=name, workspace=workspace, signal=number):
                warden.find(name, workspace).run.signal(number)
                self.answer(Done())
            case asks.End(run=name, workspace=workspace, signal=number, grace=grace):
                self.hosted = warden.find(name, workspace)
                self.hosted.wait(self, None)
                self.hosted.run.end(number, grace)

    def _written(self, refusal: AnyRefusal | None) -> None:
        self.answer(Done() if refusal is None else No(refusal=refusal))

    def answer(self, answer: Reached, *, last: bool = True) -> None:
        self._connection.answered(self._number, answer, last=last)

    def hear(self, event: Started | Chunk) -> None:
        self._connection.heard(self._number, event)

    def cancel(self, number: int) -> None:
        if self.hosted is None:
            self.answer(No(refusal=CalledOff()))  # a write that waits; what it gave may be read
        elif self._runs:
            self.hosted.run.cancel(number)
        else:
            self.hosted.leave(self)
            self.answer(Done(found=False))

    def enough(self) -> None:
        if self.hosted is not None:
            self.hosted.enough(self)

    def more(self, count: int) -> None:
        if self.hosted is not None and self.hosted.wire is not None:
            self.hosted.wire.more(count)

    def leave(self) -> None:
        if self.hosted is not None:
            self.hosted.leave(self)
