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

from nacre import proc
from nacre.cancel import CancelToken
from nacre.engine.stoker import Stoker
from nacre.loop import Call, Loop
from nacre.plan import Plan, Session
from nacre.proc import Process
from nacre.process import quiet, terms
from nacre.process.child import Child, Spawner
from nacre.process.tag import Tag
from nacre.process.warm import Warm
from nacre.refusals import Refused
from nacre.shell import state as states
from nacre.shell import words
from nacre.shell.plain import is_plain
from nacre.shell.state import State
from nacre.store import snapshots
from nacre.store.sessions import Ledger, Pending, SessionFile, new_mark

_AGAIN: Final = 0.001  # seconds until we look again, and how many that becomes
_SLOWEST: Final = 0.02
_MOST: Final = 8  # shells that wait, of one engine
_READY: Final = 2  # of one session
_OPEN: Final = 16  # sessions whose files are kept open
_PATIENCE: Final = 5.0  # seconds that a shell may take to be written down
_BLINK: Final = 0.0003
_ABOUT_TO: Final = 0.05  # seconds in which a copy of a shell has begun to write
# What may set a trap without saying so.
_MAY_TRAP: Final = re.compile(rb"trap|source|eval|(?:^|[\s;&|({])\.\s")


_UNKNOWN: Final = states.NOTHING  # by identity


_all: "WeakSet[Sessions]" = WeakSet()


@atexit.register
def close_all() -> None:
    """While threads of ours still run: later they would not let go of what they hold."""
    for each in [*_all]:
        each.close()


class CannotKeep(Exception):
    """Nothing can be remembered; why."""


class Taken:
    """A command in a session: what becomes of the session when its shell has ended."""

    _over = False

    def __init__(
        self,
        sessions: "Sessions",
        file: SessionFile,
        ledger: Ledger,
        mark: str,
        plan: Plan,
        *,
        plain: bool,
        lost: bool,
    ) -> None:
        """`plain`: it cannot change its shell; `lost`: nobody could read what the one before it
        had left."""
        self._plain = plain
        self._over = plan.session is not None and plan.session.apart
        self.lost = lost
        self._sessions = sessions
        self._file = file
        self._ledger = ledger
        self._mark = mark
        self._draft = os.path.realpath(file.path(mark))
        self._plan = plan

    def saves(self, pid: int) -> bool:
        """Whether this one is not of the command, but writes down what it did to its shell."""
        return not self._plain and proc.writes_file(pid, self._draft)

    def saving(self, seconds: float) -> bool:
        """Whether anybody does, or may be about to, so long after the end of the shell."""
        if self._plain or self._over or _is_whole(self._draft, self._mark):
            return False
        return seconds < _ABOUT_TO or bool(proc.writers(self._draft))

    def let_go(self) -> None:
        """The command goes on, but the session does not wait for it: what it does to its shell is
        its own from now on."""
        if not self._over:
            self._over = True
            self._sessions.release(self._file)

    def ended(self, savers: list[Process], status: int | None) -> bool:
        """The shell has ended, and these were seen to write it down. Whether the session will know
        of it."""
        if self._over:
            if self._plain:  # nobody will ever write there
                self._sessions.throw_away(self._file, self._mark)
            return False
        self._over = True
        kept = self._plain or bool(savers) or _is_whole(self._draft, self._mark)
        if self._plain:
            new = msgspec.structs.replace(self._ledger, status=status or 0)
            if self.lost or new != self._ledger or not new.state:
                with suppress(OSError):
                    self._file.write(new)
        elif kept:
            base = {} if self._ledger.state else self._plan.command.env or {}
            spared = {name: base.get(name) for name in self._plan.command.extra}
            killed = status if status is not None and status > 128 else None
            pending = Pending(mark=self._mark, spared=spared, status=killed)
            ledger = msgspec.structs.replace(self._ledger, pending=pending)
            with suppress(OSError):
                self._file.write(ledger)
        self._sessions.release(self._file)
        unwanted = self._mark if self._plain or not kept else None
        pids = [each.pid for each in savers]
        self._sessions.prepare(self._plan, self._file, pids, unwanted)
        return kept


