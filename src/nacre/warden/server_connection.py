"""The warden's side of a client connection, which may have many concurrent requests."""

import os
import socket
from typing import TYPE_CHECKING, Final

import msgspec

import nacre
from nacre.model import requests
from nacre.model.events import Chunk, Started
from nacre.model.refusals import AnyRefusal, CalledOff, Refused, Unavailable
from nacre.model.requests import Done, Rejected, Response
from nacre.warden import protocol as wire
from nacre.warden.framed_socket import FramedSocket
from nacre.warden.hosted_run import HostedRun
from nacre.warden.protocol import (
    Adopt,
    Cancel,
    Credit,
    DetachNow,
    EventFrame,
    FromWarden,
    Hello,
    Leaving,
    Problem,
    RequestFrame,
    ResponseFrame,
    Retire,
    Welcome,
)

if TYPE_CHECKING:
    from nacre.warden.server import Warden

_MAX_UNSENT: Final = 2 * wire.MAX_FRAME  # maximum bytes that a client may leave unread


class ServerConnection:
    """The warden's connection to one client, with the client's pending requests."""

    def __init__(self, warden: "Warden", connection: socket.socket) -> None:
        self.protocol = 0  # protocol version that both sides use; 0: no Hello frame has arrived yet
        self._warden = warden
        self.pending: dict[int, PendingRequest] = {}
        self._stream = FramedSocket(
            connection,
            warden.loop,
            on_frame=self._on_frame,
            on_close=self._on_close,
            takes_descriptors=True,
        )

    def send(self, frame: FromWarden) -> None:
        """Send a frame to the client, and disconnect a client that leaves too many bytes unread.
        Raises OverflowError."""
        self._stream.send(frame)
        if self._stream.unsent > _MAX_UNSENT:
            self._hang_up()  # the client sends requests but reads no responses

    def close(self) -> None:
        self._warden.connections.discard(self)
        self._stream.close()

    def _on_close(self, why: str) -> None:
        """Drop a client that has disconnected or sent an invalid frame; the client's runs
        continue."""
        if why:
            self._stream.send(Problem(why))
        self._drop_clients()

    def _drop_clients(self) -> None:
        self._warden.connections.discard(self)
        while self.pending:
            self.pending.popitem()[1].disconnect()
        self._warden.schedule_idle_exit()

    def _hang_up(self) -> None:
        self._drop_clients()
        self._stream.close()

    def _reject(self, problem: str) -> None:
        self._stream.send(Problem(problem))
        self._hang_up()

    def _on_frame(self, data: bytes) -> None:
        try:
            self._handle(wire.decode_client_frame(data))
        except msgspec.MsgspecError:
            raise
        except Exception:
            # If a frame from the client causes an unexpected error, disconnect the client;
            # otherwise the warden would process the same frame again.
            self._hang_up()
            raise

    def _handle(self, frame: wire.FromClient) -> None:
        if not self.protocol and not isinstance(frame, Hello):
            self._reject("say Hello first")
            return
        match frame:
            case RequestFrame(id=number, request=request):
                self._on_request(number, request)
            case Cancel(id=number, signal=signal_number):
                if (pending := self.pending.get(number)) is not None:
                    pending.cancel(signal_number)
                else:
                    # The warden also responds if a client cancels a request that never arrived. If
                    # a request was answered before the client cancelled it, the client gets two
                    # responses to the request, and ignores the second one.
                    self.send(ResponseFrame(number, Rejected(refusal=CalledOff())))
            case DetachNow(id=number):
                if (pending := self.pending.get(number)) is not None:
                    pending.detach_now()
            case Credit(id=number, count=count):
                if (pending := self.pending.get(number)) is not None:
                    pending.add_credit(count)
            case Adopt():
                self._on_adopt(frame)
            case Retire():
                self._warden.retire()
                self.send(Leaving())
            case Hello(protocol=protocol):
                self._on_hello(protocol)

    def _on_hello(self, protocol: int) -> None:
        if protocol < wire.OLDEST_PROTOCOL:
            self._reject(
                f"this warden speaks protocols {wire.OLDEST_PROTOCOL} to {wire.PROTOCOL}, and you "
                f"{protocol}; update the nacre that asks"
            )
            return
        self.protocol = min(protocol, wire.PROTOCOL)
        self.send(
            Welcome(
                protocol=wire.PROTOCOL,
                oldest=wire.OLDEST_PROTOCOL,
                version=nacre.__version__,
                pid=os.getpid(),
                runs=len(self._warden.hosted),
            )
        )

    def _on_request(self, number: int, request: requests.Request) -> None:
        if number in self.pending:
            self._reject(f"request {number} exists already")
            return
        self._warden.used = True
        pending = self.pending[number] = PendingRequest(self, number)
        try:
            pending.handle(self._warden, request)
        except Refused as refused:
            pending.respond(Rejected(refusal=refused.refusal))

    def _on_adopt(self, frame: Adopt) -> None:
        count, given = len(frame.streams), self._stream.descriptors
        fds, given[:] = given[:count], given[count:]
        self._warden.adopt_pipes(frame, fds)
        self.send(ResponseFrame(frame.id, Done()))

    def send_response(self, number: int, answer: Response, *, last: bool) -> None:
        if last:
            self.pending.pop(number, None)
        try:
            self.send(ResponseFrame(number, answer))
        except OverflowError:
            problem = "the output is too long for a response; read it by the id of the run"
            self.send(ResponseFrame(number, Rejected(refusal=Unavailable(problem=problem))))
        if last:
            self._warden.schedule_idle_exit()

    def send_event(self, number: int, event: Started | Chunk) -> None:
        self.send(EventFrame(number, event))


