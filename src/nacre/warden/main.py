"""`nacre warden`: be the warden, or (`--stdio`) speak to it through stdin and stdout."""

import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from nacre.process import rlimits, run_tag
from nacre.process.own_process import wake_on_signals
from nacre.process.process_tree import reap_orphans
from nacre.procfs.processes import RLIMIT_LOCKS
from nacre.warden import endpoint
from nacre.warden.pipe_handover import forward_pipes, parse_handover
from nacre.warden.server import IDLE_SECONDS, Warden

_REAP_DELAY: Final = 0.05  # seconds that a dead orphan may stay
_USAGE: Final = "nacre warden [--stdio]"


def entry() -> NoReturn:
    words = sys.argv[2:]
    if words == ["--stdio"]:
        from nacre.warden.stdio_bridge import run_bridge

        sys.exit(run_bridge())
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or given.keys() - {"--ready", "--adopt"}:
        sys.exit(f"usage: {_USAGE}")
    ready = given.get("--ready")
    sys.exit(run_warden(None if ready is None else int(ready), given.get("--adopt")))


def run_warden(ready: int | None, adopt: str | None) -> int:
    """Be the warden, unless there is one. `ready` is told when it can be reached; `adopt` are pipes
    to be read from now on, see `pipe_handover`."""
    run_tag.drop_tag()
    _raise_rlimits()
    os.umask(0o077)
    with suppress(OSError):
        os.setsid()
    given = None if adopt is None else parse_handover(adopt)
    try:
        lock = endpoint.WardenLock()
    except BlockingIOError:
        _report_ready(ready)
        if given is not None:
            forward_pipes(*given)
        elif ready is None:
            print(f"nacre: there is a warden already ({endpoint.read_owner()})", file=sys.stderr)
        return 0
    except OSError as error:
        print(f"nacre: the warden cannot start: {error}", file=sys.stderr, flush=True)
        return 1
    warden = Warden(lock, idle=float(os.environ.get("NACRE_WARDEN_IDLE", IDLE_SECONDS)))
    _install_signal_handlers(warden)
    if given is not None:
        warden.adopt_pipes(*given)
    gc.collect()
    gc.freeze()
    _report_ready(ready)
    warden.serve()
    return 0


def _report_ready(ready: int | None) -> None:
    if ready is not None:
        with suppress(OSError):
            os.write(ready, b"1")
            os.close(ready)


def _raise_rlimits() -> None:
    """Whoever has started us may be short of something; we run things for others, too. A command
    has the limits of whoever has asked for it."""
    for number in rlimits.LIMIT_NUMBERS:
        if number != RLIMIT_LOCKS:
            with suppress(OSError, ValueError):
                hard = resource.getrlimit(number)[1]
                resource.setrlimit(number, (hard, hard))


def _install_signal_handlers(warden: Warden) -> None:
    """Whoever asks us to go is obeyed; orphans that came to us are let go when they have died."""
    waiting = False

    def reap() -> None:
        nonlocal waiting
        waiting = False
        reap_orphans(warden.context.shell_pids)

    def died(*_: object) -> None:
        nonlocal waiting
        if not waiting:  # most are shells, whose runs see to them
            waiting = True
            warden.loop.post(schedule_reap)

    def schedule_reap() -> None:
        warden.loop.call_later(_REAP_DELAY, reap)

    def end(*_: object) -> None:
        warden.loop.post(warden.shut_down)

    def ignored(*_: object) -> None:
        """A handler, since what is ignored is ignored by our children, too."""

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, ignored)
    signal.signal(signal.SIGCHLD, died)
    wake_on_signals(warden.loop)
