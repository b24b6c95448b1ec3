"""Methods that carry out RPC messages and build the data of their responses; see docs/guide/rpc.md.

RPC calls share one `Tool` if their contract (tool dialect), directory, options and list of the
model's other tools are equal. Each `Tool` of the RPC server has its own session, if its contract
has sessions. The JSON lines of the RPC server are read and written in `server`.
"""

import codecs
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from nacre import __version__
from nacre.contracts import registry
from nacre.contracts.contract import Reply, reply_to_pi
from nacre.engine.engine import Engine
from nacre.engine.ticket import Ticket
from nacre.frontends.rpc import messages
from nacre.frontends.rpc.messages import BadMessage, Message
from nacre.frontends.run_json import MAX_PART, PartTooLarge, read_part, run_to_json
from nacre.model.cancel import CancelToken
from nacre.model.events import Chunk, Event, Full, Listening, Stream
from nacre.model.outcome import Outcome
from nacre.model.plan import KIB
from nacre.model.refusals import Refused
from nacre.model.requests import Response
from nacre.model.signals import signal_number
from nacre.runs.access import RunAccess, raise_if_rejected
from nacre.store.listing import list_runs
from nacre.store.stored_run import NoSuchRun
from nacre.store.workspace import find_workspace
from nacre.text.clean import decode
from nacre.tool.detached_run import DetachedRun, JobEnd
from nacre.tool.tool import Tool

_MAX_CHUNK: Final = 64 * KIB  # maximum bytes of a command's output in one `bash_output` event
_UPDATE_INTERVAL: Final = 0.05  # minimum seconds between two `bash_output` events of a command
_MAX_STOPS: Final = 2  # number of stops of an RPC call that have an effect
_MAX_TOOLS: Final = 16  # maximum number of `Tool` objects that stay open for later calls

A = TypeVar("A")
Id = str | int | float | None


class ToolKey(Struct, frozen=True, kw_only=True):
    """Key of a `Tool` object; RPC calls with equal keys share one `Tool`."""

    contract: str
    cwd: str | None = None
    options: str = "{}"  # options of the contract as JSON text, because a dict is not hashable
    tools: tuple[str, ...] = ()


# Function that builds the `Tool` for a `ToolKey`; raises ValueError, OSError.
MakeTool = Callable[[ToolKey], Tool]


class Client(Protocol):
    """Connection to the client that has sent an RPC message."""

    def send(self, message: Message) -> None:
        """Send a message, or queue it if the client is slow; never block."""
        ...

    def send_with_backpressure(self, message: Message) -> None:
        """Send a message, and block while the client is slow; only listener threads may call this
        method, because no other thread may block."""
        ...

    def respond(self, call: "RpcCall", rest: Message) -> None:
        """Send the response to an RPC call; `rest` is the response without the fields that all
        responses have."""
        ...


class RpcCall:
    """RPC message to which the server has not yet responded."""

    def __init__(self, id: Id, verb: str, client: Client) -> None:
        self.session: ToolKey | None = None  # key of the tool that this RPC call uses
        self._cancel_wait: Callable[[], None] | None = None
        self.id = id
        self.verb = verb
        self.warning: str | None = None  # what the response says about ignored fields
        self.cancel = CancelToken()
        self._stops = 0
        self._client = client

    @property
    def owns_command(self) -> bool:
        """Whether the RPC call runs a command of its own, so that stopping the call stops the
        command."""
        return self.verb in ("bash", "call")

    def succeed(self, data: object) -> None:
        self._client.respond(self, {"success": True, "data": data})

    def fail(self, error: object) -> None:
        self._client.respond(self, {"success": False, "error": str(error)})

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """Catch an exception inside the `with` block and send its text to the client as an error
        response."""
        try:
            yield
        except (BadMessage, Refused, NoSuchRun, PartTooLarge, ValueError, OSError) as error:
            self.fail(error)
        except RecursionError:
            self.fail("the message is nested too deep; send a flatter one")
        except Exception as error:  # noqa: BLE001 - a bug in nacre: the client gets a response
            self.fail(f"an internal error of nacre: {error!r}; please report it")

    def wait_for(self, ticket: Ticket[A], then: Callable[[A], object]) -> None:
        """Send the RPC response when the ticket (the handle of a started operation) has an answer,
        which `then` turns into response data."""

        def on_answer(answer: A) -> None:
            with self.report_errors():
                self.succeed(then(answer))

        self._cancel_wait = ticket.cancel
        ticket.then(on_answer)

    def stop(self) -> None:
        """Stop the command of an RPC call; if the call waits for a run that another call started,
        stop only the wait. The second stop kills the command; further stops have no effect."""
        self._stops += 1
        if self._stops > _MAX_STOPS:
            return
        self.cancel.cancel()
        if self._cancel_wait is not None:
            self._cancel_wait()

    def build_listener(self) -> Listening:
        """Build a listener that sends all output of the command to the client; the command blocks
        while the client is slow."""
        decoders: dict[Stream, codecs.IncrementalDecoder] = {}

        def hear(event: Event) -> None:
            if isinstance(event, Chunk):
                if event.stream not in decoders:
                    decoders[event.stream] = codecs.getincrementaldecoder("utf-8")("replace")
                text = decoders[event.stream].decode(event.data)
                self._on_chunk(event.stream, text, event.skipped)
            else:
                for stream, decoder in decoders.items():
                    self._on_chunk(stream, decoder.decode(b"", final=True), 0)

        return Listening(
            listener=hear, every=_UPDATE_INTERVAL, buffer=_MAX_CHUNK, full=Full.WAIT, linger=None
        )

    def _on_chunk(self, stream: Stream, text: str, skipped: int) -> None:
        """Send a piece of a command's output to the client as one `bash_output` event.

        `skipped` is the number of output bytes that were dropped before this piece. nacre drops
        output for a slow client while the command is being stopped, or after its shell has exited.
        """
        if text or skipped:
            event: Message = {"type": "bash_output", "chunk": text}
            event |= {"stream": "stderr"} if stream is Stream.ERRORS else {}
            event |= {"skipped": skipped} if skipped else {}
            self._client.send_with_backpressure(self._with_id(event))

    def send_event(self, event: Message) -> None:
        """Send an event about this RPC call, also after its response."""
        self._client.send(self._with_id(event))

    def _with_id(self, event: Message) -> Message:
        return event if self.id is None else {"id": self.id, **event}


