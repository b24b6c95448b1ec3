"""Real programs that wait for input, and real programs that do not.

Each program runs as an agent would run it, with `interactive: true`. The state that nacre reports
is compared with the expected state. `python -m tests.support.programs` prints a table for the docs.
"""

import os
import shlex
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple

import nacre

PYTHON = shlex.quote(sys.executable)
# Wait limits in seconds: `WAIT` for programs that wait for input, `SOON` for all others. nacre
# detects an input wait within about one second. The rest is a margin for slow machines.
WAIT = 8.0
SOON = 2.0


class Program(NamedTuple):
    asks: bool
    command: str
    needs: str = "bash"

    @property
    def there(self) -> bool:
        return shutil.which(self.needs) is not None


def python(code: str) -> str:
    return f"{PYTHON} -c '{code}'"


_SERVER = 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen()'
_NODE_SERVER = 'require("http").createServer().listen(0)'
PROGRAMS = [
    # Programs that wait for typed input.
    Program(True, "read x"),
    Program(True, "printf 'Proceed? [y/N] '; read -r answer; echo $answer"),
    Program(True, "read -t 60 x"),
    Program(True, "select x in a b; do break; done"),
    Program(True, "mapfile -t lines"),
    Program(True, "while read -r line; do echo $line; done"),
    Program(True, "bash"),
    Program(True, "sh -c 'read x'", "sh"),
    Program(True, "(cd / && (read x))"),
    Program(True, "cat", "cat"),
    Program(True, "cat | sort", "cat"),
    Program(True, "grep x", "grep"),
    Program(True, "sed s/a/b/", "sed"),
    Program(True, "awk '{print}'", "awk"),
    Program(True, "wc -l", "wc"),
    Program(True, "tee /dev/null", "tee"),
    Program(True, "head -n 1", "head"),
    Program(True, "xargs echo", "xargs"),
    Program(True, "dd of=/dev/null", "dd"),
    Program(True, "gzip -dc", "gzip"),
    Program(True, "tar -xf -", "tar"),
    Program(True, "touch a; rm -i a", "rm"),
    Program(True, "touch a b; cp -i a b", "cp"),
    Program(True, "git hash-object --stdin", "git"),
    Program(True, "env -i cat", "env"),
    Program(True, "setsid -w cat", "setsid"),
    Program(True, "timeout 60 cat", "timeout"),
    Program(True, "sleep 60 & cat", "sleep"),
    Program(True, "perl -e '<STDIN>'", "perl"),
    Program(True, "perl -MIO::Select -e 'IO::Select->new(*STDIN)->can_read'", "perl"),
    Program(True, "ed", "ed"),
    Program(True, "bc", "bc"),
    Program(True, "sqlite3", "sqlite3"),
    Program(True, "openssl passwd -stdin", "openssl"),
    Program(
        True,
        "ssh-keygen -qt ed25519 -f key -N ''; ssh-keygen -t ed25519 -f key -N ''",
        "ssh-keygen",
    ),
    Program(True, f"{PYTHON} -i -q"),
    Program(True, f"echo pass > x.py; {PYTHON} -m pdb x.py"),
    Program(True, python('input("name: ")')),
    Program(True, python("import sys; sys.stdin.buffer.read()")),
    Program(True, python("import select; select.select([0],[],[])")),
    Program(True, python("import select; p=select.poll(); p.register(0,1); p.poll()")),
    Program(True, python("import select; p=select.epoll(); p.register(0,1); p.poll()")),
    Program(
        True, python("import threading; t=threading.Thread(target=input); t.start(); t.join()")
    ),
    Program(True, python("import os; os.fork() or input(); os.wait()")),
    Program(True, python("import cmd; cmd.Cmd().cmdloop()")),
    Program(True, python("import code; code.interact()")),
    Program(
        True,
        python(
            "import asyncio, sys\nasync def f():\n r=asyncio.StreamReader()\n"
            " await asyncio.get_running_loop().connect_read_pipe("
            "lambda: asyncio.StreamReaderProtocol(r), sys.stdin)\n await r.readline()\n"
            "asyncio.run(f())"
        ),
    ),
    Program(
        True,
        python(
            "import select; a=select.epoll(); b=select.epoll(); a.register(0,1);"
            " b.register(a.fileno(),1); b.poll()"
        ),
    ),
    Program(True, "node -e 'process.stdin.resume()'", "node"),
    Program(
        True,
        'node -e \'require("readline").createInterface({input:process.stdin,output:process.stdout})'
        '.question("q? ",()=>{})\'',
        "node",
    ),
    # Programs that sleep, compute, serve, or wait for another process, but not for input.
    Program(False, "sleep 60", "sleep"),
    Program(False, "sleep 60 | cat", "sleep"),
    Program(False, "sleep 60 | sort | uniq", "sleep"),
    Program(False, "cat < <(sleep 60)", "cat"),
    Program(False, "(sleep 60; echo) | (read x; echo $x)", "sleep"),
    Program(False, "sleep 60 & wait", "sleep"),
    Program(False, "while :; do :; done"),
    Program(False, "while sleep 0.2; do echo tick; done", "sleep"),
    Program(False, "tail -f /dev/null", "tail"),
    Program(False, "mkfifo pipe; cat pipe", "mkfifo"),
    Program(False, "mkfifo door; sleep 60 > door & cat door", "mkfifo"),
    Program(False, "read x < <(sleep 60)", "sleep"),
    Program(False, "exec < /dev/null; sleep 60", "sleep"),
    Program(False, "timeout 60 sleep 60", "timeout"),
    Program(False, "flock /tmp sleep 60", "flock"),
    Program(False, "yes > /dev/null", "yes"),
    Program(False, "dd if=/dev/zero of=/dev/null", "dd"),
    Program(False, "exec 3<> <(:); read -u 3 x"),
    Program(False, "perl -e 'sleep 60'", "perl"),
    Program(False, "perl -e '1 while 1'", "perl"),
    Program(False, f"{PYTHON} -m http.server 0"),
    Program(False, python(f"{_SERVER}; s.accept()")),
    Program(False, python(f"{_SERVER}; import select; select.select([0,s],[],[])")),
    Program(
        False,
        python(
            f"{_SERVER}; import select; p=select.epoll();"
            " p.register(0,1); p.register(s,1); p.poll()"
        ),
    ),
    Program(False, python("import signal; signal.pause()")),
    Program(False, python("import threading; threading.Event().wait(60)")),
    Program(False, python("import time; time.sleep(60)")),
    Program(False, python("import socket; a,b=socket.socketpair(); a.recv(1)")),
    Program(False, python("import subprocess; subprocess.run(['sleep','60'])".replace("'", '"'))),
    Program(False, python("import queue; queue.Queue().get()")),
    Program(False, python("import os; r,w=os.pipe(); os.read(r,1)")),
    Program(False, python("import asyncio; asyncio.run(asyncio.sleep(60))")),
    Program(False, python("import select; select.poll().poll(60000)")),
    Program(
        False,
        python(
            'import socket, select; s=socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen();'
            " select.select([0,s],[],[])"
        ),
    ),
    Program(False, f"node -e '{_NODE_SERVER}'", "node"),
    Program(False, f"node -e 'process.stdin.resume();{_NODE_SERVER}'", "node"),
    Program(False, "node -e 'setInterval(()=>{}, 1000)'", "node"),
    Program(False, "git -c core.pager=cat log --no-walk HEAD 2>/dev/null; sleep 60", "git"),
    Program(False, "make -f - <<< $'all:\\n\\tsleep 60'", "make"),
]


