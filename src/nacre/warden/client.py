"""Asking the warden, from a loop that somebody drives.

A `Line` is the connection of one loop: made at the first ask, which starts a warden if there is
none, and kept for the next. Many asks go over it at once. `Remote` is one ask, waited for and
cancelled like a run of our own. When the warden dies, every ask is answered: with what is known.
"""

import os
import signal as signals
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

import nacre
from nacre import asks
from nacre.asks import Ask, No, Reached, Running
from nacre.engine.relay import Relay
from nacre.engine.run import Ground
from nacre.events import Chunk, Finished, Listening, Started
from nacre.loop import Loop, now
from nacre.outcome import Capture, NotStarted, Outcome
from nacre.refusals import AnyRefusal, CalledOff, NoProcesses, Refused, Unavailable
from nacre.warden import door, frames
from nacre.warden.frames import (
    Answered,
    Asked,
    Cancel,
    FromClient,
    FromWarden,
    Heard,
    Hello,
    Leaving,
    More,
    Problem,
    Retire,
    Welcome,
)

_READ: Final = (64 * 1024,)  # more would be mapped and unmapped by malloc, each time
_PATIENCE: Final = 10.0  # for a warden that starts
_PAUSE: Final = 0.003
_LAST_WORDS: Final = 1.0  # how long the listener of something cancelled is waited for


