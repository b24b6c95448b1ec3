"""Comparison of a nacre session with one long-running bash, by random changes of shell state.

    python -m tests.support.session_oracle FIRST LAST

Each number from FIRST to LAST is the seed of one sequence of commands. The session and the
long-running bash both execute the sequence. Then a probe script writes the complete state of each
shell to files, and the two states are compared. A sequence that ends the long-running bash cannot
be compared. The program counts such sequences.
"""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nacre.engine.engine import Engine
from nacre.model.outcome import Outcome
from nacre.model.plan import Command, Plan, Session
from nacre.shell_state import state as states

ENV: Final = {
    b"PATH": b"/usr/bin:/bin",
    b"HOME": os.fsencode(os.path.expanduser("~")),
    b"LANG": b"C.UTF-8",
    b"FOO": b"base",
}
_VALUES: Final = (
    *("1", '""', '"a b"', "$'x\\ny'", "'it'\\''s'", '"$HOME"', "$'\\xff\\x01'", "'*'", '"~"'),
    *("'\\'", "é", "'`'", "'$(x)'", "'#c'", '"a;b&c|d"', "'!'", "$'tab\\there'", "'-n'"),
    *("$'end\\n'", "'declare -- a=\"1\"'", "$'\\n}\\n'", "'\"'", "$'a\\\\'"),
)
_NAMES: Final = ("a", "b", "c", "FOO", "v_1", "PATH2", "list", "declare_", "x")
_FUNCTIONS: Final = (
    "f",
    "g",
    "h-1",
    "my.fn",
    "ll",
    "echo",
    "cd",
    "trap",
    "declare",
    "printf",
    "set",
    "alias",
    "unset",
    "shopt",
)
_SHOPTS: Final = (
    *("nullglob", "extglob", "dotglob", "globstar", "nocasematch", "nocaseglob", "lastpipe"),
    *("expand_aliases", "sourcepath", "cdspell", "xpg_echo", "localvar_inherit", "execfail"),
    *("inherit_errexit", "extquote", "compat44"),
)
_SET: Final = (
    *("pipefail", "noclobber", "nounset", "allexport", "physical", "braceexpand", "posix"),
    *("ignoreeof", "emacs", "history", "keyword", "noglob", "hashall", "errtrace", "functrace"),
)
_SIGNALS: Final = ("INT", "TERM", "USR1", "HUP", "QUIT", "WINCH", "ERR", "RETURN", "DEBUG", "CHLD")

Make = Callable[[random.Random], str]


def _value(r: random.Random) -> str:
    return r.choice(_VALUES)


def _name(r: random.Random) -> str:
    return r.choice(_NAMES)


def _function(r: random.Random) -> str:
    return r.choice(_FUNCTIONS)


