"""The connection of one loop to the warden, for as many asks at once as there are.

    nowhere → seeking → greeting → open → (leaving) → nowhere

Made at the first ask, which starts a warden if there is none, and kept for the next. Whatever
becomes of the warden, every ask is answered: one that is leaving has begun nothing that it has not
answered, so the next one is asked; of one that died the journal tells what it had begun.
"""

import enum
import os
from contextlib import suppress
from typing import Final, Protocol

import nacre
from nacre.asks import Ask, Reached
from nacre.engine.ground import Ground
from nacre.events import Chunk, Started
from nacre.loop import Loop, Timer, now
from nacre.refusals import AnyRefusal, Unavailable
from nacre.warden import door, frames
from nacre.warden.frames import (
    Answered,
    Asked,
    Cancel,
    FromClient,
    Heard,
    Hello,
    Leaving,
    Problem,
    Retire,
    Welcome,
)
from nacre.warden.stream import Stream

_PATIENCE: Final = 10.0  # for a warden that starts, or that is there and says nothing
_PAUSE: Final = 0.003
_MOMENT: Final = 1.0  # that a warden may take to start


class Asker(Protocol):
    """One ask."""

    ask: Ask
    number: int  # in its connection; 0: not asked yet
    handed: bool  # it has been answered that it goes on

    def sent(self) -> None: ...

    def answered(self, answer: Reached) -> None: ...

    def heard(self, event: Started | Chunk) -> None: ...

    def refused(self, refusal: AnyRefusal) -> None: ...

    def lost(self) -> bool:
        """Its warden died. False: ask again."""
        ...

    def abandon(self) -> None: ...


class State(enum.Enum):
    NOWHERE = "nowhere"
    SEEKING = "seeking"  # nobody listens yet; we come again
    GREETING = "greeting"  # connected, and not yet welcome
    OPEN = "open"
    LEAVING = "leaving"  # it has said that it goes


class _Start:
    """Of many lines in one process that find nobody, one starts a warden; the others wait for it, a
    moment, rather than to have dozens of Pythons start at once."""

    def __init__(self) -> None:
        self._when = 0.0

    def may(self) -> bool:
        if now() < self._when + _MOMENT:
            return False
        self._when = now()
        return True

    def done(self) -> None:
        """There is one: whoever finds nobody after that need not wait."""
        self._when = 0.0


_start: Final = _Start()