class Line:
    """The connection of one loop to one warden."""

    _socket: socket.socket | None = None
    _fd = -1
    _inode = 0
    _welcome: Welcome | None = None
    _leaving = False
    _starting = -1  # what says when the warden that we have started can be reached
    _deadline = 0.0
    _retired = False  # we have asked an older one to give up its place

    def __init__(self, loop: Loop, name: str = door.SOCKET) -> None:
        """`name` is that of a certain warden; only the usual one is started."""
        self._loop = loop
        self._name = name
        self._numbers = 0
        self._incoming = frames.Incoming()
        self._outgoing = bytearray()
        self._asks: dict[int, Remote] = {}
        self._unsent: list[Remote] = []  # until there is a warden

    @property
    def intact(self) -> bool:
        """Whether our socket is still ours: a host may have closed whatever was open."""
        if self._fd < 0:
            return True
        try:
            status = os.fstat(self._fd)
        except OSError:
            return False
        return stat.S_ISSOCK(status.st_mode) and status.st_ino == self._inode

    @property
    def idle(self) -> bool:
        return not self._asks and not self._unsent

    def ask(self, remote: "Remote") -> None:
        if self._socket is not None and not self.intact:
            self._forget_socket()
        if self._welcome is not None and not self._leaving and self.idle:
            self._readable()  # it may have said that it goes
        if self._welcome is not None and not self._leaving:
            self._send_ask(remote)
            return
        self._unsent.append(remote)
        if self._socket is None and self._starting < 0:
            self._deadline = now() + _PATIENCE
            self._connect()

    def cancel(self, remote: "Remote", number: int) -> bool:
        """False when it has not been asked yet, and will not be."""
        if self._asks.get(remote.number) is remote:
            self._send(Cancel(remote.number, number))
            return True
        if remote in self._unsent:
            self._unsent.remove(remote)
        return False

    def signal(self, remote: "Remote", number: int) -> None:
        if isinstance(remote.ask, asks.Run) and self._asks.get(remote.number) is remote:
            self._numbers += 1  # whose answer nobody waits for
            ask = asks.Signal(run=remote.name, workspace=remote.ask.workspace, signal=number)
            self._send(Asked(self._numbers, ask))

    def more(self, remote: "Remote", count: int) -> None:
        if self._asks.get(remote.number) is remote:
            self._send(More(remote.number, count))

    def forget(self, remote: "Remote") -> None:
        self._asks.pop(remote.number, None)

    def resume(self) -> None:
        """Go on with what an interrupt has left undone."""
        self._process()

    def stop_listening(self) -> None:
        """To runs that go on, of which we wanted to hear more."""
        for number, remote in list(self._asks.items()):
            if remote.handed:
                del self._asks[number]
                remote.abandon()

    def forked(self) -> None:
        """In a fork: the connection is the parent's, and so is the epoll that it is watched by."""
        if self._socket is not None and self.intact:
            self._socket.close()
        elif self._socket is not None:
            self._socket.detach()
        if self._starting >= 0:
            os.close(self._starting)
        self._socket, self._fd, self._starting, self._welcome = None, -1, -1, None
        self._asks.clear()
        self._unsent.clear()

    def close(self) -> None:
        """Runs that we have asked for go on."""
        self.stop_listening()
        self._forget_starting()
        if self._socket is not None:
            if self.intact:
                self._disconnect()
            else:
                self._forget_socket()

    # Finding one.

    def _connect(self) -> None:
        try:
            made = door.connect(self._name)
            if made is None:
                self._start()
                return
        except (OSError, door.NotOurs) as error:
            self._fail(str(error))
            return
        self._socket, self._fd = made, made.fileno()
        self._inode = os.fstat(self._fd).st_ino
        self._leaving = False
        self._incoming = frames.Incoming()
        self._outgoing.clear()
        self._loop.watch(self._fd, self._readable)
        self._send(Hello(protocol=frames.PROTOCOL, version=nacre.__version__))

    def _start(self) -> None:
        """Nobody listens. Start one, once, and come back until it does."""
        if self._name != door.SOCKET:
            self._fail("the warden that ran it is gone")
            return
        if self._starting < 0:
            try:
                self._starting = door.start()
            except (OSError, Refused) as error:
                self._fail(str(error))
                return
            self._loop.watch(self._starting, self._started)
        elif now() > self._deadline:
            self._fail(f"it did not start in {_PATIENCE:g} s; {door.complaint()}".rstrip("; "))
            return
        self._loop.after(_PAUSE, self._again)

    def _again(self) -> None:
        if self._socket is None and self._unsent:
            self._connect()

    def _started(self) -> None:
        said = b""
        with suppress(OSError):
            said = os.read(self._starting, 1)
        self._loop.forget(self._starting)
        if not said and self._socket is None and self._unsent:
            self._forget_starting()
            self._fail(f"it could not be started; {door.complaint() or 'it said nothing'}")

    def _forget_starting(self) -> None:
        fd, self._starting = self._starting, -1
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)

    def _fail(self, why: str) -> None:
        """There is no warden to be had."""
        self._forget_starting()
        unsent, self._unsent = self._unsent, []
        for remote in unsent:
            remote.refused(Unavailable(problem=f"the warden cannot be reached: {why}"))

    def _welcomed(self, welcome: Welcome) -> None:
        self._forget_starting()
        if welcome.oldest > frames.PROTOCOL:
            self._disconnect()
            self._fail(
                f"it (process {welcome.pid}, nacre {welcome.version}) is newer than this nacre "
                f"({nacre.__version__}); update this one"
            )
            return
        if _is_older(welcome) and self._name == door.SOCKET and not self._retired:
            # What it runs stays with it, and can be reached by its own name. It says when it has
            # left its place; the next one is ours.
            self._retired = True
            self._send(Retire())
            return
        self._welcome = welcome
        unsent, self._unsent = self._unsent, []
        for remote in unsent:
            self._send_ask(remote)

    # Speaking.

    def _send_ask(self, remote: "Remote") -> None:
        self._numbers += 1
        remote.number = self._numbers
        self._asks[remote.number] = remote
        try:
            self._send(Asked(remote.number, remote.ask))
        except OverflowError as error:
            del self._asks[remote.number]
            remote.refused(Unavailable(problem=f"this is too much for the warden: {error}"))

    def _send(self, frame: FromClient) -> None:
        data = frames.packed(frame)
        if self._socket is None:
            return
        if not self._outgoing:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return  # the reading end tells, and all are answered there
        if data:
            if not self._outgoing:
                self._loop.await_room(self._fd, self._writable)
            self._outgoing += data

    def _writable(self) -> None:
        if self._socket is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(memoryview(self._outgoing)[: _READ[0]])]
        except BlockingIOError:
            return
        except OSError:
            self._outgoing.clear()
        self._loop.enough_room(self._fd)

    # Hearing.

    def _readable(self) -> None:
        if self._socket is None:
            return
        pieces = self._incoming.pieces
        try:
            # In C, from the socket to the deque: no interrupt can lose what was received.
            pieces.extend(map(self._socket.recv, _READ))
        except BlockingIOError:
            return
        except OSError:
            self._gone()
            return
        if pieces and not pieces[-1]:
            self._gone()
            return
        self._process()

    def _process(self) -> None:
        try:
            for frame in self._incoming.frames():
                self._handle(frames.from_warden(frame))
        except (frames.TooLong, msgspec.MsgspecError):
            self._gone()

    def _handle(self, frame: FromWarden) -> None:
        match frame:
            case Answered(id=number, answer=answer):
                if (remote := self._asks.get(number)) is not None:
                    remote.answered(answer)
            case Heard(id=number, event=event):
                if (remote := self._asks.get(number)) is not None:
                    remote.heard(event)
            case Welcome():
                self._welcomed(frame)
            case Leaving():
                self._leaving = True
                if self._welcome is None:
                    self._gone()
            case Problem(text=text):
                self._disconnect()
                self._lose()
                self._fail(text)

    def _gone(self) -> None:
        """It has hung up: it left, or it died."""
        left = self._leaving
        self._disconnect()
        if left:
            # It has begun nothing that it has not answered.
            self._unsent += [each for each in self._asks.values() if not each.handed]
            self._asks.clear()
        else:
            self._lose()
        if self._unsent:
            self._deadline = now() + _PATIENCE
            self._connect()

    def _lose(self) -> None:
        asked, self._asks = self._asks, {}
        self._unsent += [remote for remote in asked.values() if not remote.lost()]

    def _disconnect(self) -> None:
        made, self._socket = self._socket, None
        if made is not None:
            self._loop.forget(self._fd)
            made.close()
        self._fd, self._welcome, self._leaving = -1, None, False

    def _forget_socket(self) -> None:
        """The number is somebody else's now; the socket object must never close it."""
        if self._socket is not None:
            self._socket.detach()
        self._socket, self._fd, self._welcome, self._leaving = None, -1, None, False
        self._lose()
        if self._unsent:
            self._connect()