_MAKE: Final[tuple[Make, ...]] = (
    lambda r: f"{_name(r)}={_value(r)}",
    lambda r: f"export {_name(r)}={_value(r)}",
    lambda r: f"builtin declare -i {_name(r)}",
    lambda r: f"typeset -a {_name(r)}=({_value(r)} {_value(r)})",
    lambda r: f"unset a; typeset -A a=([{_value(r)}]={_value(r)} [k]={_value(r)})",
    lambda r: f"unset {_name(r)}",
    lambda r: f"unset -v {_name(r)}; builtin declare -x {_name(r)}",
    lambda r: f"builtin declare +x {_name(r)}",
    lambda r: f"builtin declare -{r.choice('luc')} {_name(r)}",
    lambda r: f"{_name(r)}+={_value(r)}",
    lambda r: f"unset b; b[{r.randrange(5)}]={_value(r)}",
    lambda r: f"unset c; builtin declare -n c=target{r.randrange(3)}",
    lambda _: "unset -n c",
    lambda r: f"readonly ro_{r.randrange(2)}={_value(r)} 2>/dev/null",
    lambda r: f"function {_function(r)} {{ local q={_value(r)}; :; return {r.randrange(3)}; }}",
    lambda r: f"function {_function(r)} {{ cat <<E\nhere $1\n  E\nE\n}}",
    lambda r: f"unset -f {_function(r)}",
    lambda r: f"{_function(r)} arg >/dev/null 2>&1",
    lambda r: f"export -f {_function(r)} 2>/dev/null",
    lambda r: f"builtin declare -ft {_function(r)} 2>/dev/null",
    lambda r: f"alias {r.choice(('ll', 'la', 'x.y', 'gs', 'if', 'builtin', '-x'))}={_value(r)}",
    lambda _: "unalias ll 2>/dev/null",
    lambda _: "\\unalias -a",
    lambda r: f"shopt -{r.choice('su')} {r.choice(_SHOPTS)}",
    lambda r: f"\\builtin set {r.choice('-+')}o {r.choice(_SET)}",
    lambda r: f"umask {r.choice(('022', '077', '0', '027', '777'))}",
    lambda r: f"builtin cd {r.choice(('d1', '..', '-', '/tmp', '~', 'nope'))} >/dev/null 2>&1",
    lambda _: 'builtin cd "o\'dd dir" 2>/dev/null',
    lambda r: f"pushd {r.choice(('d1', '/', '/tmp', 'd2', '+1'))} >/dev/null 2>&1",
    lambda _: "popd >/dev/null 2>&1",
    lambda r: f"builtin set -- {_value(r)} {_value(r)}",
    lambda _: "builtin set --",
    lambda _: "shift 2>/dev/null",
    lambda r: f"builtin trap ':' {r.choice(_SIGNALS)}",
    lambda r: f"builtin trap '' {r.choice(_SIGNALS)}",
    lambda r: f'builtin trap "it\'s; :" {r.choice(_SIGNALS)}',
    lambda r: f"builtin trap - {r.choice(_SIGNALS)}",
    lambda r: f"(exit {r.randrange(256)})",
    lambda _: "false",
    lambda _: "true",
    lambda _: "ls / >/dev/null",
    lambda _: "grep nothing /dev/null",
    lambda _: '[[ "xb" =~ (.)(b) ]]',
    lambda r: f"IFS={_value(r)}",
    lambda _: "unset IFS",
    lambda r: f"OPTIND={r.randrange(1, 4)}",
    lambda _: "getopts ab o -a -b",
    lambda r: f"read -r x <<< {_value(r)}",
    lambda r: f"mapfile -t list <<< {_value(r)}",
    lambda r: f"for {_name(r)} in 1 2; do :; done",
    lambda r: f"{_name(r)}={_value(r)} true",
    lambda r: f"PATH=/usr/bin:/bin:/x{r.randrange(3)}",
    lambda _: "unset PATH; PATH=/usr/bin:/bin",
    lambda r: f"LC_ALL={r.choice(('C', 'C.UTF-8', 'POSIX'))}",
    lambda _: "unset LC_ALL",
    lambda _: "BASH_COMPAT=4.4",
    lambda _: "unset OLDPWD HOSTNAME",
)


def sequence(seed: int) -> list[bytes]:
    r = random.Random(seed)
    return [r.choice(_MAKE)(r).encode() for _ in range(r.randrange(1, 10))]


# Probe script: writes the complete state of a shell to five files.
_PROBE: Final = """\
( _nacre_status=$?; {{ \\builtin trap -p; }} >|'{0}.t'; \\builtin trap - DEBUG ERR RETURN
{{ \\builtin printf '%s\\n' "$_nacre_status"; \\builtin declare -p; }} >|'{0}.v'
{{ \\builtin declare -f; \\builtin declare -Fx
\\builtin declare -Fr; \\builtin declare -Ft; }} >|'{0}.f'
\\builtin alias -p >|'{0}.a'
{{ \\builtin printf '%s\\n' "$SHELLOPTS" "$BASHOPTS" "${{POSIXLY_CORRECT-no}}"; \\builtin umask
\\builtin printf '%q\\n' "$PWD" "${{OLDPWD-no}}" "${{DIRSTACK[@]}}" -- "$@"; }} >|'{0}.o'
) {{BASH_XTRACEFD}}>/dev/null 2>/dev/null"""


