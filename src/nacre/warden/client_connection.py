"""Connection of one event loop to the warden (nacre's daemon), shared by all concurrent requests of
that loop.

    nowhere → seeking → greeting → open → (leaving) → nowhere

The first request connects to the warden, starting one if none runs; later requests reuse the
connection. Every request gets a response, even if the warden exits or dies. A warden that announces
its exit has not started the requests that it leaves unanswered, so the client sends these requests
to the next warden. After a warden has died, the journal (nacre's list of runs) shows which runs
that warden had started.
"""

import enum
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import nacre
from nacre.engine.loop_context import LoopContext
from nacre.eventloop import EventLoop, Timer, now
from nacre.model.refusals import Unavailable
from nacre.model.requests import Request
from nacre.warden import endpoint, protocol
from nacre.warden.framed_socket import FramedSocket
from nacre.warden.protocol import (
    Cancel,
    EventFrame,
    FromClient,
    Hello,
    Leaving,
    Problem,
    RequestFrame,
    ResponseFrame,
    Retire,
    Welcome,
)

if TYPE_CHECKING:
    from nacre.warden.client_request import WardenRequest

_CONNECT_TIMEOUT: Final = 10.0  # maximum seconds to wait for a warden that is starting or silent
_RETRY_INTERVAL: Final = 0.003  # seconds between two attempts to connect to the warden
_START_INTERVAL: Final = 1.0  # minimum seconds between two starts of a warden by this process


class ConnectionState(enum.Enum):
    DISCONNECTED = "nowhere"
    CONNECTING = "seeking"  # no warden listens yet; a timer retries the connection
    GREETING = "greeting"  # connected to a warden whose Welcome frame has not arrived yet
    OPEN = "open"
    LEAVING = "leaving"  # the warden has sent a Leaving frame, because it exits or has retired


class _StartLimiter:
    """Limiter that lets the connections of this process start at most one warden per second.

    While a warden started by one connection gets ready, the other connections wait for that warden.
    Without `_StartLimiter`, dozens of connections of one process could each start a Python process
    (a warden) at once.
    """

    def __init__(self) -> None:
        self._started_at = 0.0

    def try_start(self) -> bool:
        if now() < self._started_at + _START_INTERVAL:
            return False
        self._started_at = now()
        return True

    def reset(self) -> None:
        """Allow the next start of a warden without a delay; called when a warden has been
        reached."""
        self._started_at = 0.0


_start_limiter: Final = _StartLimiter()


