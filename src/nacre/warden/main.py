"""Entry point of `nacre warden`: run the daemon, or (`--stdio`) connect stdin and stdout to it."""

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

_REAP_DELAY: Final = 0.05  # seconds from SIGCHLD until dead orphans are reaped
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
    """Run as the warden (nacre's daemon) until idle, unless another process is the warden; return
    the exit code.

    `ready` is the descriptor of a pipe that gets one byte when the warden can be reached. `adopt`
    lists inherited pipes for the warden to read: output pipes of processes that outlived their
    run's shell (see `pipe_handover`).
    """
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
            print(f"nacre: a warden is running already ({endpoint.read_owner()})", file=sys.stderr)
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
    """Raise the soft limits of this process to the hard limits, except RLIMIT_LOCKS, which marks
    the processes of a run.

    The warden raises its soft limits, because the process that started it may have low limits, and
    the warden also serves other clients. A command that the warden runs still gets the resource
    limits of the caller that requested it.
    """
    for number in rlimits.LIMIT_NUMBERS:
        if number != RLIMIT_LOCKS:
            with suppress(OSError, ValueError):
                hard = resource.getrlimit(number)[1]
                resource.setrlimit(number, (hard, hard))


def _install_signal_handlers(warden: Warden) -> None:
    """Shut the warden down on TERM and INT, survive HUP and QUIT, and reap dead orphans after
    SIGCHLD."""
    waiting = False

    def reap() -> None:
        nonlocal waiting
        waiting = False
        reap_orphans(warden.context.shell_pids)

    def died(*_: object) -> None:
        nonlocal waiting
        # Orphans are reaped only after a delay, because most dead children are not orphans but
        # shells, and the run of a shell reaps the shell.
        if not waiting:
            waiting = True
            warden.loop.post(schedule_reap)

    def schedule_reap() -> None:
        warden.loop.call_later(_REAP_DELAY, reap)

    def end(*_: object) -> None:
        warden.loop.post(warden.shut_down)

    def ignored(*_: object) -> None:
        """Do nothing on a signal; unlike SIG_IGN, this handler is not inherited by child
        processes."""

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, ignored)
    signal.signal(signal.SIGCHLD, died)
    wake_on_signals(warden.loop)
