"""Comparison of a prewarmed shell with `bash -c`: same result, or a documented difference.

docs/guide/sessions.md lists the differences. A probe fails if its result newly differs, or if a
documented difference has disappeared.
"""

import os
from pathlib import Path

import pytest

from nacre.engine.engine import Engine
from nacre.model.outcome import Ending
from nacre.model.plan import Command, Plan
from tests.support.helpers import eventually
from tests.support.session_oracle import ENV, Sessions

pytestmark = pytest.mark.slow

SAME = {
    "a command": "echo hi",
    "no command": ":",
    "exit code": "exit 3",
    "exit code of the last command": "true; false",
    "of a program that fails": "ls /nope 2>/dev/null",
    "not found": "no-such-program-at-all",
    "not executable": "/etc/passwd",
    "a signal": "kill -KILL $$",
    "a signal that it handles": "trap 'echo t; exit 4' TERM; kill -TERM $$; sleep 5",
    "a signal that ends it": "kill -TERM $$; sleep 5",
    "INT ends it": "kill -INT $$; sleep 5",
    "$0": "echo $0",
    "no arguments": 'echo "$#" "$@"',
    "$$ is the shell": "[ $$ = $BASHPID ] && echo same; [ $PPID != $$ ] && echo other",
    "$- says how it was started": "echo $-",
    "BASH_EXECUTION_STRING": 'echo "$BASH_EXECUTION_STRING"',
    "BASH_SUBSHELL": "echo $BASH_SUBSHELL; (echo $BASH_SUBSHELL)",
    "SHLVL": "echo $SHLVL",
    "FUNCNAME": 'echo "${#FUNCNAME[@]}"; f() { echo "${FUNCNAME[@]}"; }; f',
    "BASH_SOURCE": 'echo "${BASH_SOURCE[0]-none}"',
    "caller": "caller 0 || echo none",
    "LINENO": "echo $LINENO\n\necho $LINENO",
    "LINENO in a function": "f() {\necho $LINENO\n}\nf",
    "line of an error": "\n\nno-such-program-at-all",
    "an unset variable": "set -u; echo $nope; echo after",
    "an error that ends the script": "echo a; : ${x?gone}; echo b",
    "a bad substitution": "echo ${x@Z}; echo after",
    "a readonly variable": "readonly x=1; x=2; echo after",
    "division by zero": "echo $((1/0)); echo after",
    "return outside": "return 3 2>/dev/null; echo $?",
    "break outside": "break 2>/dev/null; echo $?",
    "errexit": "set -e; echo a; false; echo b",
    "errexit in a condition": "set -e; if false; then :; fi; false || echo b; ! true; echo c",
    "errexit in a function": "set -e; f() { false; echo no; }; f; echo no",
    "pipefail": "set -o pipefail; false | true; echo $?",
    "a pipe": "echo hi | cat | tr a-z A-Z",
    "PIPESTATUS after a pipe": 'false | true | (exit 3); echo "${PIPESTATUS[@]}"',
    "stdin is empty": "cat; read x; echo $?",
    "stdin is /dev/null": "readlink /proc/self/fd/0",
    "the same pipe for both": "[ /proc/self/fd/1 -ef /proc/self/fd/2 ] && echo one",
    "descriptors": "cd /proc/$$/fd; echo *; ls /proc/self/fd | wc -l",
    "the next free descriptor": "exec {fd}</dev/null; echo $fd",
    "no terminal": "tty; [ -t 0 ] || [ -t 1 ] || echo none",
    "a session of its own": (
        "read -r _ _ _ _ p s _ < /proc/$$/stat; [ $p = $$ ] && [ $s = $$ ] && echo own"
    ),
    "signals are as they were": "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status",
    "signals of the shell": (  # bash reads its own status: masks differ while it waits for a child
        "while read -r n v; do case $n in SigBlk:|SigIgn:) echo $v;; esac; done < /proc/$$/status"
    ),
    "the umask": "umask",
    "the directory": "pwd; echo $PWD; readlink /proc/$$/cwd",
    "OLDPWD": "echo ${OLDPWD-unset}",
    "limits": "ulimit -a | grep -v 'file locks'",  # the limit of file locks holds the run tag
    "the environment of programs": "env | grep -v '^_=' | sort",
    "exported functions": "f() { echo f; }; export -f f; bash -c f",
    "options": "set -o; shopt | grep -v expand_aliases",
    "variables": "compgen -v | grep -vx -e BASH_EXECUTION_STRING -e PIPESTATUS",
    "functions": "declare -F; compgen -A function",
    "aliases": "alias",
    "IFS": 'printf %q "$IFS"',
    "globs": "cd /etc; echo host*; echo nope*",
    "braces, tildes, arithmetic": "echo {1..3} ~ $((2**10)) ${PATH%%:*}",
    "here-documents": "cat <<E\n$HOME\nE\ncat <<'E'\n$HOME\nE",
    "here-strings": "cat <<< hi",
    "process substitution": "diff <(echo a) <(echo b)",
    "subshells": "(cd /; pwd); pwd; x=$(echo $BASHPID); [ $x != $$ ] && echo other",
    "coprocesses": (
        "coproc cat; echo hi >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x; kill $COPROC_PID"
    ),
    "arrays": "a=(1 2 3); echo ${a[@]:1} ${#a[@]}; declare -A m=([k]=v); echo ${m[k]}",
    "background jobs": "sleep 0.01 & wait $!; echo $?; jobs",
    "disown and nohup": "nohup true 2>/dev/null; sleep 60 & disown; echo $?; kill $!",
    "EXIT trap": "trap 'echo bye' EXIT; echo hi",
    "traps": "trap -p; trap 'echo bye' EXIT; trap 'echo int' INT; trap -p; trap - EXIT; trap",
    "odd arguments of trap": "trap x SIGEXIT; echo $?; trap foo; echo $?; trap -; echo $?; trap 0; "
    "trap 'echo a' EXIT; trap -p -- EXIT INT; trap -- EXIT; trap -p; trap USR1; echo $?; "
    "trap 'echo a' EXIT USR1; trap 0 10; echo $?; trap -p; IFS=0; trap 'echo b' 10; echo $?; "
    "trap -p EXIT --; echo $?; trap 'echo c' EXIT; trap 10 0; trap -p",
    "traps in a subshell": "trap 'echo bye' EXIT; (trap -p; trap 'echo sub' EXIT; trap -p EXIT)",
    "EXIT trap, exit": "sleep 0 & p=$!; wait; trap 'echo $?; [ $! = $p ]; exit 3$?' EXIT; false",
    "EXIT trap and exit": "trap 'echo bye $?' EXIT; exit 5",
    "ERR trap": "trap 'echo err' ERR; false; true",
    "DEBUG trap": "trap 'echo d' DEBUG; echo hi; :",
    "RETURN trap": "trap 'echo r' RETURN; f() { :; }; f; . /dev/null",
    "traps that are ignored": "trap '' INT; kill -INT $$; echo on",
    "exec": "exec echo hi",
    "exec of nothing": "exec no-such-program 2>/dev/null; echo not",
    "eval": 'eval "echo a; echo b"',
    "getopts": "set -- -a -b x; while getopts ab: o; do echo $o $OPTARG; done; echo $OPTIND",
    "read and mapfile": "read a b <<< 'x y'; echo $b; mapfile -t l < <(seq 3); echo ${l[2]}",
    "printf": "printf '%s|%q|%d\\n' a 'b c' 7; printf -v x %05d 3; echo $x",
    "select, case, for": "for i in 1 2; do case $i in 1) echo one;; *) echo $i;; esac; done",
    "time": "{ TIMEFORMAT=x; time true; } 2>&1",
    "history and completion": "history | wc -l; complete | wc -l",
    "comments and blank lines": "# one\n\n  # two\necho hi # three",
    "an unterminated here-document": "cat <<E\nhi",
    "a script of a megabyte": "x='" + "y" * 1_000_000 + "'; echo ${#x}",
    "bytes that are no text": "printf '%s' $'\\xff\\xfe' | od -An -tx1",
    "set --": 'set -- a b; echo "$2"',
    "source": "echo 'echo in $1' > s; . ./s arg; echo $?",
    "command -v": "command -v ls cd nope; echo $?",
    "type": "type -t cd ls if nope",
    "SECONDS": "echo $SECONDS",
    "RANDOM has a seed": "RANDOM=1; echo $RANDOM",
    "extglob is off": "shopt extglob; [[ aa == +(a) ]] && echo matches",
}
# Probes with a documented difference, and the words for it in docs/guide/sessions.md.
NAMED = {
    "a syntax error": ("echo hi\nfi", "says `eval:`"),
    "one in the first line": ("if", "says `eval:`"),
    "xtrace": ("set -x; echo hi", "one `+` more"),
    "the last command": (
        "sh -c 'read -r c < /proc/$PPID/comm; [ $c = bash ] && echo bash'",
        "not replaced by its last command",
    ),
    "$_": ("echo $_", "`$_`"),
    "PIPESTATUS": ('echo "${#PIPESTATUS[@]}"', "`PIPESTATUS`"),
    "aliases are expanded": ("alias hi='echo hello'\nhi", "aliases"),
    "expand_aliases": ("shopt expand_aliases", "aliases"),
    "verbose": ("set -v\necho hi", "`set -v`"),
}
DOCS = Path(__file__).parents[2] / "docs" / "guide" / "sessions.md"


