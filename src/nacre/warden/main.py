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
    """Serve as the warden until idle, unless another process is the warden. Return the exit code.

    `ready` is a pipe descriptor that gets one byte when the warden can be reached. `adopt`
    describes pipes that the warden reads from now on, see `pipe_handover`.
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
    """Raise the soft limits of this process to the hard limits, except RLIMIT_LOCKS (the run tag).

    The process that started the warden may have low limits, but the warden serves other clients,
    too. A command still gets the limits of the caller that requested it.
    """
    for number in rlimits.LIMIT_NUMBERS:
        if number != RLIMIT_LOCKS:
            with suppress(OSError, ValueError):
                hard = resource.getrlimit(number)[1]
                resource.setrlimit(number, (hard, hard))


def _install_signal_handlers(warden: Warden) -> None:
    """Shut down on TERM and INT, survive HUP and QUIT, reap dead orphans after SIGCHLD."""
    waiting = False

    def reap() -> None:
        nonlocal waiting
        waiting = False
        reap_orphans(warden.context.shell_pids)

    def died(*_: object) -> None:
        nonlocal waiting
        if not waiting:  # most dead children are shells, which their own runs reap
            waiting = True
            warden.loop.post(schedule_reap)

    def schedule_reap() -> None:
        warden.loop.call_later(_REAP_DELAY, reap)

    def end(*_: object) -> None:
        warden.loop.post(warden.shut_down)

    def ignored(*_: object) -> None:
        """Do nothing; unlike SIG_IGN, this handler is not inherited by child processes."""

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, ignored)
    signal.signal(signal.SIGCHLD, died)
    wake_on_signals(warden.loop)