class RpcMethods:
    def __init__(
        self,
        make: MakeTool,
        engine: Engine,
        *,
        contract: str = registry.DEFAULT,
        cwd: str | None = None,
    ) -> None:
        """`contract` and `cwd` are the default contract (tool dialect) and directory for RPC
        messages that name none."""
        self._make = make
        self._engine = engine
        self._contract = contract
        self._cwd = cwd
        self._tools: dict[ToolKey, Tool] = {}
        # Background jobs whose end the server has not yet sent to the client, by run id.
        self._jobs: dict[str, DetachedRun] = {}
        self._not_followed: list[tuple[DetachedRun, Callable[[JobEnd], None]]] = []
        self._verbs: dict[str, Callable[[RpcCall, Message], None]] = {
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

    def dispatch(self, call: RpcCall, message: Message, calls: Collection[RpcCall]) -> None:
        """Carry out an RPC message and send its response, at once or later.

        `calls` holds all RPC calls to which the server has not yet responded. Raises BadMessage,
        Refused, NoSuchRun, PartTooLarge, ValueError, OSError.
        """
        call.warning = messages.remove_unknown_fields(message, call.verb)
        if call.verb == "abort_bash":
            call.succeed(_abort(message, calls))
        else:
            self._close_unused({each.session for each in calls})
            self._verbs[call.verb](call, message)

    def close(self) -> None:
        for run in self._jobs.values():
            run.stop_following()
        for tool in self._tools.values():
            tool.close()

    def _bash(self, call: RpcCall, message: Message) -> None:
        """Run a command that the user wrote, not the model; the response data is a `BashResult` of
        the `pi` contract."""
        stream = message.pop("stream", True)
        if not isinstance(stream, bool):
            raise BadMessage(f"stream must be true or false, not {stream!r}")

        def on_answer(reply: Reply) -> None:
            if "output" in reply.details:
                call.succeed(reply.details)
            else:
                call.fail(reply.text)

        tool = self._tool(call, ToolKey(contract="pi", cwd=self._cwd))
        listening = call.build_listener() if stream else None
        tool.begin(message, on_answer, by_user=True, listen=listening, cancel=call.cancel)

    def _call(self, call: RpcCall, message: Message) -> None:
        """Make a tool call and respond with the data that `nacre call` would print."""
        given = messages.read_message(message, messages.ToolCall)
        tool = self._tool_for(call, given, given.tools)

        def on_answer(reply: Reply) -> None:
            with call.report_errors():
                call.succeed(tool.contract.to_json(reply))

        tool.begin(
            given.arguments,
            on_answer,
            tool=given.tool,
            listen=call.build_listener() if given.stream else None,
            cancel=call.cancel,
            on_detach=lambda run: self._on_detach(call, given, run),
        )

    def _on_detach(self, call: RpcCall, given: messages.ToolCall, run: DetachedRun) -> None:
        """Queue a background job for `follow_jobs`; a job that several calls have started with the
        same request id is queued once."""
        if run.run not in self._jobs:
            self._jobs[run.run] = run
            self._not_followed.append((run, lambda end: self._send_job_end(call, given, end)))

    def follow_jobs(self) -> None:
        """Begin to wait for the end of each new background job. The server calls this method
        between two steps of the engine, because a callback of the engine cannot start an
        operation."""
        while self._not_followed:
            run, then = self._not_followed.pop()
            run.follow(then)

    def _send_job_end(self, call: RpcCall, given: messages.ToolCall, end: JobEnd) -> None:
        del self._jobs[end.run]
        reply = reply_to_pi(end.reply)
        job = {"state": end.state, "jobId": end.run, "type": "bash"}
        reply["details"] = {**end.reply.details, "async": job}
        call.send_event(
            {
                "type": "tool_execution_update",
                "toolCallId": end.run if call.id is None else str(call.id),
                "toolName": given.tool,
                "args": given.arguments,
                "partialResult": reply,  # where clients of pi read the update of a tool call
                **reply,
            }
        )

    def _schema(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Schema)
        call.succeed(self._tool_for(call, given, ()).specs(given.format))

    def _ps(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Ps)
        if given.last < 0:
            raise BadMessage(f"last is {given.last}; it must be 0 or more")
        place = None if given.all else self._workspace(given.cwd)
        call.succeed([run_to_json(run) for run in list_runs(place, given.last)])

    def _read(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Read)
        run = self._access(given).find(str(given.run))
        part = read_part(
            run,
            since=given.since,
            first=given.first,
            last=given.last,
            lines=given.lines,
            most=min(given.most, MAX_PART),
        )
        call.succeed(
            {
                "run": run.name,
                "text": decode(part.data),
                "bytes": part.size,
                "cursor": part.cursor,
                "over": part.complete,
            }
        )

    def _wait(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Wait)
        runs, name = self._access(given), str(given.run)
        ticket = runs.wait(name, _seconds(given.timeout))
        call.wait_for(ticket, lambda _: run_to_json(runs.find(name)))

    def _write(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Write)
        runs, name = self._access(given), str(given.run)
        data = given.text.encode("utf-8", "surrogateescape")
        call.wait_for(runs.write(name, data, eof=given.eof), _end_details(runs, name))

    def _kill(self, call: RpcCall, message: Message) -> None:
        given = messages.read_message(message, messages.Kill)
        runs, name = self._access(given), str(given.run)
        if given.signal is not None:
            call.wait_for(runs.signal(name, signal_number(given.signal)), _end_details(runs, name))
            return

        def on_end(outcome: Outcome | None) -> Message:
            if outcome is None:
                raise BadMessage(f"a process of {name} could not be killed; ps shows the run")
            return run_to_json(runs.find(name))

        grace = _seconds(given.grace) or 0.0
        call.wait_for(runs.end(name, signal.SIGTERM, grace), on_end)

    def _ping(self, call: RpcCall, message: Message) -> None:
        messages.read_message(message, messages.EmptyMessage)
        call.succeed({"nacre": __version__})

    # Helper methods that find the tool, the workspace and the directory of an RPC message.

    def _tool(self, call: RpcCall, session: ToolKey) -> Tool:
        call.session = session
        tool = self._tools.pop(session, None) or self._make(session)
        # Each use of a tool moves it to the end of the dict `_tools`, so that the dict stays in
        # order of last use.
        self._tools[session] = tool
        return tool

    def _close_unused(self, used: Collection[ToolKey | None]) -> None:
        """Close the least recently used tools until at most `_MAX_TOOLS` are open, except tools
        whose key is in `used`."""
        for session in list(self._tools):
            if len(self._tools) <= _MAX_TOOLS:
                break
            if session not in used:
                self._tools.pop(session).close()

    def _tool_for(
        self, call: RpcCall, given: messages.ToolCall | messages.Schema, tools: tuple[str, ...]
    ) -> Tool:
        return self._tool(
            call,
            ToolKey(
                contract=given.contract or self._contract,
                cwd=self._directory(given.cwd),
                options=msgspec.json.encode(given.options, order="sorted").decode(),
                tools=tools,
            ),
        )

    def _access(self, given: messages.RunMessage) -> RunAccess:
        return RunAccess(self._engine, self._workspace(given.cwd))

    def _workspace(self, cwd: str | None) -> bytes:
        return find_workspace(os.path.abspath(os.fsencode(self._directory(cwd) or ".")))

    def _directory(self, cwd: str | None) -> str | None:
        if cwd is None:
            return self._cwd
        return str(Path(self._cwd or ".", os.path.expanduser(cwd)))


def _end_details(runs: RunAccess, name: str) -> Callable[[Response], Message]:
    def on_answer(reached: Response) -> Message:
        raise_if_rejected(reached)
        return run_to_json(runs.find(name))

    return on_answer


def _seconds(given: float | None) -> float | None:
    if given is not None and not given >= 0:
        raise BadMessage(f"{given} is not a number of seconds; give 0 or more")
    return given


def _abort(message: Message, calls: Collection[RpcCall]) -> Message:
    """Stop the commands of all running RPC calls or, if the message has the field `target`, only
    the command of the call whose id is `target`."""
    target = messages.read_message(message, messages.Abort).target
    running = [each for each in calls if each.owns_command]
    if target is not None:
        running = [each for each in running if each.id == target]
        if not running:
            raise BadMessage(
                f"no running call has the id {target!r}; abort_bash without target stops all"
            )
    for each in running:
        each.stop()
    return {"aborted": len(running)}
