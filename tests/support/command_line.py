"""Fork server that runs the `nacre` program for most tests of the command line.

    python -m tests.support.command_line DESCRIPTOR

Each worker of the test suite has one fork server, which has already loaded nacre. `run_nacre` sends
arguments, directory, environment and the three standard descriptors to the server. The server
forks, and the child runs the program. Starting Python and loading nacre for each test would take
many times as long. Tests of signals, terminals, closed descriptors or start-up execute the
installed program (`PROGRAM`) instead. `test_main` executes `PROGRAM` once for each command.
"""

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

PROGRAM = str(Path(sys.executable).parent / "nacre")
_LIMIT = 60.0  # maximum seconds that a command may take

_server: socket.socket | None = None  # connection to this worker's fork server


def run_nacre(
    *words: str, cwd: Path | None = None, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the `nacre` program until it exits."""
    done = run_nacre_bytes(*words, cwd=cwd, stdin=stdin, **variables)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def run_nacre_bytes(
    *words: str, cwd: Path | None = None, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    request = {
        "words": words,
        "cwd": str(cwd or Path.cwd()),
        "variables": {**os.environ, **variables},
    }
    assert _server is not None
    with ExitStack() as stack:
        files = [_file_of(json.dumps(request).encode()), _file_of(stdin)]
        for file in files:
            stack.callback(os.close, file)
        pipes = [stack.enter_context(closing(_Pipe())) for _ in ("stdout", "stderr", "status")]
        socket.send_fds(_server, [b"run"], [*files, *(each.writing for each in pipes)])
        for pipe in pipes:
            pipe.close_writing()
        stdout, stderr, status = _read_all([each.reading for each in pipes], words)
    assert status, f"nacre {words}: the fork server has no status of it"
    return subprocess.CompletedProcess(["nacre", *words], int(status), stdout, stderr)


def detach(cwd: Path, command: str, *options: str) -> str:
    """Start a run that outlives the `nacre` program, and return the id of the run."""
    done = run_nacre("run", "--detach", *options, "--", command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _file_of(content: bytes) -> int:
    if not content:
        return os.open(os.devnull, os.O_RDONLY)
    file = os.memfd_create("nacre-test")
    for start in range(0, len(content), 1 << 20):
        os.write(file, content[start : start + (1 << 20)])
    os.lseek(file, 0, os.SEEK_SET)
    return file


class _Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def close_writing(self) -> None:
        os.close(self.writing)
        self.writing = -1

    def close(self) -> None:
        os.close(self.reading)
        if self.writing >= 0:
            self.close_writing()


def _read_all(descriptors: list[int], words: tuple[str, ...]) -> list[bytes]:
    """Read all descriptors until EOF in parallel, as `subprocess.run` does."""
    found = {each: bytearray() for each in descriptors}
    with selectors.DefaultSelector() as selector:
        for each in descriptors:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(_LIMIT)
            if not ready:
                raise subprocess.TimeoutExpired(["nacre", *words], _LIMIT)
            for key, _ in ready:
                if data := os.read(key.fd, 1 << 16):
                    found[key.fd] += data
                else:
                    selector.unregister(key.fd)
    return [bytes(each) for each in found.values()]


@pytest.fixture(autouse=True, scope="session")
def fork_server(ours: object) -> Iterator[None]:
    """Run the fork server of this worker. The server inherits the worker's tag, so that the leak
    check finds processes that the server's children leave behind."""
    global _server
    del ours
    _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-m", __name__, str(theirs.fileno())]
    with (
        theirs,
        subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL) as process,
        _server,
    ):
        theirs.close()
        yield
        _server.close()
        process.wait(30)


# The functions below run in the fork server.


def serve(requests: socket.socket) -> None:
    """Fork one child for each request, until the worker closes the connection."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps exited children
    while (received := socket.recv_fds(requests, 16, 5))[0]:
        if not os.fork():
            requests.close()
            _supervise(*received[1])
        for each in received[1]:
            os.close(each)


def _supervise(request: int, stdin: int, stdout: int, stderr: int, status: int) -> NoReturn:
    """Run the program in a child of this process, and write the child's exit status to `status`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (pid := os.fork()):
        os.close(status)
        with open(request) as file:
            asked = json.load(file)
        for number, each in enumerate((stdin, stdout, stderr)):
            os.dup2(each, number)
            os.close(each)
        _become_program(asked)
    for each in (request, stdin, stdout, stderr):
        os.close(each)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, str(code).encode())
    os._exit(0)


def _become_program(asked: dict[str, Any]) -> NoReturn:
    from nacre.frontends.cli import main

    os.environ.clear()
    os.environ.update(asked["variables"])
    use_own_environment()
    os.chdir(asked["cwd"])
    sys.argv = [PROGRAM, *asked["words"]]
    main.entry()


def use_own_environment() -> None:
    """Let commands read `os.environ` instead of /proc. In a forked child, /proc/self/environ still
    has the variables of the parent process."""
    from nacre.frontends.cli import common, explain

    for module in (common, explain):
        module.initial_environment = lambda: dict(os.environb)  # type: ignore[attr-defined]


def _load() -> None:
    """Load the modules that commands need, without starting threads or processes."""
    from nacre.bash import analyze
    from nacre.frontends.cli.main import build_parser

    build_parser()
    for name in ("engine.engine", "tool.tool", "sessions.manager", "store.store"):
        import_module(f"nacre.{name}")
    for name in ("harness", "phoenix", "pi.contract", "nacre.contract"):
        import_module(f"nacre.contracts.{name}")
    analyze.analyze(b"ls")
    gc.collect()
    gc.freeze()  # a garbage collection in a forked child would copy every page that it reads


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
