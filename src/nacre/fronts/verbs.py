"""What each message of the RPC asks for, and the data that answers it; docs/rpc.md.

A tool is one session of its contract, so calls with the same contract, directory, options and
tools share one.
"""

import codecs
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from nacre import __version__, contracts
from nacre.asks import Reached
from nacre.cancel import CancelToken
from nacre.contracts.contract import Reply
from nacre.engine.engine import Engine, Ticket
from nacre.events import Chunk, Event, Full, Listening, Stream
from nacre.fronts import messages
from nacre.fronts.messages import Message, Wrong
from nacre.fronts.told import MOST, TooMuch, as_json, part_of
from nacre.outcome import Outcome
from nacre.plan import KIB
from nacre.reach import Reach, checked
from nacre.refusals import Refused
from nacre.signals import signal_number
from nacre.store.listing import listed
from nacre.store.reading import NoSuchRun
from nacre.store.workspace import workspace
from nacre.text import decode
from nacre.tool import Tool

_CHUNK: Final = 64 * KIB  # of output in one event
_EVERY: Final = 0.05  # seconds at least between two of them
_TOOLS: Final = 16  # sessions that are kept for the next call

A = TypeVar("A")
Id = str | int | float | None


class Session(Struct, frozen=True, kw_only=True):
    """What makes one tool another."""

    contract: str
    cwd: str | None = None
    options: str = "{}"  # as JSON, since it is a key
    tools: tuple[str, ...] = ()


MakeTool = Callable[[Session], Tool]  # raises ValueError, OSError


