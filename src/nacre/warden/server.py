"""The warden: one small process that runs things for many clients, and goes when it is idle.

It hosts the same engine as any other process of ours, on one loop and one thread: sockets, pipes
and clocks. A client that is gone leaves its runs behind; a cancel ends one. Nothing that a client
sends can hurt the others: frames that make no sense end its connection, what it does not read is
bounded.
"""

import os
import time
from contextlib import suppress
from typing import Final

from nacre import asks
from nacre.engine.engine import run_alone
from nacre.engine.ground import Ground, Rememberer
from nacre.engine.leftovers import Leftover, watch
from nacre.engine.slots import Slots
from nacre.loop import Timer
from nacre.outcome import Capture, NotStarted, Outcome
from nacre.process.ours import become_subreaper, give_back_memory
from nacre.process.pipes import Reader
from nacre.refusals import Refused, TooMany, Unavailable, UnknownRun
from nacre.store import owner, reading, requests
from nacre.store.late import Late
from nacre.store.record import Files, Record
from nacre.store.store import claimed
from nacre.warden import door
from nacre.warden.connection import Asker, Connection
from nacre.warden.frames import MOST_KEPT, Adopt, Leaving
from nacre.warden.hosted import Hosted
from nacre.warden.lost import Recovery

IDLE: Final = 60.0  # seconds without anything to do
_LONGEST_LOG: Final = 1024 * 1024
_FLOOD: Final = 16 * 1024 * 1024  # bytes of output that leave memory behind
_MOMENT: Final = 0.05
_FIRST: Final = 10.0  # seconds that whoever has started us may take to ask


