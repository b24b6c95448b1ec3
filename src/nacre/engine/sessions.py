"""Shells that remember, and shells that are already there.

A session is a file (`store.sessions`). When a command of it has ended, a copy of its shell writes
down what the next one shall know; that is waited for, read, and told to shells that then wait for
their script, all in a thread of its own that nobody waits for. A command that comes in time finds
such a shell, one that comes too early has one made.

Of one engine, for all of its threads. Who must wait for a session does so by way of his loop.
"""

import atexit
import os
import re
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import msgspec

from nacre.cancel import CancelToken
from nacre.engine.setups import UNKNOWN, Setups
from nacre.engine.shells import READY, Shells, Wanted, end, environment, made
from nacre.engine.stoker import Stoker
from nacre.engine.taken import Taken
from nacre.loop import Call, Loop
from nacre.plan import Plan, Session
from nacre.process import quiet
from nacre.process.child import Child, Spawner
from nacre.process.tag import Tag
from nacre.process.warm import Warm
from nacre.refusals import BadDirectory, DirectoryProblem, Refused
from nacre.shell import words
from nacre.shell.plain import is_plain
from nacre.shell.state import State
from nacre.store.sessions import Ledger, SessionFile

_AGAIN: Final = 0.001  # seconds until we look again, and how many that becomes
_SLOWEST: Final = 0.02
_OPEN: Final = 16  # sessions whose files are kept open
_PATIENCE: Final = 5.0  # seconds that a shell may take to be written down
_BLINK: Final = 0.0003
# What may set a trap without saying so.
_MAY_TRAP: Final = re.compile(rb"trap|source|eval|(?:^|[\s;&|({])\.\s")


_all: "WeakSet[Sessions]" = WeakSet()


@atexit.register
def close_all() -> None:
    """While threads of ours still run: later they would not let go of what they hold."""
    for each in [*_all]:
        each.close()


class CannotKeep(Exception):
    """Nothing can be remembered; why."""