def _read(path: Path) -> bytes:
    """Read a file, even if the umask at its creation denied read access."""
    path.chmod(0o600)
    return path.read_bytes()


def _parse_probe(path: Path) -> dict[str, Any]:
    said = {kind: _read(Path(f"{path}.{kind}")) for kind in "tvfao"}
    status, _, variables = said["v"].partition(b"\n")
    traps = {name: words for words, name in states.TRAP.findall(said["t"]) if name != b"EXIT"}
    return {
        "status": int(status),
        "variables": states.parse_declarations(variables),
        "traps": traps,
        "functions": said["f"],
        "aliases": said["a"],
        # bash lists `compat44` only after the next `shopt`
        "options, directories, arguments": said["o"].replace(b"compat44:", b""),
    }


class Sessions:
    """Persistent sessions of one engine, each with a key, without a contract."""

    def __init__(self, cwd: Path, *, warms: bool = False) -> None:
        self.engine = Engine(keep_loop=True, prewarm=warms)
        self._cwd = os.fsencode(cwd)

    def run(
        self,
        script: bytes,
        key: str = "one",
        *,
        cwd: Path | None = None,
        extra: dict[bytes, bytes] | None = None,
    ) -> Outcome:
        command = Command(
            original=script,
            script=script,
            cwd=self._cwd if cwd is None else os.fsencode(cwd),
            cwd_given=cwd is not None,
            env=ENV,
            call_env=extra or {},
        )
        session = Session(workspace_key="here", key=key, cwd_when_decided=self._cwd)
        return self.engine.start(Plan(command=command, session=session)).wait()

    def close(self) -> None:
        self.engine.close()


def _ask_resident(commands: list[bytes], cwd: Path, path: Path) -> bool:
    """Run the commands and the probe in one bash. Return whether the probe wrote all its files."""
    probe = _PROBE.format(path).encode()
    script = b"\n".join((b"shopt -s expand_aliases", *commands, probe, b""))
    subprocess.run(
        ["/bin/bash"],
        input=script,
        cwd=cwd,
        env=ENV,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    return all(Path(f"{path}.{kind}").exists() for kind in "tvfao")


def differences(commands: list[bytes], *, warms: bool = False) -> dict[str, Any] | None:
    """Return what differs between a session and a bash after the same commands. Return None if the
    commands ended the bash."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made, "place")
        for name in ("d1", "d2", "o'dd dir"):
            (place / name).mkdir(parents=True)
        theirs, ours = Path(made, "theirs"), Path(made, "ours")
        if not _ask_resident(commands, place, theirs):
            return None
        sessions = Sessions(place, warms=warms)
        try:
            for command in commands:
                outcome = sessions.run(command, key=os.path.basename(made))
                if not outcome.session_saved:
                    return {"not kept": command}
            sessions.run(_PROBE.format(ours).encode(), key=os.path.basename(made))
        finally:
            sessions.close()
        one, other = _parse_probe(theirs), _parse_probe(ours)
    return {what: (one[what], other[what]) for what in one if one[what] != other[what]}


def main(first: int, last: int) -> int:
    dead = wrong = 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["NACRE_HOME"] = home
        for seed in range(first, last + 1):
            commands = sequence(seed)
            found = differences(commands, warms=seed % 4 == 0)
            if found is None:
                dead += 1
            elif found:
                wrong += 1
                print(f"{seed}: {commands}\n  {found}", flush=True)
    print(f"{last - first + 1} sequences, {dead} ended the shell that stays, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