class PendingRequest:
    """A client's request that has not got its final response yet."""

    def __init__(self, connection: ServerConnection, number: int) -> None:
        self.hosted_run: HostedRun | None = None
        self._owns_run = False  # whether this request started the run, or only waits for it
        self._connection = connection
        self._number = number

    def handle(self, warden: "Warden", request: requests.Request) -> None:
        """Carry out the client's request. Raises Refused."""
        match request:
            case requests.StartRun():
                self._owns_run = True
                warden.start_run(request, self)
            case requests.Wait(run=name, workspace=workspace, wait_limit=patience, input=wanted):
                self.hosted_run = warden.find(name, workspace)
                self.hosted_run.wait(self, patience, for_input=wanted)
            case requests.Write(
                run=name, workspace=workspace, data=data, eof=eof, wait_for_room=waits
            ):
                run = warden.find(name, workspace).run
                run.write(data, eof=eof, wait_for_room=waits, then=self._on_written)
            case requests.Signal(run=name, workspace=workspace, signal=number):
                warden.find(name, workspace).run.signal(number)
                self.respond(Done())
            case requests.End(run=name, workspace=workspace):
                self.hosted_run = warden.find(name, workspace)
                self.hosted_run.wait(self, None)
                self.hosted_run.run.end(request.signal, request.grace, cancel=request.cancel)

    def _on_written(self, refusal: AnyRefusal | None) -> None:
        self.respond(Done() if refusal is None else Rejected(refusal=refusal))

    def respond(self, answer: Response, *, last: bool = True) -> None:
        self._connection.send_response(self._number, answer, last=last)

    def send_event(self, event: Started | Chunk) -> None:
        self._connection.send_event(self._number, event)

    def cancel(self, number: int) -> None:
        if self.hosted_run is None:
            # If `hosted_run` is None, the pending request is a write to a run's stdin that waits
            # for room in the pipe. Cancelling a write to a run's stdin ends only the wait for room
            # in the pipe; the run may still read the data.
            self.respond(Rejected(refusal=CalledOff()))
        elif self._owns_run:
            self.hosted_run.run.cancel(number)
        else:
            self.hosted_run.disconnect(self)
            self.respond(Done(found=False))

    def detach_now(self) -> None:
        if self.hosted_run is not None:
            self.hosted_run.detach_now(self)

    def add_credit(self, count: int) -> None:
        if self.hosted_run is not None and self.hosted_run.event_stream is not None:
            self.hosted_run.event_stream.add_credit(count)

    def disconnect(self) -> None:
        if self.hosted_run is not None:
            self.hosted_run.disconnect(self)
