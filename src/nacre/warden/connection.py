"""One client of the warden, which may ask many things at once."""

import os
import socket
from contextlib import suppress
from typing import Final, Protocol

import msgspec

import nacre
from nacre import asks
from nacre.asks import Done, No, Reached
from nacre.events import Chunk, Started
from nacre.loop import Loop
from nacre.refusals import Refused
from nacre.warden import frames
from nacre.warden.frames import (
    Adopt,
    Answered,
    Asked,
    Cancel,
    FromWarden,
    Heard,
    Hello,
    Leaving,
    More,
    Problem,
    Retire,
    Welcome,
)
from nacre.warden.hosted import Client, Hosted

_READ: Final = 64 * 1024  # more would be mapped and unmapped by malloc, each time
_MOST_UNREAD: Final = 64 * 1024 * 1024  # that a client has not taken
_FDS: Final = socket.CMSG_SPACE(16 * 4)
_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class House(Protocol):
    """What a connection wants of the warden."""

    loop: Loop
    used: bool
    connections: "set[Connection]"
    hosted: dict[str, Hosted]

    def run(self, ask: asks.Run, client: Client) -> Hosted:
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

    _deaf = False  # it does not hear us any more

    def __init__(self, warden: House, made: socket.socket) -> None:
        self._warden = warden
        self._socket = made
        self._fd = made.fileno()
        self._incoming = frames.Incoming()
        self._outgoing = bytearray()
        self._given: list[int] = []  # descriptors that came along
        self._welcome = False
        self.asked: dict[int, Asker] = {}
        made.setblocking(False)
        warden.loop.watch(self._fd, self._readable)

    def send(self, frame: FromWarden) -> None:
        if self._fd < 0 or self._deaf:
            return
        data = frames.packed(frame)
        if not self._outgoing:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self._deaf = True  # it may have said more before it went
                return
        if data:
            if not self._outgoing:
                self._warden.loop.await_room(self._fd, self._writable)
            self._outgoing += data
            if len(self._outgoing) > _MOST_UNREAD:
                self._gone()  # it asks, and never reads what we answer

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._outgoing:  # as much as it takes
            with suppress(OSError):
                self._socket.send(self._outgoing)
        self._warden.loop.forget(self._fd)
        self._fd = -1
        self._socket.close()
        self._warden.connections.discard(self)
        while self._given:
            os.close(self._given.pop())

    def _gone(self) -> None:
        """It is gone; what it has asked to be run goes on."""
        if self._fd < 0:
            return
        self.close()
        for asker in list(self.asked.values()):
            asker.leave()
        self.asked.clear()
        self._warden.rest()

    def _writable(self) -> None:
        try:
            sent = self._socket.send(memoryview(self._outgoing)[:_READ])
        except BlockingIOError:
            return
        except OSError:
            self._gone()
            return
        del self._outgoing[:sent]
        if not self._outgoing:
            self._warden.loop.enough_room(self._fd)

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ, _FDS, _CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            self._gone()
            return
        for _, _, passed in ancillary:
            self._given += memoryview(passed).cast("i").tolist()
        if not data:
            self._gone()
            return
        self._incoming.pieces.append(data)
        try:
            for frame in self._incoming.frames():
                self._handle(frames.from_client(frame))
                if self._fd < 0:
                    return
        except (frames.TooLong, msgspec.MsgspecError) as error:
            self.send(Problem(f"that is no frame: {error}"))
            self._gone()
        except Exception:
            self._gone()  # whatever it was, it must not come again
            raise

    def _handle(self, frame: frames.FromClient) -> None:
        if not self._welcome and not isinstance(frame, Hello):
            self.send(Problem("say Hello first"))
            self._gone()
            return
        match frame:
            case Asked(id=number, ask=ask):
                self._ask(number, ask)
            case Cancel(id=number, signal=signal_number):
                if (asker := self.asked.get(number)) is not None:
                    asker.cancel(signal_number)
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
            self.send(
                Problem(
                    f"this warden speaks protocols {frames.OLDEST} to {frames.PROTOCOL}, and you "
                    f"{protocol}; update the nacre that asks"
                )
            )
            self._gone()
            return
        self._welcome = True
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
            self.send(Problem(f"{number} is asked already"))
            self._gone()
            return
        self._warden.used = True
        asker = self.asked[number] = Asker(self, number)
        try:
            asker.ask(self._warden, ask)
        except Refused as refused:
            asker.answer(No(refusal=refused.refusal))

    def _adopt(self, frame: Adopt) -> None:
        count = len(frame.streams)
        fds, self._given = self._given[:count], self._given[count:]
        self._warden.take(frame, fds)

    def answered(self, number: int, answer: Reached, *, last: bool) -> None:
        if last:
            self.asked.pop(number, None)
        self.send(Answered(number, answer))
        if last:
            self._warden.rest()

    def heard(self, number: int, event: Started | Chunk) -> None:
        self.send(Heard(number, event))


class Asker:
    """One ask of a connection."""

    _hosted: Hosted | None = None
    _runs = False  # it is a run of its own that it has asked for

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number

    def ask(self, warden: House, ask: asks.Ask) -> None:
        """Raises Refused."""
        match ask:
            case asks.Run():
                self._runs = True
                self._hosted = warden.run(ask, self)
            case asks.Wait(run=name, workspace=workspace, patience=patience):
                self._hosted = warden.find(name, workspace)
                self._hosted.wait(self, patience)
            case asks.Write(run=name, workspace=workspace, data=data, eof=eof):
                warden.find(name, workspace).run.write(data, eof=eof)
                self.answer(Done())
            case asks.Signal(run=name, workspace=workspace, signal=number):
                warden.find(name, workspace).run.signal(number)
                self.answer(Done())
            case asks.End(run=name, workspace=workspace, signal=number, grace=grace):
                self._hosted = warden.find(name, workspace)
                self._hosted.wait(self, None)
                self._hosted.run.end(number, grace)

    def answer(self, answer: Reached) -> None:
        listens = self._hosted is not None and self._runs and self._hosted.wire is not None
        last = not (listens and isinstance(answer, asks.Running))
        self._connection.answered(self._number, answer, last=last)

    def hear(self, event: Started | Chunk) -> None:
        self._connection.heard(self._number, event)

    def cancel(self, number: int) -> None:
        if self._hosted is None:
            return
        if self._runs:
            self._hosted.run.cancel(number)
        else:
            self._hosted.leave(self)
            self.answer(Done(found=False))

    def more(self, count: int) -> None:
        if self._hosted is not None and self._hosted.wire is not None:
            self._hosted.wire.more(count)

    def leave(self) -> None:
        if self._hosted is not None:
            self._hosted.leave(self)
