"""Tests of the saved state: a session behaves like one bash that stays alive."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.model.outcome import Outcome
from tests.support.session_oracle import Sessions, differences, sequence

pytestmark = pytest.mark.slow

SLICE = int(os.environ.get("NACRE_SEQUENCES", "120"))


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    place = tmp_path / "place"
    place.mkdir()
    made = Sessions(place)
    yield made
    made.close()


@pytest.mark.parametrize("first", range(0, SLICE, 20))
def test_random_changes_leave_it_as_a_bash_that_stays(first: int) -> None:
    for seed in range(first, min(first + 20, SLICE)):
        commands = sequence(seed)
        assert not differences(commands, warms=seed % 4 == 0), (seed, commands)


def said(outcome: Outcome) -> str:
    return outcome.output.head.decode()


# Commands that end early but keep the state reached so far: command, next command, its output.
REACHED = {
    "exit": ("x=1; exit 3; x=2", "echo $? $x", "3 1\n"),
    "errexit": ("set -e; x=1; false; x=2", "echo $x $-", "1 ehBc\n"),
    "an unset variable under nounset": ("set -u; x=1; : $nope; x=2", "echo $x", "1\n"),
    "an expansion that is fatal": ("x=1; : ${nope?no}; x=2", "echo $x", "1\n"),
    "a syntax error after lines that ran": ("x=1\nfi\nx=2", "echo $x", "1\n"),
    "TERM to itself": ("x=1; kill -TERM $$; sleep 60", "echo $x", "1\n"),
    "INT to itself": ("x=1; kill -INT $$; sleep 60", "echo $x", "1\n"),
    "HUP to itself": ("x=1; kill -HUP $$; sleep 60", "echo $x", "1\n"),
    "exit in a function, whose locals are no state": (
        "x=1; y=(1 2); f() { local x=inner y=5 z=9; local -n r=x; g; }; "
        "g() { local x=deep; exit; }; f",
        'declare -p x y; echo "${z-none} ${r-none}"',
        'declare -- x="1"\ndeclare -a y=([0]="1" [1]="2")\nnone none\n',
    ),
    "TERM in a function": (
        "x=1; f() { local x=inner; kill -TERM $$; sleep 60; }; f",
        "declare -p x",
        'declare -- x="1"\n',
    ),
    "exit in a file that is read": ("echo 'x=1; exit 4' > file; . ./file", "echo $? $x", "4 1\n"),
    "a readonly IFS": ("readonly IFS; x=1", "echo $x", "1\n"),
    "a printf that was turned off": ("enable -n printf; x=1", "echo $x", "1\n"),
    "output that was closed": ("exec 1>&- 2>&-; x=1", "echo $x", "1\n"),
    "a CHLD trap": ("set -u; trap 'echo C' CHLD; x=1", "echo $x", "1\n"),
    "a function called declare, and others that are exported": (
        "declare() { echo mine; }; foo() { :; }; export -f foo declare",
        "builtin declare -F",
        "declare -fx declare\ndeclare -fx foo\n",
    ),
    "a function called alias": (
        "alias ll='ls -l'; alias() { echo mine; }",
        "builtin alias ll",
        "alias ll='ls -l'\n",
    ),
    "exit in a function called main": (
        "x=1; main() { local x=inner PATH=/nowhere; exit 3; }; main",
        "echo $? $x; true",
        "3 1\n",
    ),
    "exit in a function that has options of its own": (
        "x=1; f() { local -; local z=9; exit; }; f",
        "echo $x; declare -p z 2>&1 | tail -c 10",
        "1\nnot found\n",
    ),
    "a PWD that somebody has made up": ("PWD=/usr; x=$PWD", "echo $x; [[ . -ef $PWD ]]", "/usr\n"),
    "a function that bash cannot read again, and the rest": (
        "aa() { case $1 in (esac) :;; esac; }; set -- P; shopt -s nullglob; trap 'echo t' USR1",
        "echo $1; shopt -q nullglob && trap -p USR1",
        "P\ntrap -- 'echo t' SIGUSR1\n",
    ),
    "a function that fails, and belongs to no file of ours": (
        "f() { nosuchcmd; }",
        "f 2>&1 | sed 's/line [0-9]*/line N/'; f 2>/dev/null",
        "environment: line N: nosuchcmd: command not found\n",
    ),
    "a script that begins like an option": ("x=1", "--help 2>/dev/null; echo $? $x", "127 1\n"),
    "a CHLD trap, and a status": ("trap 'echo C' CHLD; false", "x=1; echo $x", "1\n"),
    "exit in eval": ("eval 'x=1; exit 5'", "echo $? $x", "5 1\n"),
}


@pytest.mark.parametrize(("command", "question", "answer"), REACHED.values(), ids=REACHED)
def test_the_state_that_was_reached_is_kept(
    sessions: Sessions, command: str, question: str, answer: str
) -> None:
    first = sessions.run(command.encode())
    assert first.session_saved
    assert said(sessions.run(question.encode())) == answer


def test_a_first_line_that_makes_no_sense_changes_nothing(sessions: Sessions) -> None:
    sessions.run(b"x=1; set -uo pipefail; set -o noclobber; trap 'echo E >&2' ERR")
    assert sessions.run(b"echo 'oops").exit_code == 2
    told = said(sessions.run(b"echo $x $- $LINENO; shopt -po pipefail; trap -p ERR\necho $LINENO"))
    assert told == "1 huBCc 1\nset -o pipefail\ntrap -- 'echo E >&2' ERR\n2\n"


BEFORE = {
    "exec": "x=2; exec true",
    "KILL": "x=2; kill -KILL $$",
    "an EXIT trap set by the builtin": "x=2; builtin trap 'echo bye' EXIT",
    "no EXIT trap": "x=2; builtin trap - EXIT",
}


@pytest.mark.parametrize("command", BEFORE.values(), ids=BEFORE)
def test_the_state_from_before_is_kept_and_that_is_said(sessions: Sessions, command: str) -> None:
    sessions.run(b"x=1; f() { echo $x; }")
    assert sessions.run(command.encode()).session_saved is False
    again = sessions.run(b"f")
    assert (said(again), again.session_saved) == ("1\n", True)


OWN_TRAPS = {
    "a failure to save under set -e": (
        "set -e; ulimit -f 0; trap 'echo cleanup' EXIT; echo work",
        "work\ncleanup\n",
    ),
    "brace expansion off": (
        "set +B; trap 'echo x' USR1; trap -p",
        "trap -- 'echo x' SIGUSR1\n",
    ),
    "a RETURN trap in a function": (
        "f() { trap 'echo returned' RETURN; echo body; trap - RETURN; }; f",
        "body\n",
    ),
    "an unknown signal": ("trap 'echo x' EXIT; trap x NOSUCH 2>/dev/null; echo $?", "1\nx\n"),
    "a message about an unknown signal": (
        "\ntrap 'echo x' NOSUCH USR1\necho $?; trap -p NOSUCH USR1 | cat",
        "/bin/bash: line 2: trap: NOSUCH: invalid signal specification\n1\n"
        "/bin/bash: line 3: trap: NOSUCH: invalid signal specification\n"
        "trap -- 'echo x' SIGUSR1\n",
    ),
    "exported variables": ("set -a; trap 'env | grep -c _nacre' EXIT", "0\n"),
}


@pytest.mark.parametrize(("script", "output"), OWN_TRAPS.values(), ids=OWN_TRAPS)
def test_traps_of_the_user_work_as_in_bash(sessions: Sessions, script: str, output: str) -> None:
    sessions.run(b"g() { trap 'echo returned' RETURN; echo body; trap - RETURN; }")
    assert said(sessions.run(script.encode())) == output
    assert said(sessions.run(b"g")) == "body\n"


@pytest.mark.parametrize("more", ["source ./env.sh", ". ./env.sh", "alias ll=ls", "eval y=2"])
def test_an_exit_trap_beside_other_code_keeps_the_state(
    sessions: Sessions, tmp_path: Path, more: str
) -> None:
    (tmp_path / "env.sh").write_text("x=1\n")
    script = f"cd {tmp_path}; trap 'echo bye' EXIT; {more}; x=2"
    outcome = sessions.run(script.encode())
    assert (said(outcome), outcome.session_saved) == ("bye\n", True)
    assert said(sessions.run(b"eval 'trap -p'; echo $x")) == "2\n"


def test_the_exit_trap_of_the_user_is_traced(sessions: Sessions) -> None:
    outcome = sessions.run(b"set -x; trap 'echo bye $?' EXIT; (exit 3)")
    assert said(outcome) == "++ trap 'echo bye $?' EXIT\n++ exit 3\n++ echo bye 3\nbye 3\n"
    assert said(sessions.run(b"echo $-")).startswith("++ echo ")


# Lines that nacre or another shell tool might search for in the output of a command.
MARKERS = (
    "---CLAUDE_END---",
    "__CMD_DONE_0__",
    "###PS1END###",
    "SHELLPS1PREFIX",
    "UNIQUESTRING123$",
    "\\x1b]133;D;0\\x07",
    "#m1 end",
    "#_nacre_mark end",
    'declare -- x=\\"9\\"',
)


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_that_a_program_prints_changes_nothing(sessions: Sessions, marker: str) -> None:
    command = f'x=1; v="{marker}"; printf \'%b\\n\' "$v"; printf \'%b\\n\' "$v" >&2; exit 7'
    outcome = sessions.run(command.encode())
    assert outcome.exit_code == 7
    assert outcome.output.size == 2 * (len(outcome.output.head) // 2)
    again = sessions.run(b'printf "%s %s" "$x" "$v"')
    assert said(again).startswith("1 ")


def test_a_command_that_knows_the_mark_cannot_spoof_the_saved_state(sessions: Sessions) -> None:
    """A command can read the mark of the saved state from its EXIT trap. With the mark, the command
    can damage only its own session."""
    sessions.run(b"x=1")
    command = b"""t=$(trap -p EXIT); m=${t#*_nacre_mark=}; m=${m%%;*}; m=${m%% *}
v="
#$m end
"; x=2; echo "#$m end" """
    assert sessions.run(command).session_saved
    assert said(sessions.run(b'echo $x; [[ $v == *" end"* ]] && echo there')) == "2\nthere\n"


NO_STATE = {
    "SHLVL": ("SHLVL=7", "echo $SHLVL", "1\n"),
    "the hash table": (
        "hash -p /bin/true nothing",
        "hash -t nothing 2>/dev/null || echo no",
        "no\n",
    ),
    "limits": ("ulimit -S -c 0; ulimit -S -n 77", "(($(ulimit -n) != 77)) && echo no", "no\n"),
    "jobs": ("sleep 0.01 &", 'echo "[$!]"', "[]\n"),
    "open descriptors": ("exec 7</dev/null", "{ : <&7; } 2>/dev/null || echo no", "no\n"),
    "job control": ("set -m", "case $- in *m*) echo m;; *) echo no;; esac", "no\n"),
    "EXIT traps": ("trap 'echo bye' EXIT", "echo hi", "hi\n"),
}


@pytest.mark.parametrize(("command", "question", "answer"), NO_STATE.values(), ids=NO_STATE)
def test_what_is_no_state_is_not_remembered(
    sessions: Sessions, command: str, question: str, answer: str
) -> None:
    sessions.run(command.encode())
    assert said(sessions.run(question.encode())) == answer


# Commands and their expected output. The test appends `exit 9` on a separate line.
NOTHING_MORE = {
    "xtrace": ("set -x; echo hi", "++ echo hi\nhi\n++ exit 9\n"),
    "xtrace to a descriptor of one's own": (
        "exec 5>&1; BASH_XTRACEFD=5; set -x; echo hi",
        "++ echo hi\nhi\n++ exit 9\n",
    ),
    "a DEBUG trap": ("trap 'echo D' DEBUG; echo hi", "D\nhi\nD\n"),
    "a DEBUG trap that is inherited": ("set -T; trap 'echo D' DEBUG; echo hi", "D\nhi\nD\n"),
    "an ERR trap that is inherited": ("set -E; trap 'echo E' ERR; echo hi", "hi\n"),
    "errexit": ("set -e; echo hi", "hi\n"),
    "noclobber": ("set -C; echo hi", "hi\n"),
    "no PATH": ("PATH=; echo hi", "hi\n"),
    "posix": ("set -o posix; echo hi", "hi\n"),
    "no files": ("ulimit -f 0; echo hi", "hi\n"),
    "nowhere to write": ('chmod 0 .; echo hi; chmod 700 "$PWD"', "hi\n"),
    "functions over everything": (
        "for f in declare printf trap set shopt alias umask mapfile compgen unset; do "
        'eval "$f() { echo WRONG; }"; done; echo hi',
        "hi\n",
    ),
    "a function over builtin": ("builtin() { echo WRONG; }; echo hi", "hi\n"),
    "aliases over everything": (
        "for a in declare printf trap set shopt alias umask builtin if for case eval; do "
        "builtin alias $a='echo WRONG;'; done\necho hi",
        "hi\n",
    ),
}


@pytest.mark.parametrize(("command", "output"), NOTHING_MORE.values(), ids=NOTHING_MORE)
def test_saving_changes_neither_output_nor_exit_code(
    sessions: Sessions, command: str, output: str
) -> None:
    outcome = sessions.run(f"{command}\nexit 9".encode())
    assert (said(outcome), outcome.exit_code) == (output, 9)
    assert outcome.left_running == ()


def test_a_state_directory_that_cannot_be_had_is_said_and_the_command_runs(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NACRE_HOME", str(tmp_path / "file" / "state"))
    outcome = sessions.run(b"echo $A", extra={b"A": b"1"})
    assert (said(outcome), outcome.session_saved) == ("1\n", False)
    assert outcome.session_problem.startswith("the session cannot be saved (")


def test_variables_of_a_call_are_the_calls_alone(sessions: Sessions) -> None:
    sessions.run(b"A=mine; declare -a B=(1 2)")
    given = {b"A": b"given", b"B": b"given", b"C": b"given"}
    outcome = sessions.run(b'A+=x; echo $A $B $C; sh -c "echo \\$A \\$B \\$C"', extra=given)
    assert said(outcome) == "givenx given given\ngivenx given given\n"
    asked = sessions.run(b'declare -p A B; echo "${C-none}"')
    assert said(asked) == 'declare -- A="mine"\ndeclare -a B=([0]="1" [1]="2")\nnone\n'


def test_a_directory_of_a_call_is_the_calls_alone_unless_it_goes_elsewhere(
    sessions: Sessions, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    (place / "d").mkdir()

    def stands(script: str, cwd: Path | None = None) -> str:
        outcome = sessions.run(script.encode(), cwd=cwd)
        return said(outcome).strip()

    assert stands("pwd", place / "d") == str(place / "d")
    assert stands("pwd; :") == str(place)
    assert stands("x=1; pwd", place / "d") == str(place / "d")
    assert stands("pwd; :") == str(place)
    assert stands("cd /usr; pwd", place / "d") == "/usr"
    assert stands("pwd; :") == "/usr"


def test_a_directory_of_a_call_is_not_where_one_goes_back_to(
    sessions: Sessions, tmp_path: Path
) -> None:
    sessions.run(b"cd /tmp; cd /usr")
    sessions.run(b"x=1", cwd=tmp_path)
    assert said(sessions.run(b"echo $OLDPWD; cd -; pwd")) == "/tmp\n/tmp\n/tmp\n"


def test_what_could_not_be_written_is_said_by_the_next(sessions: Sessions) -> None:
    """If the saver fails before nacre has noticed the saver, the reply itself says that the state
    was not saved. Then the next command does not report the failure again."""
    sessions.run(b"x=1")
    saved = sessions.run(b"ulimit -f 0; x=2").session_saved
    outcome = sessions.run(b"echo $x")
    assert (said(outcome), outcome.previous_state_lost) == ("1\n", saved)
    assert not sessions.run(b"echo $x").previous_state_lost


def test_a_status_that_a_killed_shell_could_not_know(sessions: Sessions) -> None:
    sessions.run(b"x=1; kill -TERM $$; sleep 5")
    assert said(sessions.run(b"echo $?")) == "143\n"


def test_a_directory_that_is_gone_ends_nothing(sessions: Sessions, tmp_path: Path) -> None:
    sessions.run(b"mkdir d; cd d; x=1")
    (tmp_path / "place" / "d").rmdir()
    place = tmp_path / "place"
    outcome = sessions.run(b"echo $x; pwd")
    assert said(outcome) == f"1\n{place}\n"
    assert outcome.session_moved == (bytes(place / "d"), bytes(place))
    outcome = sessions.run(b"y=1; pwd")  # the session keeps its directory, in case it comes back
    assert outcome.session_moved == (bytes(place / "d"), bytes(place))
    (place / "d").mkdir()
    outcome = sessions.run(b"echo $y; pwd")
    assert (said(outcome), outcome.session_moved) == (f"1\n{place}/d\n", None)
