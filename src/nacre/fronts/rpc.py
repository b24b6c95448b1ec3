"""`nacre rpc`: JSON lines on stdin and stdout, as pi's RPC speaks them, and more; docs/rpc.md.

    line → message → verb → data → response

Every line is answered by one `response`; a verb that runs something may send `bash_output` before
it. Any number of them may be under way. What is wrong with a line is said in an error line, and
the loop goes on. At the end of input what still runs is ended.

One thread makes the engine's steps, with stdin among what it watches: an event loop around it
would cost more than all the rest. Listeners of commands have threads of their own, and wait when
the client reads slowly; nobody else does. What the messages mean is in `verbs`.
"""

import os
import sys
import threading
import traceback
from collections import deque
from typing import Final

import msgspec

from nacre.engine.engine import Engine
from nacre.fronts.frames import LONGEST, Inbox, Outbox
from nacre.fronts.messages import Message
from nacre.fronts.verbs import Call, Id, Verbs
from nacre.loop import now
from nacre.plan import KIB

_PIECE: Final = 256 * KIB
_LAST: Final = 5.0  # seconds in which a reader of our last words must have taken something
_LONGEST_END: Final = 60.0  # more than any contract's grace


class Server:
    _code: int | None = None  # why we are to end
    _stopping = False  # what runs has been told to end

    def __init__(self, verbs: Verbs, engine: Engine, sink: int, *, linger: float = 1.0) -> None:
        """`linger`: seconds in which what runs at the end of input may still end by itself."""
        self._verbs = verbs
        self._engine = engine
        self._linger = linger
        self._inbox = Inbox()
        self._out = Outbox(sink, broken=lambda: self._end(141))
        self._came: deque[bytes] = deque()  # and is not looked at yet
        self._calls: set[Call] = set()

    def serve(self, source: int) -> int:
        """Until the input ends (0), nobody reads us (141), or a signal comes (128 and it)."""
        self._listen(source)
        while self._code is None:
            self._step(None)
        self._engine.forget(source)
        until = now() + (0.0 if self._code else self._linger)
        while self._calls and now() < until and not self._code:
            self._step(until - now())
        self._stop_all()
        until = now() + _LONGEST_END
        while self._calls and now() < until:
            self._step(until - now())
        heard = self._out.drain(_LAST)
        self._out.close()
        self._verbs.close()
        return self._code if heard else self._code or 141

    def stop(self, number: int) -> None:
        """For signal handlers: once, end all that runs; again, kill it."""
        if self._stopping:
            self._stop_all()
        self._end(128 + number)

    # What comes in.

    def _listen(self, source: int) -> None:
        try:
            self._engine.watch(source, lambda: self._come(_read(source)))
        except PermissionError:  # a file: it cannot be waited for, and need not
            threading.Thread(target=self._slurp, args=(source,), daemon=True).start()

    def _come(self, data: bytes | None) -> None:
        if data is not None:
            self._came.append(data)

    def _slurp(self, source: int) -> None:
        data: bytes | None = None
        while data != b"":
            data = _read(source)
            self._come(data)
            self._engine.wake()

    def _step(self, patience: float | None) -> None:
        try:
            self._engine.step(patience)
        except Exception:  # noqa: BLE001 - a mistake of ours about one call must not end the others
            traceback.print_exc(file=sys.stderr)
        while self._came:
            self._take(self._came.popleft())

    def _take(self, data: bytes) -> None:
        for line in self._inbox.feed(data) if data else self._inbox.end():
            if line is None:
                self._complain(None, None, f"a line has more than {LONGEST} bytes; send less")
            elif line.strip():
                self._begin(line)
        if not data:
            self._end(0)

    def _end(self, code: int) -> None:
        self._code = self._code or code
        self._engine.wake()

    def _stop_all(self) -> None:
        self._stopping = True
        for call in list(self._calls):
            call.stop()

    # What goes out.

    def _say(self, message: Message) -> None:
        self._out.put(msgspec.json.encode(message) + b"\n")

    def _say_in_time(self, message: Message) -> None:
        """For listeners, each of which has a thread that may wait."""
        self._say(message)
        self._out.await_room()

    def _complain(self, id: Id, verb: str | None, error: str) -> None:
        said: Message = {} if id is None else {"id": id}
        said |= {"type": "response"} if verb is None else {"type": "response", "command": verb}
        self._say({**said, "success": False, "error": error})

    # One message.

    def _begin(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return self._complain(None, None, f"this line is not JSON: {error}")
        if not isinstance(message, dict):
            return self._complain(None, None, 'a message is an object, like {"type": "ping"}')
        id, verb = message.pop("id", None), message.pop("type", None)
        if isinstance(id, bool) or not isinstance(id, Id):
            return self._complain(None, None, "id must be a string or a number")
        if not isinstance(verb, str) or verb not in self._verbs.names:
            wrong = "type is required" if verb is None else f"there is no type {verb!r}"
            return self._complain(id, None, f"{wrong}; there is {', '.join(self._verbs.names)}")
        if id is not None and verb != "abort_bash" and any(each.id == id for each in self._calls):
            return self._complain(id, verb, f"the id {id!r} is in use; choose another")
        return self._do(Call(id, verb, self._say_in_time, self._answer), message)

    def _do(self, call: Call, message: Message) -> None:
        self._calls.add(call)
        with call.answering():
            self._verbs.do(call, message, self._calls)

    def _answer(self, call: Call, rest: Message) -> None:
        self._calls.discard(call)
        said: Message = {} if call.id is None else {"id": call.id}
        self._say({**said, "type": "response", "command": call.verb, **rest})


def _read(source: int) -> bytes | None:
    """What is there; b"": there will be no more; None: it has gone meanwhile."""
    try:
        return os.read(source, _PIECE)
    except BlockingIOError:
        return None
    except OSError:
        return b""