class Sessions:
    _closed = False
    _spawner: Spawner | None = None

    def __init__(
        self, run: Callable[[Plan, CancelToken], None], births: threading.Lock, *, keeps: bool
    ) -> None:
        """`run` runs something of our own to its end; `keeps`: shells are started before somebody
        wants them, each while nobody else has `births`."""
        self._keeps = keeps
        self._births = births
        self._lock = threading.RLock()
        self._files: dict[tuple[str, str], SessionFile] = {}
        self._users: dict[SessionFile, int] = {}  # commands that run
        self._pauses: dict[SessionFile, float] = {}
        self._shells = Shells()
        self._unwanted: set[tuple[SessionFile, str]] = set()  # drafts of nothing
        self._over = CancelToken()
        self._stoker = Stoker()
        self._setups = Setups(lambda plan: run(plan, self._over), self._stoker)
        _all.add(self)

    def stands(self, place: str, key: str, seconds: float = 0.1) -> tuple[bytes | None, bool]:
        """Where the shell of a session stands, for who must know before he can ask for anything,
        and whether that is sure. None: there is no such session yet."""
        try:
            end = time.monotonic() + seconds
            while True:
                with self._lock:
                    file = self._file(place, key)
                    ledger, busy = self._look(file)
                if ledger is not None:
                    return ledger.directory or None, not busy
                if time.monotonic() > end:
                    return file.ledger().directory or None, False
                time.sleep(_BLINK)  # the shell that has just ended is still being written down
        except OSError:
            return None, True

    def _look(self, file: SessionFile) -> tuple[Ledger | None, bool]:
        """What is known of it now (None: that is just being written), and whether a command runs in
        it, here or elsewhere, and may change that. Raises OSError."""
        if self._users.get(file) or not file.lock():
            return file.ledger(), True
        try:
            return file.settle(file.ledger()), False
        finally:
            file.unlock()

    def take(
        self, plan: Plan, spawner: Spawner, mark: Tag | None, loop: Loop, again: Call
    ) -> tuple[Child, Taken] | None:
        """The shell of the session that runs this, from this moment on; None: not yet, `again` is
        called when it is worth another try. Raises Refused, CannotKeep."""
        session = plan.session
        assert session is not None
        try:
            with self._lock:
                file = self._file(session.place, session.key)
                alone = not self._users.get(file)
                locked = alone and file.lock()
                ledger = None
                if locked or not alone:
                    ledger = file.settle(file.ledger())
                elif session.apart:
                    ledger = file.ledger()  # whoever has it is not waited for
                state = None if ledger is None else self._state(plan, session, file, ledger)
                begins = ledger is not None and state is not UNKNOWN
                if locked and not (begins and not session.apart):
                    file.unlock()
                if ledger is None or not begins:
                    self._later(file, loop, again)
                    return None
                self._pauses.pop(file, None)
                if session.apart:
                    return self._begin(plan, session, file, ledger, state, spawner, mark)
                self._users[file] = self._users.get(file, 0) + 1
                try:
                    return self._begin(plan, session, file, ledger, state, spawner, mark)
                except BaseException:
                    self.release(file)
                    raise
        except OSError as error:
            raise CannotKeep(f"the session cannot be kept ({error.strerror or error})") from error

    def _state(
        self, plan: Plan, session: Session, file: SessionFile, ledger: Ledger
    ) -> State | None:
        """What its next shell shall be; UNKNOWN: that is being read. Raises OSError."""
        return file.state(ledger) if ledger.state else self._setups.state(plan, session)

    def reads_setup_of(self, plan: Plan) -> bool:
        """Whether what its session begins with is just being read."""
        return plan.session is not None and self._setups.reads(plan.session)

    def release(self, file: SessionFile) -> None:
        """A command of it has ended, or does not count any more."""
        with self._lock:
            users = self._users.pop(file, 0) - 1
            if users > 0:
                self._users[file] = users
                return
            file.unlock()
            for key, other in [*self._files.items()][:-_OPEN]:
                if other not in self._users:  # it is opened again when it is wanted
                    del self._files[key]
                    self._pauses.pop(other, None)
                    other.close()

    def _later(self, file: SessionFile, loop: Loop, again: Call) -> None:
        pause = self._pauses.get(file, _AGAIN)
        self._pauses[file] = min(2 * pause, _SLOWEST)
        loop.after(pause, again)

    def _file(self, place: str, key: str) -> SessionFile:
        """Raises OSError."""
        file = self._files.get((place, key))
        if file is not None and file.gone and not self._users.get(file):
            file.close()
            file = None
        if file is None:
            file = self._files[place, key] = SessionFile(place, key)
        return file

    def _begin(
        self,
        plan: Plan,
        session: Session,
        file: SessionFile,
        ledger: Ledger,
        state: State | None,
        spawner: Spawner,
        mark: Tag | None,
    ) -> tuple[Child, Taken]:
        if not ledger.made:
            ledger = msgspec.structs.replace(
                ledger, name=session.name, contract=session.contract, made=time.time()
            )
            if session.name and not session.apart:
                file.write(ledger)  # it can be found from now on
        wanted = _wanted(_where_it_stood(plan, session, ledger), session, ledger, state)
        stands = ledger.directory or session.stood
        # A session has the environment and the directory of its first command.
        plain = session.apart or (bool(ledger.state) and _changes_nothing(plan, session, state))
        begins = _begins(plan, session, stands)
        while True:
            warm = self._shells.pick(wanted) if plan.stdin is None else None
            ready = warm is not None
            warm = warm or made(wanted, spawner, file)
            call = words.call(
                draft=None if plain else os.fsencode(file.path(warm.mark)),
                mark=warm.mark.encode(),
                status=ledger.status,
                seen=state is not None and b"CHLD" in state.traps,
                directory=begins,
                home=stands if plan.command.placed else None,
                env=plan.command.extra,
                traps=not plain and _may_trap(plan.command.script, state),
            )
            try:
                child = warm.run(call, plan.command.script, mark)
            except OSError:  # it has gone, and run nothing
                end(warm)
                if not ready:
                    raise
            else:
                lost = ledger.lost
                ledger = msgspec.structs.replace(ledger, lost=False)
                return child, Taken(self, file, ledger, warm.mark, plan, plain=plain, lost=lost)

    # In a thread of its own.

    def prepare(
        self, plan: Plan, file: SessionFile, savers: list[int], unwanted: str | None
    ) -> None:
        """A command has ended, and another one may come. `unwanted`: a draft of nothing."""
        if unwanted is not None:
            self._unwanted.add((file, unwanted))
        if self._keeps and not self._closed:
            self._stoker.do(lambda: self._prepare(plan, file, savers))

    def discard(self, file: SessionFile, mark: str, savers: list[int]) -> None:
        """A draft that nobody wants, when it has been written."""
        self._unwanted.add((file, mark))
        if self._keeps and not self._closed:
            self._stoker.do(lambda: self._clear(savers))

    def _clear(self, savers: list[int]) -> None:
        for pid in savers:
            _wait_for(pid)
        self._tidy()

    def _tidy(self) -> None:
        while self._unwanted:
            file, mark = self._unwanted.pop()
            file.forget(mark)

    def _prepare(self, plan: Plan, file: SessionFile, savers: list[int]) -> None:
        self._clear(savers)
        session = plan.session
        assert session is not None
        plan = msgspec.structs.replace(plan, stdin=None)
        for _ in range(READY):
            try:
                with self._lock:
                    ledger = None if self._closed or file.gone else self._look(file)[0]
                    if ledger is None or self._users.get(file):
                        return
                    state = self._state(plan, session, file, ledger)
                    stood = _where_it_stood(plan, session, ledger)
                    wanted = _wanted(stood, session, ledger, state)
                    if state is UNKNOWN or self._shells.enough(wanted):
                        return
                    spawner = self._spawner = self._spawner or Spawner(ours=False)
                with self._births:
                    self._keep(made(wanted, spawner, file, quietly=quiet.possible()))
            except (Refused, OSError):
                return  # there is no room for it; it will be made when it is wanted

    def _keep(self, warm: Warm) -> None:
        with self._lock:
            self._shells.add(warm)
            if self._closed:
                self._shells.close()

    def waiting(self, key: str) -> int:
        """How many shells wait for this session."""
        with self._lock:
            return self._shells.of(key)

    @property
    def pids(self) -> set[int]:
        """Of shells that wait."""
        with self._lock:
            return self._shells.pids

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over.cancel()
        self._stoker.close()
        self._tidy()
        with self._lock:
            self._shells.close()
            while self._files:
                self._files.popitem()[1].close()
            if self._spawner is not None:
                self._spawner.close()

    def forked(self) -> None:
        """We are a fork of our host: all of it is the parent's."""
        self._lock = threading.RLock()
        self._stoker.forked()
        self._shells.forked()
        while self._files:
            self._files.popitem()[1].close()
        self._users.clear()