def _is_older(welcome: Welcome) -> bool:
    if welcome.protocol != frames.PROTOCOL:
        return welcome.protocol < frames.PROTOCOL
    return _parts(welcome.version) < _parts(nacre.__version__)


def _parts(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


Lose = Callable[[], Outcome]  # what is known of a run whose warden died


class Remote:
    """One ask, as if it were a run of our own."""

    number = 0  # in its connection
    handed = False  # it has been answered that it goes on
    _again = 2  # times that we ask another warden
    _owed = 0  # bytes that our listener has not heard yet
    _unwanted = False
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
        """`line` is one for this ask alone. `lose` says what is known when the warden has died;
        `fill` puts the output into the outcome of a run that was handed back: its warden has it on
        disk only."""
        self.name = name
        self.ask = ask
        self._ground = ground
        self._answer: Callable[[Reached], None] | None = answer
        self._lose = lose
        self._fill = fill
        self._line = line or line_of(ground)
        self._own = line is not None  # for this ask alone
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

    def signal(self, number: int) -> None:
        self._line.signal(self, number)

    def work(self) -> None:
        self._line.resume()

    # What the line has heard.

    def answered(self, answer: Reached) -> None:
        if isinstance(answer, Running):
            self.handed = True
            if self._relay is None:
                self._line.forget(self)
            self._settle(answer)
            return
        self._line.forget(self)
        if isinstance(answer, Outcome) and self.handed and self._fill is not None:
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
        """The warden died. False when it has not even begun what we have asked, so that the next
        one can be asked: whatever it begins it writes down first."""
        if self._lose is None:
            self.refused(Unavailable(problem="the warden died before it could answer; ask again"))
            return True
        known = self._lose()
        if isinstance(known.ending, NotStarted) and self._again > 0 and not self._unwanted:
            self._again -= 1
            return False
        self.answered(known)
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
        loop = self._ground.loop
        try:
            return Relay(
                listening,
                room=lambda: loop.post(self._room),
                heard=lambda: loop.post(self._heard),
            )
        except RuntimeError as error:  # no thread can be started
            raise Refused(NoProcesses()) from error

    def _room(self) -> None:
        owed, self._owed = self._owed, 0
        if owed:
            self._line.more(self, owed)

    def _heard(self) -> None:
        if self._relay is not None:
            self._relay.join()
        self._deliver()


def line_of(ground: Ground) -> Line:
    """The one of this loop, made if there is none."""
    if not isinstance(ground.line, Line):
        ground.line = Line(ground.loop)
    return ground.line


def _outcome(name: str, answer: Reached) -> Outcome:
    """What a listener is told at the end."""
    if isinstance(answer, Outcome):
        return answer
    why = answer.refusal if isinstance(answer, No) else CalledOff()
    return Outcome(run=name, ending=NotStarted(why), output=Capture())