class Sessions:
    _closed = False
    _spawner: Spawner | None = None
    _begins: tuple[object, State] | None = None  # what a new session begins with, and of what

    def __init__(self, run: Callable[[Plan, CancelToken], None], *, keeps: bool) -> None:
        """`run` runs something of our own to its end; `keeps`: shells are started before somebody
        wants them."""
        self._run = run
        self._keeps = keeps
        self._lock = threading.RLock()
        self._files: dict[tuple[str, str], SessionFile] = {}
        self._users: dict[SessionFile, int] = {}  # commands that run
        self._pauses: dict[SessionFile, float] = {}
        self._warm: list[Warm] = []
        self._unwanted: set[tuple[SessionFile, str]] = set()  # drafts of nothing
        self._setups: dict[str, snapshots.Snapshot] = {}
        self._reading: set[str] = set()  # that are being made
        self._over = CancelToken()
        self._stoker = Stoker()
        _all.add(self)

    def stands(self, place: str, key: str, seconds: float = 0.1) -> tuple[bytes | None, bool]:
        """Where the shell of a session stands, for who must know before he can ask for anything,
        and whether that is sure. None: there is no such session yet."""
        try:
            end = time.monotonic() + seconds
            while True:
                with self._lock:
                    file = self._file(place, key)
                    ledger = self._settled(file)
                if ledger is not None:
                    return ledger.directory or None, not self._busy(file)
                if time.monotonic() > end:
                    return file.ledger().directory or None, False
                time.sleep(_BLINK)  # the shell that has just ended is still being written down
        except OSError:
            return None, True

    def _busy(self, file: SessionFile) -> bool:
        """Whether a command runs in it, here or elsewhere, and may go to another directory."""
        with self._lock:
            if self._users.get(file) or not file.lock():
                return True
            file.unlock()
            return False

    def _settled(self, file: SessionFile) -> Ledger | None:
        """What is known of it now; None: that is just being written. Raises OSError."""
        if self._users.get(file) or not file.lock():
            return file.ledger()  # somebody has it, and what he does to it is not known yet
        try:
            return file.settle(file.ledger())
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
                initial = None if ledger is None else self._initial(plan, session, ledger)
                begins = ledger is not None and initial is not _UNKNOWN
                if locked and not (begins and not session.apart):
                    file.unlock()
                if ledger is None or not begins:
                    self._later(file, loop, again)
                    return None
                self._pauses.pop(file, None)
                if session.apart:
                    return self._begin(plan, session, file, ledger, initial, spawner, mark)
                self._users[file] = self._users.get(file, 0) + 1
                try:
                    return self._begin(plan, session, file, ledger, initial, spawner, mark)
                except BaseException:
                    self.release(file)
                    raise
        except OSError as error:
            raise CannotKeep(f"the session cannot be kept ({error.strerror or error})") from error

    def _initial(self, plan: Plan, session: Session, ledger: Ledger) -> State | None:
        """What a new session begins with: the user's own set-up, if that is wanted. _UNKNOWN: it is
        being read."""
        if ledger.state or not session.setup:
            return None
        name = session.setup
        found = self._setups.get(name) or snapshots.load(name)
        if found is None:
            if name not in self._reading:
                self._reading.add(name)
                self._stoker.do(lambda: self._read_setup(plan, session))
            return _UNKNOWN
        self._setups[name] = found
        if found.state is None:
            return None
        env = os.environb if plan.command.env is None else plan.command.env
        begins = (name, tuple(env.items()), session.stood)
        if self._begins is None or self._begins[0] != begins:
            self._begins = (begins, states.begun(found.state, env, session.stood))
        return self._begins[1]

    def reads_setup_of(self, plan: Plan) -> bool:
        """Whether what its session begins with is just being read."""
        return plan.session is not None and plan.session.setup in self._reading

    def _read_setup(self, plan: Plan, session: Session) -> None:
        from nacre.engine.snapshot import make  # seldom

        env = os.environb if plan.command.env is None else plan.command.env
        made = snapshots.Snapshot(made=time.time(), state=None)
        try:
            made = msgspec.structs.replace(
                made, state=make(plan.shell, env, session.stood, self._alone)
            )
            snapshots.save(session.setup, made)
        except (OSError, ValueError):
            pass  # it is tried again by the next process
        finally:  # a session waits for it
            with self._lock:
                self._setups[session.setup] = made
                self._reading.discard(session.setup)

    def _alone(self, plan: Plan) -> None:
        self._run(plan, self._over)

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
        initial: State | None,
        spawner: Spawner,
        mark: Tag | None,
    ) -> tuple[Child, Taken]:
        if not ledger.made:
            ledger = msgspec.structs.replace(
                ledger, name=session.name, contract=session.contract, made=time.time()
            )
        state = file.state(ledger) or initial
        wanted = _name(ledger, session, state)
        stands = ledger.directory or session.stood
        begins, base = _where_it_stood(plan, session), _Base(plan)
        plain = session.apart or _changes_nothing(plan, session, state)
        while True:
            warm = None if plan.stdin is not None else self._pick(begins, base, session.key, wanted)
            ready = warm is not None
            warm = warm or self._made(begins, spawner, base, session.key, file, wanted, state)
            call = words.call(
                draft=None if plain else os.fsencode(file.path(warm.mark)),
                mark=warm.mark.encode(),
                status=0 if state is not None and b"SIGCHLD" in state.traps else ledger.status,
                directory=_begins(plan, session, stands),
                home=stands if plan.command.placed else None,
                env=plan.command.extra,
                traps=_may_trap(plan.command.script, state),
            )
            try:
                child = warm.run(call, plan.command.script, mark)
            except OSError:  # it has gone, and run nothing
                self._end(warm)
                if not ready:
                    raise
            else:
                lost = ledger.lost
                ledger = msgspec.structs.replace(ledger, lost=False)
                return child, Taken(self, file, ledger, warm.mark, plan, plain=plain, lost=lost)

    def _pick(self, plan: Plan, base: "_Base", key: str, wanted: str) -> Warm | None:
        """One that waits; what has become wrong meanwhile goes."""
        for each in [*self._warm]:
            mine = each.session == key
            if not each.usable or (mine and each.state != wanted):
                self._warm.remove(each)
                self._end(each)
            elif mine and each.base == base and (wanted or each.cwd == plan.command.cwd):
                self._warm.remove(each)
                return each
        return None

    def _made(
        self,
        plan: Plan,
        spawner: Spawner,
        base: "_Base",
        key: str,
        file: SessionFile,
        wanted: str,
        state: State | None,
        *,
        quietly: bool = False,
    ) -> Warm:
        """A shell that waits. Raises Refused, OSError."""
        mark = new_mark()
        draft = file.draft(mark)
        warm = Warm(plan, spawner, base=base, session=key, mark=mark, draft=draft, quietly=quietly)
        try:
            if state is not None:
                warm.become(wanted, states.told(state, base.known))
        except BaseException:
            self._end(warm)
            raise
        return warm

    def _end(self, warm: Warm) -> None:
        warm.end()
        for path in (warm.draft, f"{warm.draft}.traps"):
            with suppress(OSError):
                os.unlink(path)

    # In a thread of its own.

    def prepare(
        self, plan: Plan, file: SessionFile, savers: list[int], unwanted: str | None
    ) -> None:
        """A command has ended, and another one may come. `unwanted`: a draft of nothing."""
        if unwanted is not None:
            self.throw_away(file, unwanted)
        if self._keeps and not self._closed:
            self._stoker.do(lambda: self._prepare(plan, file, savers))

    def throw_away(self, file: SessionFile, mark: str) -> None:
        """A draft of nothing, when there is time for it."""
        self._unwanted.add((file, mark))

    def _tidy(self) -> None:
        while self._unwanted:
            file, mark = self._unwanted.pop()
            file.forget(mark)

    def _prepare(self, plan: Plan, file: SessionFile, savers: list[int]) -> None:
        for pid in savers:
            _wait_for(pid)
        self._tidy()
        session = plan.session
        assert session is not None
        plan = msgspec.structs.replace(_where_it_stood(plan, session), stdin=None)
        base, key = _Base(plan), session.key
        for _ in range(_READY):
            try:
                with self._lock:
                    ledger = None if self._closed or file.gone else self._settled(file)
                    if ledger is None or self._users.get(file):
                        return
                    state = file.state(ledger) or self._initial(plan, session, ledger)
                    wanted = _name(ledger, session, state)
                    mine = [each for each in self._warm if each.session == key]
                    alike = [each for each in mine if each.state == wanted and each.base == base]
                    if len(alike) >= _READY:
                        return
                    spawner = self._spawner = self._spawner or Spawner(ours=False)
                warm = self._made(
                    plan, spawner, base, key, file, wanted, state, quietly=quiet.possible()
                )
            except (Refused, OSError):
                return  # there is no room for it; it will be made when it is wanted
            with self._lock:
                self._warm.append(warm)
                gone = [each for each in mine if each.state != wanted and each in self._warm]
                while self._closed or len(self._warm) > _MOST or gone:
                    if not self._warm:
                        return
                    each = gone.pop() if gone else self._warm[0]
                    self._warm.remove(each)
                    self._end(each)

    def waiting(self, key: str) -> int:
        """How many shells wait for this session."""
        with self._lock:
            return sum(each.session == key for each in self._warm)

    @property
    def pids(self) -> set[int]:
        """Of shells that wait."""
        with self._lock:
            return {each.child.pid for each in self._warm if each.child is not None}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over.cancel()
        self._stoker.close()
        self._tidy()
        with self._lock:
            while self._warm:
                self._end(self._warm.pop())
            while self._files:
                self._files.popitem()[1].close()
            if self._spawner is not None:
                self._spawner.close()

    def forked(self) -> None:
        """We are a fork of our host: all of it is the parent's."""
        self._lock = threading.RLock()
        self._stoker.forked()
        while self._warm:
            self._warm.pop().forked()
        while self._files:
            self._files.popitem()[1].close()
        self._users.clear()