class Call:
    """A message that is being answered."""

    session: Session | None = None  # whose tool it uses
    _cancel_wait: Callable[[], None] | None = None

    def __init__(
        self,
        id: Id,
        verb: str,
        say: Callable[[Message], None],
        answer: Callable[["Call", Message], None],
    ) -> None:
        """`say` may wait, and is called by threads that may."""
        self.id = id
        self.verb = verb
        self.cancel = CancelToken()
        self._say = say
        self._answer = answer

    @property
    def runs(self) -> bool:
        """Whether it is about a command of its own, which ends with it."""
        return self.verb in ("bash", "call")

    def done(self, data: object) -> None:
        self._answer(self, {"success": True, "data": data})

    def fail(self, error: object) -> None:
        self._answer(self, {"success": False, "error": str(error)})

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Whatever goes wrong here is the answer."""
        try:
            yield
        except (Wrong, Refused, NoSuchRun, TooMuch, ValueError, OSError) as error:
            self.fail(error)
        except RecursionError:
            self.fail("this is nested too deep; send something flatter")
        except Exception as error:  # noqa: BLE001 - a mistake of ours: whoever waits hears of it
            self.fail(f"a mistake in nacre: {error!r}; please report it")

    def attend(self, ticket: Ticket[A], then: Callable[[A], object]) -> None:
        """To be answered when the ticket is."""

        def told(answer: A) -> None:
            with self.answering():
                self.done(then(answer))

        self._cancel_wait = ticket.cancel
        ticket.then(told)

    def stop(self) -> None:
        """End its command, or stop waiting."""
        self.cancel.cancel()
        if self._cancel_wait is not None:
            self._cancel_wait()

    def listening(self) -> Listening:
        """All that is said reaches the client, however slow he is; the command waits for him."""
        decoders: dict[Stream, codecs.IncrementalDecoder] = {}

        def hear(event: Event) -> None:
            if isinstance(event, Chunk):
                if event.stream not in decoders:
                    decoders[event.stream] = codecs.getincrementaldecoder("utf-8")("replace")
                said = decoders[event.stream].decode(event.data)
                self._heard(event.stream, said, event.skipped)
            else:
                for stream, decoder in decoders.items():
                    self._heard(stream, decoder.decode(b"", final=True), 0)

        return Listening(listener=hear, every=_EVERY, buffer=_CHUNK, full=Full.WAIT, linger=None)

    def _heard(self, stream: Stream, text: str, skipped: int) -> None:
        """`skipped`: one that is being ended does not wait for a slow reader any more."""
        if text or skipped:
            said: Message = {} if self.id is None else {"id": self.id}
            said |= {"type": "bash_output", "chunk": text}
            said |= {"stream": "stderr"} if stream is Stream.ERRORS else {}
            self._say({**said, "skipped": skipped} if skipped else said)


class Verbs:
    def __init__(
        self,
        make: MakeTool,
        engine: Engine,
        *,
        contract: str = contracts.DEFAULT,
        cwd: str | None = None,
    ) -> None:
        """`contract` and `cwd` are for messages that name none."""
        self._make = make
        self._engine = engine
        self._contract = contract
        self._cwd = cwd
        self._tools: dict[Session, Tool] = {}
        self._verbs: dict[str, Callable[[Call, Message], None]] = {
            "bash": self._bash,
            "call": self._call,
            "schema": self._schema,
            "ps": self._ps,
            "read": self._read,
            "wait": self._wait,
            "write": self._write,
            "kill": self._kill,
            "ping": self._ping,
        }
        self.names = ("bash", "abort_bash", *(name for name in self._verbs if name != "bash"))

    def do(self, call: Call, message: Message, calls: Collection[Call]) -> None:
        """Answer it, now or later. `calls` are all that are under way. Raises Wrong, Refused,
        NoSuchRun, TooMuch, ValueError, OSError."""
        if call.verb == "abort_bash":
            call.done(_aborted(call, message, calls))
        else:
            self._put_away({each.session for each in calls})
            self._verbs[call.verb](call, message)

    def close(self) -> None:
        for tool in self._tools.values():
            tool.close()

    def _bash(self, call: Call, message: Message) -> None:
        """A command of the user's: a `BashResult`."""
        stream = message.pop("stream", True)
        if not isinstance(stream, bool):
            raise Wrong(f"stream must be true or false, not {stream!r}")

        def told(reply: Reply) -> None:
            if "exitCode" in reply.details:
                call.done(reply.details)
            else:
                call.fail(reply.text)

        tool = self._tool(call, Session(contract="pi", cwd=self._cwd))
        listening = call.listening() if stream else None
        tool.begin(message, told, by_user=True, listen=listening, cancel=call.cancel)

    def _call(self, call: Call, message: Message) -> None:
        """What `nacre call` prints."""
        given = messages.read(message, messages.ToolCall)
        tool = self._chosen(call, given, given.tools)

        def told(reply: Reply) -> None:
            with call.answering():
                call.done(tool.contract.printed(reply))

        tool.begin(
            given.arguments,
            told,
            tool=given.tool,
            listen=call.listening() if given.stream else None,
            cancel=call.cancel,
        )

    def _schema(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Schema)
        call.done(self._chosen(call, given, ()).specs(given.format))

    def _ps(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Ps)
        if given.last < 0:
            raise Wrong(f"last is {given.last}; it must be 0 or more")
        place = None if given.all else self._workspace(given.cwd)
        call.done([as_json(run) for run in listed(place, given.last)])

    def _read(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Read)
        run = self._reach(given).find(str(given.run))
        part = part_of(
            run,
            since=given.since,
            first=given.first,
            last=given.last,
            lines=given.lines,
            most=min(given.most, MOST),
        )
        call.done(
            {
                "run": run.name,
                "text": decode(part.data),
                "bytes": part.size,
                "cursor": part.cursor,
                "over": part.over,
            }
        )

    def _wait(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Wait)
        runs, name = self._reach(given), str(given.run)
        ticket = runs.wait(name, _seconds(given.timeout))
        call.attend(ticket, lambda _: as_json(runs.find(name)))

    def _write(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Write)
        runs, name = self._reach(given), str(given.run)
        data = given.text.encode("utf-8", "surrogateescape")
        call.attend(runs.write(name, data, eof=given.eof), _done(runs, name))

    def _kill(self, call: Call, message: Message) -> None:
        given = messages.read(message, messages.Kill)
        runs, name = self._reach(given), str(given.run)
        if given.signal is not None:
            call.attend(runs.signal(name, signal_number(given.signal)), _done(runs, name))
            return

        def ended(outcome: Outcome | None) -> Message:
            if outcome is None:
                raise Wrong(f"something of {name} could not be killed; ps shows it")
            return as_json(runs.find(name))

        grace = _seconds(given.grace) or 0.0
        call.attend(runs.end(name, signal.SIGTERM, grace), ended)

    def _ping(self, call: Call, message: Message) -> None:
        messages.read(message, messages.Nothing)
        call.done({"nacre": __version__})

    # What they need.

    def _tool(self, call: Call, session: Session) -> Tool:
        call.session = session
        tool = self._tools.pop(session, None) or self._make(session)
        self._tools[session] = tool  # the one used last is the last to go
        return tool

    def _put_away(self, used: Collection[Session | None]) -> None:
        """Those that were not used for long, and that nobody uses."""
        for session in list(self._tools):
            if len(self._tools) <= _TOOLS:
                break
            if session not in used:
                self._tools.pop(session).close()

    def _chosen(
        self, call: Call, given: messages.ToolCall | messages.Schema, tools: tuple[str, ...]
    ) -> Tool:
        return self._tool(
            call,
            Session(
                contract=given.contract or self._contract,
                cwd=self._directory(given.cwd),
                options=msgspec.json.encode(given.options, order="sorted").decode(),
                tools=tools,
            ),
        )

    def _reach(self, given: messages.OfRun) -> Reach:
        return Reach(self._engine, self._workspace(given.cwd))

    def _workspace(self, cwd: str | None) -> bytes:
        return workspace(os.path.abspath(os.fsencode(self._directory(cwd) or ".")))

    def _directory(self, cwd: str | None) -> str | None:
        if cwd is None:
            return self._cwd
        return str(Path(self._cwd or ".", os.path.expanduser(cwd)))


def _done(runs: Reach, name: str) -> Callable[[Reached], Message]:
    def told(reached: Reached) -> Message:
        checked(reached)
        return as_json(runs.find(name))

    return told


def _seconds(given: float | None) -> float | None:
    if given is not None and not given >= 0:
        raise Wrong(f"{given} seconds make no sense; it is 0 or more")
    return given


def _aborted(call: Call, message: Message, calls: Collection[Call]) -> Message:
    """All that runs, or one of them: the `target`, or whose id this is."""
    given = messages.read(message, messages.Abort)
    running = [each for each in calls if each.runs]
    wanted = call.id if given.target is None else given.target
    if wanted is not None and not given.all:
        running = [each for each in running if each.id == wanted]
        if not running:
            raise Wrong(
                f'nothing that runs has the id {wanted!r}; {{"all": true}} ends all, "target" one'
            )
    for each in running:
        each.stop()
    return {"aborted": len(running)}