class Result(NamedTuple):
    program: Program
    state: str
    seconds: float

    @property
    def right(self) -> bool:
        return (self.state == "waiting_input") is self.program.asks


def run_all(programs: list[Program], at_once: int = 8) -> list[Result]:
    """Run each program in its own subdirectory, `at_once` at a time, and kill it at the end."""
    with nacre.Tool("nacre") as tool, ThreadPoolExecutor(at_once) as pool:
        tool.call({"command": "true"})  # starts the warden
        return list(pool.map(lambda each: _run_one(tool, *each), enumerate(programs)))


def _run_one(tool: nacre.Tool, number: int, program: Program) -> Result:
    place = f"p{number}"
    os.mkdir(place)
    began = time.monotonic()
    wait = WAIT if program.asks else SOON
    call = {"command": program.command, "cwd": place, "interactive": True, "wait": wait}
    details = tool.call(call).details
    seconds = time.monotonic() - began
    tool.call({"action": "signal", "run": details["run"], "signal": "KILL"}, tool="job")
    return Result(program, details["state"], seconds)


def table(results: list[Result]) -> str:
    """Return a summary for the docs: how often nacre was right, for both kinds of programs."""
    said = [each for each in results if each.state == "waiting_input"]
    asks = [each for each in results if each.program.asks]
    right = [each for each in said if each.program.asks]
    rows = [
        f"- programs that wait for input: {len(asks)}; nacre noticed {len(right)} of them "
        f"(recall {len(right) / len(asks):.2f}), in {median(r.seconds for r in right):.1f} s",
        f"- other programs: {len(results) - len(asks)}; nacre took {len(said) - len(right)} of "
        f"them for a program that waits for input (precision {len(right) / len(said):.2f})",
    ]
    wrong = [
        f"- wrong: `{each.program.command}` is {each.state}" for each in results if not each.right
    ]
    return "\n".join([*rows, *wrong])


def select(step: int = 1) -> list[Program]:
    return [program for program in PROGRAMS if program.there][::step]


def main() -> None:
    """Run `python -m tests.support.programs [STEP] [AT_ONCE]` in an empty directory."""
    step, at_once = (int(word) for word in [*sys.argv[1:], "1", "1"][:2])
    print(table(run_all(select(step), at_once)))


if __name__ == "__main__":
    main()