def _wanted(plan: Plan, session: Session, ledger: Ledger, state: State | None) -> Wanted:
    # What one begins with also says where it stands.
    name = "" if state is None else ledger.state or f"+{session.setup} {session.stood!r}"
    return Wanted(plan, session.key, name, state)


def _changes_nothing(plan: Plan, session: Session, state: State | None) -> bool:
    stays = plan.command.placed or plan.command.cwd == session.stood
    return stays and is_plain(plan.command.script, state)


def _may_trap(script: bytes, state: State | None) -> bool:
    """Whether it could change what is done at INT or QUIT; taking the long way is never wrong."""
    if _MAY_TRAP.search(script):
        return True
    if state is None:
        return False
    if b"trap" in state.aliases:
        return True
    return b"trap" in state.functions and any(name in script for name in state.names)


def _begins(plan: Plan, session: Session, stands: bytes) -> bytes | None:
    """Where the command begins, if that is not where its shell stands anyway. Raises Refused where
    that cannot be, which its caller could not know: in another directory it might do harm."""
    command = plan.command
    if command.placed or command.cwd != session.stood:
        return command.cwd
    if not _can_be_entered(stands):
        there = os.path.isdir(stands)
        problem = DirectoryProblem.FORBIDDEN if there else DirectoryProblem.MISSING
        raise Refused(BadDirectory(path=stands, problem=problem))
    return None


def _can_be_entered(path: bytes) -> bool:
    return os.access(path + b"/.", os.X_OK)


def _where_it_stood(plan: Plan, session: Session, ledger: Ledger) -> Plan:
    """What a session is begun with: where it is, not where one of its commands shall be."""
    for place in (session.stood, ledger.directory):
        if place and _can_be_entered(place):
            if place == plan.command.cwd:
                return plan
            command = msgspec.structs.replace(plan.command, cwd=place)
            return msgspec.structs.replace(plan, command=command)
    return plan


def without(plan: Plan) -> Plan:
    """The same command in a shell that remembers nothing."""
    env = {**environment(plan), **plan.command.extra}
    command = msgspec.structs.replace(plan.command, env=env)
    return msgspec.structs.replace(plan, session=None, command=command)


def _wait_for(pid: int) -> None:
    """Until it has ended; then, if it has come to us as an orphan, let it go."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # it has
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        if poll.poll(_PATIENCE * 1000):
            with suppress(OSError):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    finally:
        os.close(pidfd)