class WardenConnection:
    def __init__(self, loop: EventLoop, name: str = endpoint.SOCKET) -> None:
        """Create the connection object without connecting to the warden.

        `name` is the file name of the warden's socket in the state directory. If no warden listens
        on the socket `name`, a new warden is started only if `name` is the default file name of the
        warden's socket.
        """
        self._stream: FramedSocket | None = None
        # Timer for the next attempt to connect to the warden, or for the longest wait for the
        # warden's first frame (Welcome).
        self._timer: Timer | None = None
        self._ready_fd = -1  # read end of the pipe on which a new warden reports that it is ready
        self._deadline = 0.0
        # Whether this connection has asked a warden of an older version to retire.
        self._retired = False
        self._loop = loop
        self._name = name
        self._state = ConnectionState.DISCONNECTED
        self._numbers = 0
        self._pending: dict[int, WardenRequest] = {}
        self._unsent: list[WardenRequest] = []  # requests that wait until a warden is connected

    @property
    def idle(self) -> bool:
        return not self._pending and not self._unsent

    def send_request(self, pending: "WardenRequest") -> None:
        self._check_socket()
        self._unsent.append(pending)
        if self._state is ConnectionState.OPEN:
            self._send_requests()
        elif self._stream is None:
            self._begin_connecting()
        elif self._state is ConnectionState.GREETING:
            self._wait_for_welcome()

    def cancel(self, pending: "WardenRequest", number: int) -> bool:
        """Cancel a request; if it was not sent to the warden yet, drop it and return False."""
        if self._pending.get(pending.number) is pending:
            self._send(Cancel(pending.number, number))
            return True
        if pending in self._unsent:
            self._unsent.remove(pending)
        return False

    def send_frame(self, pending: "WardenRequest", frame: FromClient) -> None:
        """Send the warden a frame that belongs to a request, such as `DetachNow`; send nothing if
        the request was not sent yet or has its final response."""
        if self._pending.get(pending.number) is pending:
            self._send(frame)

    def send_unanswered(self, request: Request) -> None:
        """Send a request to the warden and ignore its response."""
        self._numbers += 1
        self._send(RequestFrame(self._numbers, request))

    def forget(self, pending: "WardenRequest") -> None:
        if self._pending.get(pending.number) is pending:
            del self._pending[pending.number]

    def resume(self) -> None:
        """Read again from the warden and send the waiting requests, after an interrupt (Ctrl-C in
        the host program) cut the reading or sending short."""
        if self._stream is not None:
            self._stream.resume()
        if self._state is ConnectionState.OPEN:
            self._send_requests()

    def stop_listening(self) -> None:
        """Stop delivering events of detached runs to the listeners in this process."""
        for number, pending in list(self._pending.items()):
            if pending.detached:
                del self._pending[number]
                pending.stop_listening()

    def after_fork(self) -> None:
        if self._stream is not None:
            self._stream.after_fork()
        if self._ready_fd >= 0:
            os.close(self._ready_fd)
        self._stream, self._ready_fd, self._state = None, -1, ConnectionState.DISCONNECTED
        self._pending.clear()
        self._unsent.clear()

    def close(self) -> None:
        """Close the connection to the warden; runs that were started over this connection
        continue."""
        self.stop_listening()
        self._disconnect()

    # Connecting.

    def _check_socket(self) -> None:
        """Give up the socket if the host program has closed or reused its descriptor; called before
        a request is sent.

        Before a request is sent, nacre does not check whether the warden still runs: requests that
        an exited warden leaves unanswered are sent to the next warden.
        """
        stream = self._stream
        if stream is not None and not stream.intact:
            stream.disown()
            self._stream, self._state = None, ConnectionState.DISCONNECTED
            self._on_connection_lost()

    def _begin_connecting(self) -> None:
        self._deadline = now() + _CONNECT_TIMEOUT
        self._connect()

    def _connect(self) -> None:
        self._cancel_timer()
        try:
            connection = endpoint.connect(self._name)
        except (OSError, endpoint.ForeignSocket) as error:
            self._fail(str(error))
            return
        if connection is None:
            self._start_warden()
            return
        self._stream = FramedSocket(
            connection, self._loop, on_frame=self._on_frame, on_close=self._on_close
        )
        self._state = ConnectionState.GREETING
        self._wait_for_welcome()
        self._send(Hello(protocol=protocol.PROTOCOL, version=nacre.__version__))

    def _wait_for_welcome(self) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(_CONNECT_TIMEOUT, self._on_welcome_timeout)

    def _on_welcome_timeout(self) -> None:
        if self._state is ConnectionState.GREETING:
            who = endpoint.read_owner() or "process unknown"
            self._disconnect()
            self._fail(f"it does not answer ({who}); is the process stopped?")

    def _start_warden(self) -> None:
        """Start a warden, unless one is already starting, and schedule the next attempt to connect
        to it."""
        self._state = ConnectionState.CONNECTING
        if self._name != endpoint.SOCKET:
            self._fail("the warden that owned the run has exited")
            return
        if now() > self._deadline:
            self._fail(
                f"it did not start in {_CONNECT_TIMEOUT:g} s; {endpoint.last_log_line()}".rstrip(
                    "; "
                )
            )
            return
        if self._ready_fd < 0 and _start_limiter.try_start():
            try:
                self._ready_fd = endpoint.start_warden()
            except OSError as error:
                self._fail(str(error))
                return
            self._loop.watch(self._ready_fd, self._on_warden_ready)
        self._timer = self._loop.call_later(_RETRY_INTERVAL, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if self._state is not ConnectionState.CONNECTING:
            return
        if self._unsent:
            self._connect()
        else:
            self._state = ConnectionState.DISCONNECTED

    def _on_warden_ready(self) -> None:
        """Read the pipe of a starting warden: a byte means that the warden is ready, and EOF means
        that its start failed."""
        byte = b""
        with suppress(OSError):
            byte = os.read(self._ready_fd, 1)
        if byte:
            # After a new warden has reported on its pipe that it is ready, only EOF can follow, so
            # the event loop stops watching the pipe.
            self._loop.unwatch(self._ready_fd)
            return
        self._close_ready_fd()
        if self._state is ConnectionState.CONNECTING and self._unsent:
            self._fail(f"it could not be started; {endpoint.last_log_line() or 'its log is empty'}")

    def _close_ready_fd(self) -> None:
        fd, self._ready_fd = self._ready_fd, -1
        if fd >= 0:
            self._loop.unwatch(fd)
            os.close(fd)

    def _fail(self, why: str) -> None:
        """Disconnect and refuse all requests that wait to be sent, because no warden can be
        reached."""
        self._disconnect()
        while self._unsent:
            problem = f"the warden cannot be reached: {why}"
            self._unsent.pop(0).on_refused(Unavailable(problem=problem))

    def _on_welcome(self, welcome: Welcome) -> None:
        self._cancel_timer()
        self._close_ready_fd()
        _start_limiter.reset()
        if welcome.oldest > protocol.PROTOCOL:
            self._fail(
                f"it (process {welcome.pid}, nacre {welcome.version}) is newer than this nacre "
                f"({nacre.__version__}); update this one"
            )
        elif _is_older_warden(welcome) and self._name == endpoint.SOCKET and not self._retired:
            # A retired warden of an older version keeps its runs, and clients reach these runs
            # through a separate socket of the retired warden. After a warden of an older version
            # has sent its Leaving frame, this connection connects to a new warden.
            self._retired = True
            self._send(Retire())
        else:
            self._state = ConnectionState.OPEN
            self._send_requests()

    # Sending.

    def _send_requests(self) -> None:
        while self._unsent:
            pending = self._unsent[0]
            if self._pending.get(pending.number) is not pending:
                self._numbers += 1
                pending.number = self._numbers
                self._pending[pending.number] = pending
            try:
                self._send(RequestFrame(pending.number, pending.request))
            except (OverflowError, TypeError) as error:
                del self._pending[pending.number]
                problem = f"the request is too large for the warden: {error}"
                pending.on_refused(Unavailable(problem=problem))
            if pending in self._unsent:
                self._unsent.remove(pending)
            pending.on_sent()

    def _send(self, frame: FromClient) -> None:
        if self._stream is not None:
            self._stream.send(frame)

    # Receiving.

    def _on_frame(self, data: bytes) -> None:
        match frame := protocol.decode_warden_frame(data):
            case ResponseFrame(id=number, response=answer):
                if (pending := self._pending.get(number)) is not None:
                    pending.on_response(answer)
            case EventFrame(id=number, event=event):
                if (pending := self._pending.get(number)) is not None:
                    pending.on_event(event)
            case Welcome():
                self._on_welcome(frame)
            case Leaving():
                greeting, self._state = (
                    self._state is ConnectionState.GREETING,
                    ConnectionState.LEAVING,
                )
                if greeting:
                    self._on_close("")
            case Problem(text=text):
                self._disconnect()
                self._on_connection_lost()
                self._fail(text)

    def _on_close(self, why: str) -> None:
        """Send unanswered requests again, or look up their runs, after the warden has left or
        died."""
        left = self._state is ConnectionState.LEAVING
        self._disconnect()
        if left:
            # A warden that has sent a Leaving frame (it exits or has retired) has not started its
            # unanswered requests, so this connection sends these requests to the next warden.
            while self._pending:
                _, pending = self._pending.popitem()
                if pending.detached:
                    pending.stop_listening()
                else:
                    self._unsent.insert(0, pending)
        else:
            self._on_connection_lost()
        if why:
            self._fail(why)
        elif self._unsent:
            self._begin_connecting()

    def _on_connection_lost(self) -> None:
        while self._pending:
            _, pending = self._pending.popitem()
            pending.number = 0
            if not pending.on_lost():
                self._unsent.append(pending)

    def _disconnect(self) -> None:
        """Close the connection, or forget its descriptor if the host program has closed or reused
        the descriptor."""
        self._cancel_timer()
        self._close_ready_fd()
        stream, self._stream = self._stream, None
        self._state = ConnectionState.DISCONNECTED
        if stream is not None and stream.intact:
            stream.close()
        elif stream is not None and stream.open:
            stream.disown()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connection_for(context: LoopContext) -> WardenConnection:
    """Return this event loop's connection to the warden; the first call creates the connection."""
    if not isinstance(context.connection, WardenConnection):
        context.connection = WardenConnection(context.loop)
    return context.connection


def _is_older_warden(welcome: Welcome) -> bool:
    if welcome.protocol != protocol.PROTOCOL:
        return welcome.protocol < protocol.PROTOCOL
    return _parse_release(welcome.version) < _parse_release(nacre.__version__)


def _parse_release(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, so that `0.2.0` and `0.2.0.dev1` compare as
    equal."""
    numbers = []
    for part in version.split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return (*numbers, 0, 0, 0)[:3]
