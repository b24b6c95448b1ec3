"""State of a session's shell: parsed from a file (the draft), and restored in the next shell.

The script `save.bash` writes the draft, a file with the shell's state, when a session's shell ends.
`save.bash` saves the shell's variables, functions and aliases as the output of the bash commands
`declare -p`, `declare -f` and `alias -p`. The saved variables are parsed one by one, because bash's
own variables and variables that were set for one call only are not part of the state. The restore
script unsets the variables of the new shell's environment before it sets the saved variables,
because the `declare` commands that bash prints can add attributes to a variable, but never remove
them.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from nacre.shell_state.bash_code import OWN_NAMES, quote

# Variables that are never saved: bash itself sets them, or they are meaningful only while their
# shell runs.
_OWN: Final = frozenset(
    b"_ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND "
    b"BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_SOURCE BASH_SUBSHELL "
    b"BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS COPROC COPROC_PID DIRSTACK "
    b"EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS POSIXLY_CORRECT "
    b"PPID PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID".split()
)
# `shopt` options that are on in every new shell of nacre, in bash 5.2.
SHOPT: Final = tuple(
    b"checkwinsize cmdhist complete_fullquote expand_aliases extquote force_fignore "
    b"globasciiranges globskipdots hostcomplete interactive_comments patsub_replacement progcomp "
    b"promptvars sourcepath".split()
)
# Variables that bash sets in every new shell; the restore script unsets them before it sets the
# saved variables, because a command of the session may have unset them.
_SET_BY_BASH: Final = b"HOSTNAME HOSTTYPE IFS MACHTYPE OLDPWD OPTERR OSTYPE PATH PS4 TERM".split()
# letters of `declare` attributes that transform an assigned value, such as `u`
_CHANGES: Final = frozenset(b"iluc")
_COMPAT: Final = b"BASH_COMPAT"  # bash variable that is also a shell option

# first line that `declare -p` prints inside a function that has called `local -`
_LOCAL_OPTIONS: Final = b"local -\n"
_VARIABLE: Final = re.compile(
    rb"""declare\ -(\S+)\ ([A-Za-z_][A-Za-z0-9_]*)
    (?:=( "[^"\\]*+(?:\\.[^"\\]*+)*+" | \$'[^'\\]*+(?:\\.[^'\\]*+)*+'
        | \( (?: [^"'()\\$]++ | "[^"\\]*+(?:\\.[^"\\]*+)*+"
                | \$'[^'\\]*+(?:\\.[^'\\]*+)*+' )*+ \) ) )?\n""",
    re.VERBOSE | re.DOTALL,
)
TRAP: Final = re.compile(rb"trap -- ((?:'[^']*'|\\')+) (\S+)\n")

# `set -o` options that are on in every new shell.
SET: Final = frozenset((b"braceexpand", b"hashall", b"interactive-comments"))
# Shell options that cannot or must not be restored in the next shell. The option `noexec` must not
# be restored, because the shell would never run a command again; `monitor` must not be restored,
# because it turns on job control.
_NO_SET: Final = frozenset((b"monitor", b"noexec", b"onecmd", b"privileged", b"restricted"))
_NO_SHOPT: Final = frozenset((b"expand_aliases", b"login_shell", b"restricted_shell"))
_UNSEEN: Final = (b"INT", b"QUIT")
_IGNORED: Final = b"''"
_SIG: Final = re.compile(rb"\ASIG")
# Traps that would fire while the shell is still restoring its state.
_LATE: Final = (b"ERR", b"RETURN", b"DEBUG")


class ShellState(Struct, frozen=True, kw_only=True):
    """Everything that one shell of a session passes on to the next shell."""

    status: int = 0
    functions: bytes  # definitions and attributes of functions, as bash prints them
    names: tuple[bytes, ...]  # names of the shell's functions
    variables: dict[bytes, bytes]  # variable name → its declaration, as in `declare -x NAME=...`
    aliases: bytes
    set: tuple[bytes, ...]
    shopt: tuple[bytes, ...]
    posix: bytes | None  # value of POSIXLY_CORRECT; None: the shell was not in POSIX mode
    umask: bytes
    directory: bytes
    stack: tuple[bytes, ...]
    arguments: tuple[bytes, ...]
    traps: dict[bytes, bytes]  # signal name → quoted command of its trap
    # whether no command has run in the session yet, so that bash's own variables still have their
    # initial values
    begins: bool = False


EMPTY: Final = ShellState(
    functions=b"",
    names=(),
    variables={},
    aliases=b"",
    set=tuple(sorted(SET)),
    shopt=SHOPT,
    posix=None,
    umask=b"",
    directory=b"",
    stack=(),
    arguments=(),
    traps={},
)


_FUNCTION: Final = re.compile(rb"BASH_FUNC_(.+)%%")
# first line of a function as `declare -f` prints it
_HEADER: Final = re.compile(rb"^(?:function )?(\S+) \(\) *\n", re.MULTILINE)


def parse_sections(draft: bytes, mark: bytes) -> dict[bytes, tuple[bytes, bytes]] | None:
    """Split a draft (the text of a saved shell state) into its sections: a map from section name to
    the words after the name and the section's text; return None if the draft is incomplete."""
    if not draft.endswith(b"#%b end\n" % mark):
        return None
    begin = b"#%b " % mark
    if not draft.startswith(begin):
        return None
    found = {}
    for section in draft[len(begin) :].split(b"\n" + begin):
        head, _, text = section.partition(b"\n")
        name, _, words = head.partition(b" ")
        found[name] = (words, text)
    return found


def parse_draft(
    draft: bytes,
    traps: bytes | None,
    mark: bytes,
    *,
    before: ShellState | None,
    given: Mapping[bytes, bytes],
    spared: Iterable[bytes] = (),
    ignored: Iterable[str] = (),
) -> ShellState | None:
    """Return the shell state from the text `draft`, which was written when a session's shell ended;
    return None if the text is incomplete or invalid.

    `traps` is the text in which the shell printed its traps on INT and QUIT, or None. `before` is
    the shell's state before the command; if `before` is None, the environment `given` is used in
    its place. `spared` are variables that were set for one tool call only; the returned state has
    the values that these variables had before the call. `ignored` are signals that the shell
    inherited as ignored; bash prints each of them as a trap with an empty command, although no
    script set a trap.
    """
    found = parse_sections(draft, mark)
    if found is None:
        return None
    try:
        variables = parse_declarations(found[b"variables"][1] + b"\n")
        old = {*spared, *found[b"old"][0].split()}
        for name in old:
            variables.pop(name, None)
        earlier = before.variables if before is not None else export_declarations(given)
        variables.update((name, earlier[name]) for name in old if name in earlier)
        status, *unbegun = found[b"status"][0].split()
        if unbegun and before is not None:
            return msgspec.structs.replace(before, status=int(status))
        options = found[b"options"][1].split(b"\n")
        inside, arguments = found[b"arguments"]
        return ShellState(
            status=int(status),
            functions=build_functions(
                *(
                    _split_lines(found[each][1])
                    for each in (b"functions", b"declare", b"attributes")
                )
            ),
            names=tuple(found[b"names"][1].split(b"\n")) if found[b"names"][1] else (),
            variables=variables,
            aliases=_split_lines(found[b"aliases"][1]),
            set=tuple(options[0].split(b":")) if options[0] else (),
            shopt=tuple(options[1].split(b":")) if options[1] else (),
            posix=options[2] if b"posix" in options[0].split(b":") else None,
            umask=found[b"umask"][1],
            directory=found[b"directory"][1],
            stack=tuple(each for each in found[b"stack"][1].split(b"\0") if each),
            arguments=(before.arguments if before else ())
            if inside
            else _parse_arguments(arguments),
            traps=_parse_traps(_split_lines(found[b"traps"][1]), traps, before, ignored),
        )
    except (KeyError, ValueError, IndexError):
        return None


def build_functions(bodies: bytes, declare: bytes, attributes: bytes) -> bytes:
    """Return a bash script that defines functions and sets their attributes.

    `declare` is the definition of a function that is named `declare`, if there is one. The returned
    script defines a function named `declare` last, because the script's own `declare` commands,
    which set the attributes of the other functions, would call that function.
    """
    said = [(line, line.endswith(b" declare")) for line in attributes.splitlines()]
    others = b"".join(line + b"\n" for line, its in said if not its)
    return bodies + others + declare + b"".join(b"builtin %b\n" % line for line, its in said if its)


def _split_lines(text: bytes) -> bytes:
    return text + b"\n" if text else b""


def _parse_arguments(text: bytes) -> tuple[bytes, ...]:
    count, *words = text.split(b"\0")
    return tuple(words[: int(count)])


def _parse_traps(
    text: bytes, more: bytes | None, before: ShellState | None, ignored: Iterable[str]
) -> dict[bytes, bytes]:
    found = _parse_trap_names(text)
    found.pop(b"EXIT", None)  # the EXIT trap was set by nacre
    mine = {} if before is None else before.traps
    known = mine if more is None else _parse_trap_names(more)
    for name in _UNSEEN:
        # The process that saves a shell's state may ignore INT and QUIT although the shell itself
        # does not ignore these signals.
        if found.get(name) == _IGNORED:
            found[name] = known.get(name, _IGNORED)
    for each in ignored:
        name = _SIG.sub(b"", each.encode())
        if found.get(name) == _IGNORED and name not in mine:
            del found[name]
    return found


def _parse_trap_names(text: bytes) -> dict[bytes, bytes]:
    """Return a map from signal name to trap command. The prefix SIG is removed from the signal
    names, because bash prints `INT` in POSIX mode, but `SIGINT` in its default mode."""
    return {_SIG.sub(b"", name): words for words, name in TRAP.findall(text)}


def parse_declarations(text: bytes) -> dict[bytes, bytes]:
    """Parse the output of `declare -p` into a map from variable name to declaration. Raises
    ValueError.

    The returned map does not contain the variables of bash itself and of nacre.
    """
    found, at = {}, len(_LOCAL_OPTIONS) if text.startswith(_LOCAL_OPTIONS) else 0
    while entry := _VARIABLE.match(text, at):
        at, name = entry.end(), entry[2]
        if name not in _OWN and not name.startswith(OWN_NAMES):
            found[name] = entry[0]
    if text[at:].strip():
        raise ValueError(f"not what bash prints: {text[at : at + 80]!r}")
    return found


def export_declarations(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return a map from variable name to bash declaration for the variables of an environment."""
    return {
        name: b"declare -x %b=%b\n" % (name, quote(value))
        for name, value in env.items()
        if name not in _OWN
    }


def initial_state(snapshot: ShellState, env: Mapping[bytes, bytes], directory: bytes) -> ShellState:
    """Return the first state of a session, built from a snapshot of the user's shell set-up."""
    # Variables of the command's environment, such as `PAGER=cat`, override those from the user's
    # shell startup files; otherwise a program could start a pager or an editor that prompts.
    variables = {**snapshot.variables, **export_declarations(env)}
    if b"PATH" in snapshot.variables:
        variables[b"PATH"] = snapshot.variables[b"PATH"]
    return msgspec.structs.replace(snapshot, variables=variables, directory=directory, begins=True)


def build_restore_script(state: ShellState, given: Iterable[bytes]) -> bytes:
    """Return a bash script that restores a session's state in a new shell.

    `given` are the names of the variables in the new shell's environment; an exported function `f`
    is the variable `BASH_FUNC_f%%`. Shell options and traps that would affect the restore script
    itself are set later, right before the script of the next command.
    """
    before, after = _build_parts(state, given)
    if not state.functions:
        return before + after
    # The restore script is one line, and each function is defined in an `eval` of its own: bash
    # counts the lines of an `eval` from the line of the `eval`, so messages have the line number
    # within the text of the function. An `eval` of its own also keeps a syntax error in a function
    # from ending the restore script: bash prints some functions in a form that bash cannot parse.
    # Some function bodies can be parsed only with the shell option `extglob`.
    # A function's name and brace are put on one line, as most scripts have them.
    texts = split_functions(state.functions, state.names)
    functions = [text.replace(b" () \n{", b" () {", 1) for text in texts]
    parts = [before, b"builtin shopt -s extglob", *functions, b"builtin shopt -u extglob", after]
    return b"; ".join(b"builtin eval -- %b" % quote_line(each) for each in parts)


def split_functions(functions: bytes, names: Iterable[bytes]) -> list[bytes]:
    """Return the definitions of functions one by one; all definitions as one text if they cannot be
    told apart."""
    known = frozenset(names)
    starts = [each.start() for each in _HEADER.finditer(functions) if each[1] in known]
    if len(starts) != len(known) or not starts or starts[0]:
        return [functions]
    return [functions[start:end] for start, end in pairwise([*starts, len(functions)])]


def quote_line(text: bytes) -> bytes:
    """Return a text as one bash word without newlines."""
    escaped = text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\n", b"\\n")
    return b"$'" + escaped + b"'"


def _build_parts(state: ShellState, given: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Return the parts of the restore script before and after the definitions of functions. The
    restore script defines functions after variables, because a function may be named `declare`.
    Variables are set by a plain `declare`, because `builtin declare` accepts no array values."""
    out = [b"builtin cd -- %b\n" % quote(state.directory)]
    out.append(b"builtin umask %b\n" % state.umask if state.umask else b"")
    out.append(b"builtin dirs -c\n" if state.stack else b"")
    out += [b"builtin pushd -n %b >/dev/null\n" % quote(each) for each in reversed(state.stack)]
    there = {*given} if state.begins else {*given, *_SET_BY_BASH}
    out.append(_unset(b"-f", (found[1] for name in there if (found := _FUNCTION.fullmatch(name)))))
    out.append(_unset(b"-v", sorted(there - _OWN)))
    out += [_declare(entry) for name, entry in state.variables.items() if name != _COMPAT]
    out.append(state.aliases)  # bash does not expand aliases in the restore script
    before, out = b"".join(out), []
    if state.arguments:
        out.append(b"builtin set -- %b\n" % b" ".join(map(quote, state.arguments)))
    out.append(_shopt_lines(state))
    # BASH_COMPAT has no array value, so it can be set by `builtin declare`, which works even if the
    # session has a function named `declare`.
    if _COMPAT in state.variables:
        out.append(b"builtin " + state.variables[_COMPAT])
    early = {name: words for name, words in state.traps.items() if name not in _LATE}
    out += [b"builtin trap -- %b %b\n" % (words, name) for name, words in early.items()]
    # Alias expansion is on unless a command of the session turned it off.
    if b"expand_aliases" not in state.shopt:
        out.append(b"_nacre_bare=1\n")
    late = _first_line_prefix(state)
    if late:
        out.append(b"_nacre_late=%b\n" % quote(late))
    return before, b"".join(out)


def _declare(entry: bytes) -> bytes:
    """Return bash code that assigns a variable's value before it sets attributes that transform
    values.

    A value that a session's shell assigned before it set an attribute such as `-u` (uppercase) may
    have lowercase letters, and must be restored unchanged.
    """
    flags, _, rest = entry[len(b"declare -") :].partition(b" ")
    name, given, _ = rest.partition(b"=")
    if not given or _CHANGES.isdisjoint(flags):
        return entry
    first = bytes(each for each in flags if each not in _CHANGES and each != ord("r"))
    return b"declare -%b %bdeclare -%b %b\n" % (first or b"-", rest, flags, name)


def _unset(kind: bytes, names: Iterable[bytes]) -> bytes:
    words = b" ".join(map(quote, names))
    return b"builtin unset %b %b\n" % (kind, words) if words else b""


def _shopt_lines(state: ShellState) -> bytes:
    wanted, there = frozenset(state.shopt) - _NO_SHOPT, frozenset(SHOPT) - _NO_SHOPT
    on, off = wanted - there, there - wanted
    said = b"builtin shopt -s %b\n" % b" ".join(sorted(on)) if on else b""
    return said + (b"builtin shopt -u %b\n" % b" ".join(sorted(off)) if off else b"")


def _first_line_prefix(state: ShellState) -> bytes:
    """Return bash code to insert before a script's first line, on the same line, so that line
    numbers stay the same.

    If bash cannot parse a script's first line, bash does not run the code that nacre inserted
    before the line either. The code that nacre inserts before a script unsets `_nacre_late` first,
    so that the process that saves the shell's state can tell whether bash ran the inserted code.
    """
    wanted = frozenset(state.set) - _NO_SET - {b"posix"}
    words = [b"-o " + each for each in sorted(wanted - SET)]
    words += [b"+o " + each for each in sorted(SET - wanted)]
    said = [
        b"\\builtin trap -- %b %b" % (state.traps[each], each)
        for each in _LATE[:2]
        if each in state.traps
    ]
    if state.posix is not None:
        said.append(b"\\builtin set -o posix; POSIXLY_CORRECT=%b" % quote(state.posix))
    if words:
        said.append(b"\\builtin set %b" % b" ".join(words))
    if b"DEBUG" in state.traps:
        said.append(b"{ \\builtin trap -- %b DEBUG; } 2>/dev/null" % state.traps[b"DEBUG"])
    if not said:
        return b""
    return b"".join(b"%b; " % each for each in (b"\\builtin unset -v _nacre_late", *said))