class _Base:
    """What a shell is before it is told anything: nobody could tell two that are equal apart."""

    def __init__(self, plan: Plan) -> None:
        env = os.environb if plan.command.env is None else plan.command.env
        mine = plan.command.terms or terms.mine()
        self._is = (plan.shell, plan.streams, mine, tuple(env.items()))
        self._env = env

    @property
    def known(self) -> states.Base:
        return states.Base(variables=frozenset(self._env))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Base) and self._is == other._is

    def __hash__(self) -> int:
        return hash(self._is)


def _name(ledger: Ledger, session: Session, state: State | None) -> str:
    """Of a state."""
    return "" if state is None else ledger.state or f"+{session.setup}"


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
    """Where the command begins, if that is not where its shell stands anyway."""
    command = plan.command
    moved = command.placed or command.cwd != session.stood
    return command.cwd if moved or not os.path.isdir(stands) else None


def _where_it_stood(plan: Plan, session: Session) -> Plan:
    """What a session is begun with: where it is, not where one of its commands shall be."""
    if not os.path.isdir(session.stood):
        return plan
    command = msgspec.structs.replace(plan.command, cwd=session.stood)
    return msgspec.structs.replace(plan, command=command)


def without(plan: Plan) -> Plan:
    """The same command in a shell that remembers nothing."""
    command, env = plan.command, plan.command.env
    env = dict(os.environb) if env is None else env
    command = msgspec.structs.replace(command, env={**env, **command.extra})
    return msgspec.structs.replace(plan, session=None, command=command)


def _is_whole(draft: str, mark: str) -> bool:
    try:
        with open(draft, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64))
            return file.read().endswith(b"#%b end\n" % mark.encode())
    except OSError:
        return False


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