class Shells:
    """Runner of a script in a plain `bash -c` and in a prewarmed shell, in one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._plain = Engine(keep_loop=True)
        self._warm = Sessions(root, warms=True)
        self._number = 0

    def both(self, script: str) -> tuple[tuple[Ending, bytes], tuple[Ending, bytes]]:
        self._number += 1
        key = f"probe{self._number}"
        self._warm.run(b"true", key=key)
        eventually(lambda: self._warm.engine.sessions().count_prewarmed(key))
        warm = self._warm.run(script.encode(), key=key)
        command = Command(
            original=b"", script=script.encode(), cwd=os.fsencode(self._root), env=ENV
        )
        plain = self._plain.start(Plan(command=command)).wait()
        return (plain.ending, plain.output.head), (warm.ending, warm.output.head)

    def close(self) -> None:
        self._plain.close()
        self._warm.close()


def test_there_are_enough_of_them() -> None:
    assert len(SAME) + len(NAMED) >= 58


def test_what_is_the_same(tmp_path: Path) -> None:
    shells = Shells(tmp_path)
    try:
        different = {}
        for name, script in SAME.items():
            plain, warm = shells.both(script)
            if plain != warm and "SECONDS" in script:
                # A new second may have begun before one of the two shells printed its SECONDS.
                plain, warm = shells.both(script)
            if plain != warm:
                different[name] = (plain, warm)
    finally:
        shells.close()
    assert different == {}


def test_what_has_a_name(tmp_path: Path) -> None:
    shells = Shells(tmp_path)
    try:
        alike = {name for name, (script, _) in NAMED.items() if _alike(shells, script)}
    finally:
        shells.close()
    assert alike == set()
    told = DOCS.read_text()
    assert f"all {len(SAME)} comparisons" in told
    assert [words for _, words in NAMED.values() if words not in told] == []


def _alike(shells: Shells, script: str) -> bool:
    plain, warm = shells.both(script)
    return plain == warm