class Warden:
    _idle: Timer | None = None
    _retired = False
    used = False  # somebody has asked for something
    stopping = False
    _ending = False

    def __init__(self, lock: door.Lock, *, idle: float = IDLE) -> None:
        self._lock = lock
        self._patience = idle
        self.sessions = Rememberer(run_alone, keeps=True)
        self.ground = Ground(
            Slots(), ours=become_subreaper(), leave=self.keep, sessions=self.sessions
        )
        self.loop = self.ground.loop
        self.files = Files("warden")
        self.hosted: dict[str, Hosted] = {}
        self.late: set[Leftover] = set()
        self.connections: set[Connection] = set()
        self.recovery = Recovery(self.ground, self.files)
        self._socket = door.listen()
        self._listen()
        lock.sign(owner.me("warden"))
        self.rest()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self.loop.watch(self._socket.fileno(), self._accept)

    def serve(self) -> None:
        """Until there is nothing to do for a while."""
        self.loop.post(self.recovery.begin)
        while not self.stopping:
            try:
                self.loop.step()
            except Exception:  # noqa: BLE001 - whatever went wrong with one must not end the others
                complain()
                time.sleep(_MOMENT)
        self.close()

    def close(self) -> None:
        door.leave()
        for connection in list(self.connections):
            connection.close()
        self.loop.forget(self._socket.fileno())
        self._socket.close()
        self._lock.release()
        self.files.close()
        self.sessions.close()
        self.ground.close()

    def rest(self) -> None:
        """Called whenever something has ended: go, after a while in which nothing begins."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._busy:
            patience = self._patience if self.used else max(_FIRST, self._patience)
            if self._retired and not self.connections:
                patience = 0.0
            self._idle = self.loop.after(patience, self._leave)

    @property
    def _busy(self) -> bool:
        if self._ending:
            return bool(self.hosted)
        asked = any(connection.asked for connection in self.connections)
        return bool(self.hosted or self.late or asked or self.recovery.busy)

    def _leave(self) -> None:
        """Nothing that comes from now on is begun; whoever has asked is told so, and asks again."""
        if self._busy:
            self.rest()
            return
        self.retire()
        for connection in list(self.connections):
            connection.send(Leaving())
        self.stopping = True

    def retire(self) -> None:
        """A newer one shall have our place. What we have stays with us, under our own name."""
        if not self._retired:
            self._retired = True
            self.recovery.drop()  # the next one sees to that
            door.leave_place()
            self._lock.release()
            self.rest()

    def end_all(self) -> None:
        """We are asked to go: orderly, with all that we run."""
        self._ending, self.used, self._patience = True, True, 0.0
        for hosted in list(self.hosted.values()):
            hosted.run.cancel()
        self.retire()
        self.rest()

    def _accept(self) -> None:
        try:
            made, _ = self._socket.accept()
        except BlockingIOError:  # it has gone meanwhile
            return
        except OSError:  # there is no descriptor for it: a little later there may be
            self.loop.forget(self._socket.fileno())
            self.loop.after(_MOMENT, self._listen)
            return
        if door.peer(made)[1] != os.getuid():
            made.close()
            return
        self.connections.add(Connection(self, made))

    # What is asked.

    def run(self, ask: asks.Run, client: Asker) -> None:
        """Raises Refused."""
        if self._ending:
            raise Refused(Unavailable(problem="this warden is asked to go; ask again in a moment"))
        if ask.plan.keep.whole > MOST_KEPT or ask.plan.keep.tail > MOST_KEPT:
            raise Refused(Unavailable(problem=f"more than {MOST_KEPT} bytes cannot be answered"))
        known = None if ask.number is None else self.hosted.get(f"r{ask.number}")
        if known is not None and known.workspace == ask.workspace:
            client.hosted = known  # it has lost its line, and asks again
            known.wait(client, ask.patience)
            return
        if ask.request is not None and (earlier := self._earlier(ask, ask.request)) is not None:
            client.answer(earlier)
            return
        try:
            self._check_room(ask)
            record = Record(self.files, ask.plan, ask.workspace, ask.number)
            hosted = client.hosted = Hosted(ask, client, record, self.ground, self._over)
            if ask.patience == 0 or ask.watched:
                _prepare(record)
        except BaseException:
            _give_back(ask)
            raise
        self.hosted[hosted.name] = hosted
        hosted.begin()

    def _earlier(self, ask: asks.Run, request: asks.Request) -> asks.Earlier | None:
        """The run that was made of the same request before. Raises Refused."""
        if ask.number is None:
            raise Refused(Unavailable(problem="a request needs the number of its run"))
        run = claimed(request, ask.workspace, ask.number, "warden")
        return None if run == ask.number else asks.Earlier(run=f"r{run}")

    def _check_room(self, ask: asks.Run) -> None:
        """Raises Refused."""
        if ask.most is None or (ask.job and ask.patience != 0):
            return
        live = [
            (each.name, each.command)
            for each in self.hosted.values()
            if each.workspace == ask.workspace and (not ask.job or (each.handed and each.job))
        ]
        if len(live) >= ask.most:
            kind = "background jobs" if ask.job else "commands"
            raise Refused(TooMany(most=ask.most, runs=tuple(live), kind=kind))

    def find(self, name: str, workspace: bytes) -> Hosted:
        """Raises Refused: a run of another workspace is not found, either."""
        hosted = self.hosted.get(name)
        if hosted is None or hosted.workspace != workspace:
            raise Refused(UnknownRun(run=name))
        return hosted

    def _over(self, hosted: Hosted, outcome: Outcome) -> None:
        self.hosted.pop(hosted.name, None)
        if isinstance(outcome.ending, NotStarted):
            _give_back(hosted.ask)
        if outcome.output.size > _FLOOD:
            give_back_memory()
        self.rest()

    # What is left running.

    def keep(self, leftover: Leftover) -> None:
        """The pipes of a run of ours that has ended, but left something running."""
        if leftover.workspace is not None:
            self.adopt(leftover, leftover.workspace, leftover.limit)
        else:
            self._watch(leftover, None)

    def take(self, frame: Adopt, fds: list[int]) -> None:
        """Somebody else's run has left something running, and here are its pipes."""
        self.used = True
        readers = {}
        for stream, fd in zip(frame.streams, fds, strict=False):
            os.set_blocking(fd, False)
            readers[stream] = Reader(fd, self.ground.growth)
        if readers:
            leftover = Leftover(readers, None)
            leftover.run = frame.run
            self.adopt(leftover, frame.workspace, frame.limit)
            self.rest()

    def adopt(self, leftover: Leftover, workspace: bytes, limit: int) -> None:
        late: Late | None = None
        with suppress(LookupError, OSError):
            found = reading.find(reading.number(leftover.run), workspace)
            late = Late(found, limit)
            leftover.take = late.take
        self._watch(leftover, late)

    def _watch(self, leftover: Leftover, late: Late | None) -> None:
        self.late.add(leftover)
        leftover.then = lambda: self._silent(leftover, late)
        watch(leftover, self.loop)

    def _silent(self, leftover: Leftover, late: Late | None) -> None:
        self.late.discard(leftover)
        if late is not None:
            late.close()
        self.rest()


def complain() -> None:
    """Into our log, of what should not have happened; not without end."""
    import traceback

    with suppress(OSError):
        if os.fstat(2).st_size > _LONGEST_LOG:
            os.ftruncate(2, 0)
    traceback.print_exc()


def _give_back(ask: asks.Run) -> None:
    """Nothing was run: the same may be asked again."""
    if ask.request is not None and ask.number is not None:
        requests.release(ask.request, ask.workspace, ask.number)


def _prepare(record: Record) -> None:
    """What nobody waits for must be kept, or not begun. Raises Refused."""
    try:
        record.prepare()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        why = Unavailable(problem=f"its output cannot be kept: {error.strerror or error}{where}")
        # Its first line may be written: nobody shall wait for the end of what never began.
        record.end(Outcome(run=record.name, ending=NotStarted(why), output=Capture()))
        raise Refused(why) from None