class Line:
    _stream: Stream | None = None
    _timer: Timer | None = None  # the next try, or the end of our patience
    _starting = -1  # what says when the warden that we have started can be reached
    _deadline = 0.0
    _retired = False  # we have asked an older one to give up its place

    def __init__(self, loop: Loop, name: str = door.SOCKET) -> None:
        """`name` is that of a certain warden; only the usual one is started."""
        self._loop = loop
        self._name = name
        self._state = State.NOWHERE
        self._numbers = 0
        self._asks: dict[int, Asker] = {}
        self._unsent: list[Asker] = []  # until there is a warden

    @property
    def idle(self) -> bool:
        return not self._asks and not self._unsent

    def ask(self, asker: Asker) -> None:
        self._check()
        self._unsent.append(asker)
        if self._state is State.OPEN:
            self._send_asks()
        elif self._stream is None:
            self._seek()
        elif self._state is State.GREETING:
            self._wait_for_welcome()

    def cancel(self, asker: Asker, number: int) -> bool:
        """False when it has not been asked yet, and will not be."""
        if self._asks.get(asker.number) is asker:
            self._say(Cancel(asker.number, number))
            return True
        if asker in self._unsent:
            self._unsent.remove(asker)
        return False

    def tell(self, asker: Asker, frame: FromClient) -> None:
        """Something about an ask that is under way."""
        if self._asks.get(asker.number) is asker:
            self._say(frame)

    def remark(self, ask: Ask) -> None:
        """Ask something whose answer nobody waits for."""
        self._numbers += 1
        self._say(Asked(self._numbers, ask))

    def forget(self, asker: Asker) -> None:
        if self._asks.get(asker.number) is asker:
            del self._asks[asker.number]

    def resume(self) -> None:
        """Go on with what an interrupt has left undone."""
        if self._stream is not None:
            self._stream.resume()
        if self._state is State.OPEN:
            self._send_asks()

    def stop_listening(self) -> None:
        """To runs that go on, of which we wanted to hear more."""
        for number, asker in list(self._asks.items()):
            if asker.handed:
                del self._asks[number]
                asker.abandon()

    def forked(self) -> None:
        if self._stream is not None:
            self._stream.forked()
        if self._starting >= 0:
            os.close(self._starting)
        self._stream, self._starting, self._state = None, -1, State.NOWHERE
        self._asks.clear()
        self._unsent.clear()

    def close(self) -> None:
        """Runs that we have asked for go on."""
        self.stop_listening()
        self._drop()

    # Finding one.

    def _check(self) -> None:
        """Before we say something: is the socket still ours? Whether the warden is still there need
        not be asked: if it has gone, what we say to it comes back, and is said to the next."""
        stream = self._stream
        if stream is not None and not stream.intact:
            stream.disown()
            self._stream, self._state = None, State.NOWHERE
            self._lose()

    def _seek(self) -> None:
        self._deadline = now() + _PATIENCE
        self._connect()

    def _connect(self) -> None:
        self._cancel_timer()
        try:
            made = door.connect(self._name)
        except (OSError, door.NotOurs) as error:
            self._fail(str(error))
            return
        if made is None:
            self._start()
            return
        self._stream = Stream(made, self._loop, heard=self._heard, gone=self._gone)
        self._state = State.GREETING
        self._wait_for_welcome()
        self._say(Hello(protocol=frames.PROTOCOL, version=nacre.__version__))

    def _wait_for_welcome(self) -> None:
        self._cancel_timer()
        self._timer = self._loop.after(_PATIENCE, self._unwelcome)

    def _unwelcome(self) -> None:
        if self._state is State.GREETING:
            who = door.signed() or "nobody knows which"
            self._drop()
            self._fail(f"it does not answer ({who}); is it stopped?")

    def _start(self) -> None:
        """Nobody listens. Start one, once, and come back until it does."""
        self._state = State.SEEKING
        if self._name != door.SOCKET:
            self._fail("the warden that ran it is gone")
            return
        if now() > self._deadline:
            self._fail(f"it did not start in {_PATIENCE:g} s; {door.complaint()}".rstrip("; "))
            return
        if self._starting < 0 and _start.may():
            try:
                self._starting = door.start()
            except OSError as error:
                self._fail(str(error))
                return
            self._loop.watch(self._starting, self._started)
        self._timer = self._loop.after(_PAUSE, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._state is not State.SEEKING:
            return
        if self._unsent:
            self._connect()
        else:
            self._state = State.NOWHERE

    def _started(self) -> None:
        """It can be reached, or it has ended without that."""
        said = b""
        with suppress(OSError):
            said = os.read(self._starting, 1)
        if said:
            self._loop.forget(self._starting)  # the next thing would be its end
            return
        self._forget_starting()
        if self._state is State.SEEKING and self._unsent:
            self._fail(f"it could not be started; {door.complaint() or 'it said nothing'}")

    def _forget_starting(self) -> None:
        fd, self._starting = self._starting, -1
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)

    def _fail(self, why: str) -> None:
        """There is no warden to be had."""
        self._drop()
        while self._unsent:
            problem = f"the warden cannot be reached: {why}"
            self._unsent.pop(0).refused(Unavailable(problem=problem))

    def _welcomed(self, welcome: Welcome) -> None:
        self._cancel_timer()
        self._forget_starting()
        _start.done()
        if welcome.oldest > frames.PROTOCOL:
            self._fail(
                f"it (process {welcome.pid}, nacre {welcome.version}) is newer than this nacre "
                f"({nacre.__version__}); update this one"
            )
        elif _is_older(welcome) and self._name == door.SOCKET and not self._retired:
            # What it runs stays with it, and can be reached by its own name. It says when it has
            # left its place; the next one is ours.
            self._retired = True
            self._say(Retire())
        else:
            self._state = State.OPEN
            self._send_asks()

    # Speaking.

    def _send_asks(self) -> None:
        while self._unsent:
            asker = self._unsent[0]
            if self._asks.get(asker.number) is not asker:
                self._numbers += 1
                asker.number = self._numbers
                self._asks[asker.number] = asker
            try:
                self._say(Asked(asker.number, asker.ask))
            except (OverflowError, TypeError) as error:
                del self._asks[asker.number]
                problem = f"this is too much for the warden: {error}"
                asker.refused(Unavailable(problem=problem))
            if asker in self._unsent:
                self._unsent.remove(asker)
            asker.sent()

    def _say(self, frame: FromClient) -> None:
        if self._stream is not None:
            self._stream.send(frame)

    # Hearing.

    def _heard(self, data: bytes) -> None:
        match frame := frames.from_warden(data):
            case Answered(id=number, answer=answer):
                if (asker := self._asks.get(number)) is not None:
                    asker.answered(answer)
            case Heard(id=number, event=event):
                if (asker := self._asks.get(number)) is not None:
                    asker.heard(event)
            case Welcome():
                self._welcomed(frame)
            case Leaving():
                greeting, self._state = self._state is State.GREETING, State.LEAVING
                if greeting:
                    self._gone("")
            case Problem(text=text):
                self._drop()
                self._lose()
                self._fail(text)

    def _gone(self, why: str) -> None:
        """It has hung up: it left, or it died."""
        left = self._state is State.LEAVING
        self._drop()
        if left:
            # It has begun nothing that it has not answered.
            while self._asks:
                _, asker = self._asks.popitem()
                if asker.handed:
                    asker.abandon()
                else:
                    self._unsent.insert(0, asker)
        else:
            self._lose()
        if why:
            self._fail(why)
        elif self._unsent:
            self._seek()

    def _lose(self) -> None:
        while self._asks:
            _, asker = self._asks.popitem()
            asker.number = 0
            if not asker.lost():
                self._unsent.append(asker)

    def _drop(self) -> None:
        """Have no connection any more."""
        self._cancel_timer()
        self._forget_starting()
        stream, self._stream = self._stream, None
        self._state = State.NOWHERE
        if stream is not None and stream.intact:
            stream.close()
        elif stream is not None and stream.open:
            stream.disown()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def line_of(ground: Ground) -> Line:
    """The one of this loop, made if there is none."""
    if not isinstance(ground.line, Line):
        ground.line = Line(ground.loop)
    return ground.line


def _is_older(welcome: Welcome) -> bool:
    if welcome.protocol != frames.PROTOCOL:
        return welcome.protocol < frames.PROTOCOL
    return _release(welcome.version) < _release(nacre.__version__)


def _release(version: str) -> tuple[int, ...]:
    """`0.2.0` and `0.2.0.dev1` are one release."""
    numbers = []
    for part in version.split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return (*numbers, 0, 0, 0)[:3]
