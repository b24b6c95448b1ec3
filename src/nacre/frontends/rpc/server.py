"""Server of `nacre rpc`: answers messages in JSON lines on stdin with JSON lines on stdout.

    line → message → verb → data → response

The RPC messages of nacre are a superset of those of the agent pi; see docs/guide/rpc.md. The RPC
server answers every message with one `response`. For a message that runs a command, the RPC server
may also send `bash_output` events before the `response`. Any number of RPC calls may be in progress
at the same time. After an invalid input line, the RPC server sends an error response and continues.
At the end of input, the RPC server stops the commands that still run.

One thread drives the engine (which runs the commands), and the engine's event loop also watches
stdin. The RPC server does not run the engine inside another event loop, because that event loop
would take more time than the rest of the server. Each command has a listener thread, and only
listener threads wait for a slow client. The methods that carry out the clients' RPC messages are in
the module `methods`.
"""

import os
import sys
import threading
import traceback
from collections import deque
from typing import Final

import msgspec

from nacre.engine.engine import Engine
from nacre.eventloop import now
from nacre.frontends.rpc.line_io import MAX_LINE, LineReader, LineWriter
from nacre.frontends.rpc.messages import Message
from nacre.frontends.rpc.methods import Id, RpcCall, RpcMethods
from nacre.model.plan import KIB

_PIECE: Final = 256 * KIB
# Value of the field `command` in the response to a line that names no message type.
_PARSE: Final = "parse"
# Seconds that the exiting server waits for a client that reads nothing, before dropping the output.
_EXIT_GRACE: Final = 5.0
# Seconds that the exiting server waits for the commands that it has stopped; longer than the time
# between TERM and KILL in any contract (tool dialect).
_MAX_END: Final = 60.0


class Server:
    def __init__(
        self, verbs: RpcMethods, engine: Engine, sink: int, *, linger: float = 1.0
    ) -> None:
        """`linger` is the number of seconds that running commands may continue after the end of
        input before the server stops them."""
        self._code: int | None = None  # exit code of the server; None while the server continues
        self._stopping = False  # whether the server has told all RPC calls to stop
        self._verbs = verbs
        self._engine = engine
        self._linger = linger
        self._inbox = LineReader()
        self._out = LineWriter(sink, broken=lambda: self._end(141))
        self._came: deque[bytes] = deque()  # input bytes that are not parsed yet
        self._calls: set[RpcCall] = set()

    def serve(self, source: int) -> int:
        """Serve RPC messages until the end of input, and return the exit code of the process.

        The exit code of the RPC server is 0 at the end of input, 141 when the client no longer
        reads, and 128+n after signal n.
        """
        self._listen(source)
        self.send({"type": "ready"})
        while self._code is None:
            self._step(None)
        self._engine.unwatch_fd(source)
        until = now() + (0.0 if self._code else self._linger)
        while self._calls and now() < until and not self._code:
            self._step(until - now())
        self._stop_all()
        until = now() + _MAX_END
        while self._calls and now() < until:
            self._step(until - now())
        drained = self._out.drain(_EXIT_GRACE)
        self._out.close()
        self._verbs.close()
        return self._code if drained else self._code or 141

    def stop(self, number: int) -> None:
        """Stop the server from a signal handler: the first call stops all commands, and a second
        call kills them."""
        if self._stopping:
            self._stop_all()
        self._end(128 + number)

    # Methods that read the client's messages from stdin.

    def _listen(self, source: int) -> None:
        try:
            self._engine.watch_fd(source, lambda: self._on_readable(_read_available(source)))
        except PermissionError:  # stdin is a file: epoll cannot watch it, and reads do not block
            threading.Thread(target=self._read_ahead, args=(source,), daemon=True).start()

    def _on_readable(self, data: bytes | None) -> None:
        if data is not None:
            self._came.append(data)

    def _read_ahead(self, source: int) -> None:
        data: bytes | None = None
        while data != b"":
            data = _read_available(source)
            self._on_readable(data)
            self._engine.wake()

    def _step(self, patience: float | None) -> None:
        try:
            self._engine.step(patience)
        except Exception:  # noqa: BLE001 - a bug in one call must not end the other calls
            traceback.print_exc(file=sys.stderr)
        self._verbs.follow_jobs()
        while self._came:
            self._on_data(self._came.popleft())

    def _on_data(self, data: bytes) -> None:
        for line in self._inbox.feed(data) if data else self._inbox.end():
            if line is None:
                self._write_error(
                    None, _PARSE, f"a line has more than {MAX_LINE} bytes; send a shorter one"
                )
            elif line.strip():
                self._handle_line(line)
        if not data:
            self._end(0)

    def _end(self, code: int) -> None:
        self._code = self._code or code
        self._engine.wake()

    def _stop_all(self) -> None:
        self._stopping = True
        for call in list(self._calls):
            call.stop()

    # Methods that write responses and events to the client.

    def send(self, message: Message) -> None:
        self._out.write_line(msgspec.json.encode(message) + b"\n")

    def send_with_backpressure(self, message: Message) -> None:
        """Write a message, and block while the output queue is full; only listener threads call
        this method, because no other thread may block."""
        self.send(message)
        self._out.wait_for_room()

    def _write_error(self, id: Id, command: str, error: str) -> None:
        response: Message = {} if id is None else {"id": id}
        response |= {"type": "response", "command": command, "success": False, "error": error}
        self.send(response)

    # Methods that parse one input line and carry out its message.

    def _handle_line(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return self._write_error(None, _PARSE, f"this line is not JSON: {error}")
        if not isinstance(message, dict):
            return self._write_error(None, _PARSE, 'a message is an object, like {"type": "ping"}')
        id, verb = message.pop("id", None), message.pop("type", None)
        named = verb if isinstance(verb, str) else _PARSE
        if isinstance(id, bool) or not isinstance(id, Id):
            return self._write_error(None, named, "id must be a string or a number")
        if named not in self._verbs.names:
            wrong = "type is required" if verb is None else f"there is no type {verb!r}"
            return self._write_error(id, named, f"{wrong}; types: {', '.join(self._verbs.names)}")
        if id is not None and named != "abort_bash" and any(each.id == id for each in self._calls):
            return self._write_error(id, named, f"the id {id!r} is in use; choose another")
        return self._dispatch(RpcCall(id, named, self), message)

    def _dispatch(self, call: RpcCall, message: Message) -> None:
        self._calls.add(call)
        with call.report_errors():
            self._verbs.dispatch(call, message, self._calls)

    def respond(self, call: RpcCall, rest: Message) -> None:
        self._calls.discard(call)
        response: Message = {} if call.id is None else {"id": call.id}
        response |= {"type": "response", "command": call.verb, **rest}
        self.send(response if call.warning is None else {**response, "warning": call.warning})


def _read_available(source: int) -> bytes | None:
    """Return the available input; b"" means the end of input, None means no input yet."""
    try:
        return os.read(source, _PIECE)
    except BlockingIOError:
        return None
    except OSError:
        return b""
