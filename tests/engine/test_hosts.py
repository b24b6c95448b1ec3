"""Tests in unusual hosts: with busy threads, forks, interrupts, or their own SIGCHLD handler."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow


def host(code: str, *arguments: str, timeout: float = 60, noise: bool = False) -> str:
    """Run code in a new Python process and return its output. Raises TimeoutExpired on a hang."""
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert noise or "Traceback" not in said.stderr, said.stderr
    return said.stdout or said.stderr


@pytest.mark.parametrize(("busy", "each"), [(0, 3), (2, 1)])
def test_nothing_escapes_from_a_host_with_busy_threads(busy: int, each: int) -> None:
    """The busy threads hold the GIL longer than bash needs to start and detach a process."""
    said = host(f"""
        import threading, nacre
        from nacre.procfs import processes
        over = threading.Event()
        def burn():
            while not over.is_set(): pass
        def commands(n):
            for i in range({each}):
                script = f"(setsid sleep 4{{n}}{{i}}.25 >/dev/null 2>&1 & echo $!); sleep 30"
                outcome = nacre.run(script, timeout=0.3, grace=0.1)
                process = processes.read_process(int(outcome.output.head))
                survived.append(process is not None and process.alive)
        survived = []
        burners = [threading.Thread(target=burn) for _ in range({busy})]
        callers = [threading.Thread(target=commands, args=(n,)) for n in range(3)]
        for thread in burners + callers: thread.start()
        for thread in callers: thread.join()
        over.set()
        print(len(survived), sum(survived))
    """)
    assert said == f"{3 * each} 0\n"


def test_a_fork_that_closes_the_tool_leaves_the_command_of_its_parent_alone() -> None:
    said = host("""
        import os, threading, time, nacre
        tool = nacre.Tool("harness")
        replies = []
        thread = threading.Thread(
            target=lambda: replies.append(tool.call({"command": "sleep 1; echo whole"}).text))
        thread.start()
        time.sleep(0.3)
        child = os.fork()
        if child == 0:
            tool.close()
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
        print(replies)
    """)
    assert "whole" in said


@pytest.mark.parametrize("listen", [(), ("listen",)])
def test_an_interrupt_in_the_middle_of_an_action_neither_hangs_nor_poisons(
    listen: tuple[str, ...],
) -> None:
    said = host(
        """
        import sys, nacre
        from nacre.capture.sink import Sink
        from nacre.engine.engine import Engine
        from nacre.engine.ticket import Ticket
        from nacre.engine.outcome_builder import OutcomeBuilder
        from nacre.engine.output import Output
        from nacre.engine.run import Run
        from nacre.engine.shell_start import ShellStart
        from nacre.engine.supervisor import Supervisor
        from nacre.process import spawner
        from nacre.process.tag_index import TagIndex

        def interrupt_once(owner, name, after):
            real = getattr(owner, name)
            def once(*words, **options):
                setattr(owner, name, real)
                result = real(*words, **options) if after else None
                raise KeyboardInterrupt
            setattr(owner, name, once)

        places = [(TagIndex, "find_leftovers"), (TagIndex, "close"), (Output, "drain"),
                  (Output, "close"), (TagIndex, "tag_early_children"),
                  (Run, "_release"), (OutcomeBuilder, "build"), (ShellStart, "try_start"),
                  (Supervisor, "rest_if_idle"),
                  (spawner.Spawner, "spawn"), (spawner, "collect"),
                  (Supervisor, "on_end"), (Sink, "close"), (Output, "_end"), (Engine, "on_idle"),
                  (Supervisor, "close"), (Ticket, "wait"), (Ticket, "start")]
        listen = (lambda event: None) if sys.argv[1:] == ["listen"] else None
        for owner, name in places:
            for after in (False, True):
                interrupt_once(owner, name, after)
                try:
                    nacre.run("sleep 0.1; true", listen=listen)
                    print("not interrupted", name)
                except KeyboardInterrupt:
                    pass
                outcome = nacre.run("seq 3; exit 3", listen=listen)
                assert outcome.exit_code == 3, (name, after)
                assert outcome.output.newlines == 3, (name, after)
        print("fine")
    """,
        *listen,
    )
    assert said == "fine\n"


def test_interrupts_at_any_moment() -> None:
    said = host(
        """
        import os, random, signal, nacre
        from nacre.procfs import processes
        dice = random.Random(7)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        nacre.run("true")
        interrupts = 0
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0003, 0.004))
                nacre.run("true")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
        assert nacre.run("exit 3").exit_code == 3
        print(interrupts > 20)
    """,
        noise=True,  # Python prints a traceback for an interrupt inside a destructor
    )
    assert said == "True\n"


@pytest.mark.parametrize("way", ["signal.SIG_IGN", "collect"])
def test_a_host_that_collects_our_children_never_makes_a_run_look_unstarted(way: str) -> None:
    said = host(f"""
        import collections, os, signal, threading, nacre
        def collect(*_):
            try:
                while os.waitpid(-1, os.WNOHANG)[0]: pass
            except ChildProcessError: pass
        signal.signal(signal.SIGCHLD, {way})
        endings = collections.Counter()
        def commands():
            for _ in range(40):
                outcome = nacre.run("echo hi; exit 3")
                endings[type(outcome.ending).__name__, outcome.output.head] += 1
        threads = [threading.Thread(target=commands) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(sum(endings.values()), set(endings) <= {{("Exited", b"hi\\n"), ("Lost", b"hi\\n")}})
    """)
    assert said == "120 True\n"


def test_without_a_descriptor_to_look_with_the_tree_is_not_taken_for_empty() -> None:
    said = host("""
        import os, resource, threading, time, nacre
        from nacre.procfs import processes
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        nacre.run("true")  # loaded before the descriptors are gone
        held = []
        def hog():
            time.sleep(0.4)
            try:
                while True: held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError: pass
        threading.Thread(target=hog).start()
        script = "setsid sleep 77.5 & setsid bash -c 'trap \\"\\" TERM; sleep 77.5' & sleep 50"
        outcome = nacre.run(script, timeout=0.8, grace=0.3)
        for fd in held: os.close(fd)
        left = [p for p in processes.list_pids() if processes.command_line(p) == "sleep 77.5"]
        print(type(outcome.ending).__name__, left)
    """)
    assert said == "TimedOut []\n"


def test_an_interrupt_inside_a_tools_block_does_not_hang_its_end() -> None:
    said = host("""
        import nacre, nacre.tool.tool
        from nacre.engine import engine
        class Interrupted:
            def __init__(self, *_): raise KeyboardInterrupt
        real, engine.Ticket = engine.Ticket, Interrupted
        try:
            with nacre.Tool("harness") as tool:
                tool.call({"command": "true"})
        except KeyboardInterrupt:
            print("left")
    """)
    assert said == "left\n"


def test_a_ticket_from_before_a_fork_is_the_parents() -> None:
    said = host("""
        import os, nacre
        from nacre.engine.engine import Engine
        from nacre.model.plan import Command, Plan
        plan = Plan(command=Command(original=b"", script=b"sleep 0.2; echo hi", cwd=b"/"))
        engine = Engine()
        ticket = engine.start(plan)
        if (child := os.fork()) == 0:
            try:
                ticket.wait()
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(ticket.wait().output.head)
    """)
    assert said.splitlines() == [
        "the operation was started before fork(2); only the parent process can wait for it",
        "b'hi\\n'",
    ]


def test_an_audit_hook_of_the_host_sees_the_shells_of_nacre() -> None:
    said = host("""
        import sys, nacre
        seen = []
        def watch(event, given):
            if event == "subprocess.Popen": seen.append(given)
        sys.addaudithook(watch)
        nacre.run("true", cwd="/")
        print(seen)
    """)
    assert said == "[(b'/bin/bash', [b'/bin/bash', b'-c', b'--', b'true'], b'/', None)]\n"


def test_a_fork_in_the_middle_of_an_audit_line_can_write_its_own() -> None:
    said = host("""
        import os, threading, time, nacre
        from nacre.store import append_file
        class Slow:  # a disk
            def __getattr__(self, name): return getattr(os, name)
            def write(self, fd, data):
                if threading.current_thread() is not threading.main_thread(): time.sleep(0.5)
                return os.write(fd, data)
        append_file.os = Slow()
        tool = nacre.Tool("harness")
        thread = threading.Thread(target=tool.call, args=({"command": "true"},))
        thread.start()
        while not tool._audit._file._busy: time.sleep(0.01)
        if (child := os.fork()) == 0:
            print(tool.call({"command": "echo child"}).text, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
    """)
    assert '"child\\n"' in said


def test_nacre_closes_no_descriptor_of_a_host_that_closed_all_descriptors() -> None:
    said = host("""
        import os, nacre
        tools = [nacre.Tool("harness") for _ in range(2)]
        for tool in tools: tool.call({"command": "true"})
        os.closerange(3, 64)
        held = [os.open("/dev/zero", os.O_RDONLY) for _ in range(30)]
        print(tools[0].call({"command": "cat; echo hi"}).text)
        for tool in tools: tool.close()
        print(len([os.fstat(fd) for fd in held]))
    """)
    assert said == '{"stdout":"hi\\n","stderr":"","exitCode":0}\n30\n'


def test_a_signal_handler_gets_an_error_for_a_call_and_may_close_the_tool() -> None:
    said = host("""
        import signal, nacre
        tool = nacre.Tool("harness")
        def handler(*_):
            try:
                tool.call({"command": "true"})
            except RuntimeError as error:
                print(error)
            tool.close()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        print(tool.call({"command": "sleep 60"}).details["error"])
    """)
    first, last = said.splitlines()
    assert first.startswith("a signal handler cannot run a command while its thread waits")
    assert last == "command cancelled"


def test_an_interrupt_while_a_shell_is_collected_leaves_no_zombie() -> None:
    said = host("""
        import os, nacre
        from nacre.procfs import processes
        from nacre.process import spawner
        collect = spawner.collect
        def interrupted(pidfd):
            spawner.collect = collect
            raise KeyboardInterrupt
        spawner.collect = interrupted
        try:
            nacre.run("true")
        except KeyboardInterrupt:
            found = processes.read_all_processes().values()
            print([each for each in found if each.parent == os.getpid()])
    """)
    assert said == "[]\n"


def test_a_shell_that_cannot_be_one_is_refused_in_hosts_with_threads_too() -> None:
    said = host("""
        import threading, nacre
        over = threading.Event()
        thread = threading.Thread(target=over.wait)
        thread.start()
        print(nacre.run("true", shell="/tmp").ending)
        over.set()
    """)
    assert said.startswith("NotStarted(why=NoShell(path=b'/tmp'")


def test_an_interrupted_popen_leaves_the_hosts_own_children_to_the_host() -> None:
    said = host("""
        import gc, os, signal, subprocess, time, nacre
        mine = subprocess.Popen(["sh", "-c", "exit 7"])
        os.waitid(os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
        class Interrupting:
            def __getattr__(self, name): return getattr(os, name)
            def read(self, fd, size):
                subprocess.os = os
                signal.raise_signal(signal.SIGINT)
        subprocess.os = Interrupting()
        try:
            nacre.run("true", shell="bash")  # by its name: always by Popen
        except KeyboardInterrupt:
            gc.collect()
            print(mine.wait())
    """)
    assert said == "7\n"
