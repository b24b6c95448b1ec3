"""Starting a process that is nobody's child: it goes on when we are gone, and is never our zombie.

A shell starts it in the background and ends at once, so that it comes to init, or to whoever is the
subreaper above us. It is born with the warden's tag: no run may take it for a part of itself.
"""

import os
import resource
from contextlib import suppress

from nacre import proc
from nacre.plan import BASH
from nacre.process import child, terms
from nacre.process.birth import Birth, Order
from nacre.process.launch import launch
from nacre.process.tag import WARDEN


def start_alone(
    words: list[bytes], env: dict[bytes, bytes], *, errors: int, passed: tuple[int, ...]
) -> None:
    """`errors` is where its stderr goes; it has no other output. Raises OSError."""
    command = [BASH, b"-c", b'"$0" "$@" &', *words]
    hard = resource.getrlimit(proc.RLIMIT_LOCKS)[1]
    if terms.can_be_set() and (hard == resource.RLIM_INFINITY or WARDEN.value <= hard):
        # And with all that it may have: whoever starts it may be short of something, and where
        # files may not grow, Python would even leave broken bytecode behind.
        command = [terms.PRLIMIT, b"--locks=%d:" % WARDEN.value, *terms.raised(), *command]
    birth = Birth()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        launch(Order(command, b"/", env, nothing, nothing, errors, passed, 0o077), birth)
        with suppress(ChildProcessError):  # our host collects every child
            os.waitid(os.P_PIDFD, birth.pidfd, os.WEXITED | os.WNOWAIT)
        child.collect(birth.pidfd)
        os.close(birth.pidfd)
    except BaseException:
        birth.undo()
        raise
    finally:
        os.close(nothing)
