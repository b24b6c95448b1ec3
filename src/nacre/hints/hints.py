"""Hints: short advice about an ended run, which is added to the reply to the model.

Each hint is one function, which checks how a run ended and what the end of its output says. A hint
about programs, ports, disks or locks is given only if the output and the state of the machine
agree, because words in an output alone prove nothing. A hint never changes the reported outcome of
a run. A hint function returns None if its hint does not apply, or if nacre cannot find out whether
the hint applies.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nacre.bash.analyze import analyze
from nacre.bash.commands import ParsedCommand, known_prefix
from nacre.bash.paths import resolve_path
from nacre.bash.read_prompts import find_first_prompt
from nacre.hints.questions import ends_in_question
from nacre.hints.run_facts import Hint, RunFacts
from nacre.hints.withheld_secrets import withheld_secret
from nacre.model.outcome import Exited
from nacre.model.plan import BASH
from nacre.procfs import ports, processes
from nacre.text.clean import as_displayed, decode, human_size

# Minimum similarity, from 0 to 1, between a mistyped name and a suggested name.
_ALIKE: Final = 0.75


def find_hints(facts: RunFacts) -> tuple[str, ...]:
    """Return the texts of all hints that apply to one run."""
    candidates = _WHEN_FAILED if facts.failed else _ALWAYS
    return tuple(match for hint in candidates if (match := _try_hint(hint, facts)) is not None)


def _try_hint(hint: Hint, facts: RunFacts) -> str | None:
    """Return the text of one hint; return None if the hint function fails, because unusual output
    must not make the whole reply fail."""
    try:
        return hint(facts)
    except (OSError, ValueError):
        # A hint function fails if there is no /proc or no free descriptor, or if a path contains a
        # NUL byte.
        return None


# Hints about programs that bash could not run.

_BASH: Final = r"(?:" + re.escape(BASH.decode()) + r"|environment): (?:line \d+: )?"
_MISSING: Final = re.compile(
    _BASH + r"(?:exec: )?"
    r"(?P<what>[^:]+): (?P<why>command not found|not found|No such file or directory"
    r"|cannot execute: required file not found)"
)
_FORBIDDEN: Final = re.compile(
    _BASH + r"(?:exec: )?"
    r"(?P<what>[^:]+): (?P<why>Permission denied|Is a directory|cannot execute.*)"
)


def missing_program(facts: RunFacts) -> str | None:
    if facts.ending != Exited(127):
        return None
    what = _last_match(_MISSING, facts)
    if what is None:
        return None
    if "/" in what:
        return None if _moves(facts) else _missing_file(what, facts)
    if _defines_alias(facts.script, os.fsencode(what)):
        return f"bash expands the alias {what} only in later calls of a session; use a function"
    local = [
        f"./{place}{what}"
        for place in ("", "bin/", "node_modules/.bin/", ".venv/bin/", "scripts/")
        if not _moves(facts) and _is_program(resolve_path(facts.cwd, os.fsencode(place + what)))
    ]
    if local:
        return f"{what} is not in PATH; there is {local[0]}"
    programs = _programs(facts)
    if what in programs:
        return f"{what} is not in the directories of the command's PATH; check PATH"
    near = _similar_names(what, programs)
    return f"there is no command {what}; near it: {', '.join(near)}" if near else None


def _defines_alias(script: bytes, name: bytes) -> bool:
    return any(
        each.name == b"alias" and (word.text or b"").startswith(name + b"=")
        for each in analyze(script).commands
        for word in each.arguments
    )


def _moves(facts: RunFacts) -> bool:
    """Return whether the script may change its directory, which makes relative paths ambiguous."""
    return re.search(rb"\b(?:cd|pushd|popd|chdir)\b", facts.script) is not None


def _is_program(path: bytes) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _missing_file(what: str, facts: RunFacts) -> str | None:
    path = resolve_path(facts.cwd, os.fsencode(what))
    if os.path.lexists(path):
        return f"{what} is there, but not what its first line says that it is run by"
    place, name = os.path.split(path)
    try:
        near = _similar_names(decode(name), [decode(each) for each in os.listdir(place)])
    except OSError:
        return f"the directory of {what} does not exist"
    return f"there is no {what}; near it: {', '.join(near)}" if near else None


def forbidden_program(facts: RunFacts) -> str | None:
    if facts.ending != Exited(126):
        return None
    what = _last_match(_FORBIDDEN, facts)
    if what is None or ("/" in what and _moves(facts)):
        return None
    path = resolve_path(facts.cwd, os.fsencode(what))
    if os.path.isdir(path):
        return f"{what} is a directory"
    if os.path.isfile(path) and not os.access(path, os.X_OK):
        return f"{what} is not executable: chmod +x it, or name the program that runs it"
    return None


def _similar_names(name: str, names: list[str]) -> list[str]:
    """Return up to three of `names` that are similar to `name`. In the returned list, names with
    the letters of `name` in another order come first, because swapped letters are a typical typing
    error."""
    from difflib import get_close_matches

    swapped = [each for each in names if each != name and sorted(each) == sorted(name)]
    return list(dict.fromkeys([*swapped, *get_close_matches(name, names, 3, _ALIKE)]))[:3]


def _programs(facts: RunFacts) -> list[str]:
    found: dict[str, None] = {}
    for place in facts.path.split(b":"):
        try:
            names = os.listdir(resolve_path(facts.cwd, place or b"."))
            found |= dict.fromkeys(decode(name) for name in names)
        except OSError:
            continue
    return list(found)


# Hints about ports, disks, memory and locks.

_IN_USE: Final = re.compile(
    r"(?i)EADDRINUSE|address (?:is )?already in use|port \d+ is (?:already )?(?:in use|taken|used)"
    r"|only one usage of each socket address"
)
_NUMBER: Final = re.compile(r"(?<![\w.])\d{2,5}(?![\w.])")


def port_in_use(facts: RunFacts) -> str | None:
    lines = facts.lines
    at = [number for number, line in enumerate(lines) if _IN_USE.search(line)]
    if not at:
        return None
    near = "\n".join(lines[max(0, at[-1] - 2) : at[-1] + 6])
    used_ports = set(ports.listening_sockets().values())
    # The hint `port_in_use` searches for numbers that are ports in use: first in the lines around
    # the error message, then in the script. The hint `port_in_use` names a port only if the
    # searched text contains exactly one port in use.
    for match in (near.replace(":", " "), decode(facts.script).replace(":", " ")):
        named = {port for each in _NUMBER.findall(match) if (port := int(each)) in used_ports}
        if len(named) == 1:
            (port,) = named
            return f"port {port} is held by {_holder(port, facts.find_run)}"
    return None


def awaited_port(port: int, run: str, find_run: Callable[[int], str | None]) -> str | None:
    """Return a hint if a call has waited in vain for a port of `run` that another run or program
    holds."""
    try:
        if port not in ports.listening_sockets().values():
            return None
        if any(find_run(pid) == run for pid in ports.find_listeners(port)):
            return None  # the run has the port, and waits for another condition
        return f"port {port} is held by {_holder(port, find_run)}"
    except OSError:
        return None


def _holder(port: int, find_run: Callable[[int], str | None]) -> str:
    listens = ports.find_listeners(port)[:3]
    if not listens:
        return "a process of another user"
    named = [f"{pid} ({_short(processes.command_line(pid))})" for pid in listens]
    run = next((run for pid in listens if (run := find_run(pid)) is not None), None)
    of_run = "" if run is None else f" of run {run}; job signal {run} ends it"
    return f"process {', '.join(named)}{of_run}"


_FULL: Final = re.compile(r"(?i)no space left on device|ENOSPC|disk quota exceeded|EDQUOT")
_PATHS: Final = re.compile(r"/[\w./@+-]+")
_NEARLY: Final = 64 * 1024  # a disk with fewer free bytes than this counts as full


def disk_full(facts: RunFacts) -> str | None:
    match = [line for line in facts.lines if _FULL.search(line)]
    if not match:
        return None
    written = [os.fsencode(path) for path in _PATHS.findall(" ".join(match))]
    for place in (*written, facts.cwd, b"/tmp", os.path.expanduser(b"~")):
        found = _existing(place)
        try:
            status = os.statvfs(found)
        except OSError:
            continue
        free = status.f_bavail * status.f_frsize
        if status.f_blocks and free < _NEARLY:
            return f"the disk of {decode(found)} is full: {human_size(free)} left (df -h shows all)"
        if status.f_files and not status.f_favail:
            return f"the disk of {decode(found)} has no room for another file (df -i shows all)"
    return None


def _existing(path: bytes) -> bytes:
    """Return the path if it exists, or else its nearest parent directory that exists."""
    while path not in (b"/", b"") and not os.path.exists(path):
        path = os.path.dirname(path)
    return path or b"/"


def out_of_memory(facts: RunFacts) -> str | None:
    if not facts.out_of_memory:
        return None
    return "the kernel has killed it to have memory back; it needs less, or the machine more"


_LOCKED: Final = re.compile(r"(?i)unable to create '(?P<path>[^']+\.lock)'.*file exists")


def git_lock(facts: RunFacts) -> str | None:
    found = [match for line in facts.lines if (match := _LOCKED.search(line))]
    if not found:
        return None
    path = resolve_path(facts.cwd, os.fsencode(found[-1]["path"]))
    try:
        age = time.time() - os.lstat(path).st_mtime
    except OSError:
        return f"{decode(path)} is gone by now; try again"
    gits = [pid for pid in processes.list_pids() if _is_git(pid)]
    if gits:
        other = f"process {gits[0]} ({_short(processes.command_line(gits[0]))})"
        return f"{other} runs, and may hold it; it is {_age(age)} old"
    return f"no git runs; {decode(path)} is {_age(age)} old: remove it, and try again"


def _is_git(pid: int) -> bool:
    """Return whether the process with this pid is a git command. The hint about git's lock file
    does not check whether a git process works in the locked repository, because a repository can
    have more directories than nacre could inspect."""
    name = processes.command_line(pid).split(" ")[0]
    return os.path.basename(name) == "git" or os.path.basename(name).startswith("git-")


def _age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} seconds"


# Hints about commands that probably did not do what the model intended.


def may_have_asked(facts: RunFacts) -> str | None:
    if facts.open_stdin or not isinstance(facts.ending, Exited):
        return None
    if b"read" in facts.script and (prompt := find_first_prompt(facts.script)):
        return (
            f"the command asked {decode(prompt).strip()!r}, but stdin is empty; with "
            "interactive: true, job write can answer"
        )
    if _HEREDOC.search(facts.script):
        return None  # the here-document may be the stdin of the program that asked
    last = as_displayed(facts.lines[-1]).strip()[-500:] if facts.lines else ""
    if not facts.failed:
        asks = ends_in_question(facts.output, unterminated=facts.unterminated)
        return _ASKED if asks else None
    asks = last == "#?" or (facts.unterminated and _QUESTION.search(last) is not None)
    if not asks and not _NO_INPUT.fullmatch(last):
        return None
    return _ASKED


_HEREDOC: Final = re.compile(rb"<<[-<]?\s{0,9}[\"'\\$]?[A-Za-z_$]")
_ASKED: Final = (
    "the command may have asked for input, but stdin is empty; with interactive: true, job write "
    "can answer"
)


# End of a line in which a program asks for input, such as `Continue? [y/N] ` or `Password:`. The
# prompt of `select` is `#? `, and bash ends its line when stdin is empty.
_QUESTION: Final = re.compile(r"[?:>)\]#$]$")
# Messages that programs in common languages print when stdin has no input.
_NO_INPUT: Final = re.compile(
    r"EOFError: EOF when reading a line|EOFError|.*\bEOF\b.*(?:stdin|input|line)|"
    r".+not a (?:tty|terminal).*|.*no input.*",
    re.IGNORECASE,
)


# Interpreters that answer line by line only with -i if stdin is not a terminal, and options with
# which they still read a script from stdin.
_INTERPRETER: Final = re.compile(rb"(?:.*/)?(?:python(?:3(?:\.\d+)?)?|node)")
_NO_SCRIPT: Final = frozenset((b"-", b"-q", b"-u", b"-B", b"-E", b"-s", b"-S", b"-I"))


def reads_script(script: bytes) -> str | None:
    """Return a hint if a command that waits for input reads a script until the end of file."""
    if b"|" in script or b"<" in script:
        return None  # the stdin of the interpreter may be another one
    for each in analyze(script).commands:
        options = {word.text for word in each.arguments}
        if each.name is not None and _INTERPRETER.fullmatch(each.name) and options <= _NO_SCRIPT:
            name = decode(each.name)
            return f"{name} reads a script until end of file; {name} -i answers each line"
    return None


_LASTS: Final = {
    b"cd": "the directory does not last: each call is a new shell; give cwd or a session",
    b"export": "variables do not last: each call is a new shell; give env or a session",
    b"source": "what was sourced does not last: each call is a new shell; use it in the same call, "
    "or give a session",
}
_SAME: Final = {b"pushd": b"cd", b"popd": b"cd", b".": b"source", b"chdir": b"cd"}


def does_not_last(facts: RunFacts) -> str | None:
    """Return a hint if the last command of the script, such as `cd`, only changes the state of a
    shell that has now ended."""
    if facts.has_session:
        return None
    script = facts.script.rstrip(b" \t\n;")
    last = max(analyze(facts.script).commands, key=lambda each: each.end, default=None)
    if last is None or last.end < len(script) or not _is_plain(last):
        return None
    name = last.name or b""
    if name == b"export" and not any(b"=" in known_prefix(word) for word in last.arguments):
        return None  # `export NAME` without `=` assigns nothing
    return _LASTS.get(_SAME.get(name, name))


def _is_plain(command: ParsedCommand) -> bool:
    """Return whether the script's own shell runs the command: not in a pipe, substitution, function
    or wrapper, and not in the background."""
    inside = command.substitution or command.function or command.via or command.background
    return not (inside or command.fed or command.feeds)


_UNCLOSED: Final = re.compile(
    _BASH + r"warning: here-document at line (?P<line>\d+) delimited by end-of-file "
    r"\(wanted `(?P<end>.*)'\)"
)


def open_heredoc(facts: RunFacts) -> str | None:
    if b"<<" not in facts.script:
        return None
    for line in facts.lines:
        match = _UNCLOSED.fullmatch(line)
        if match and match["end"].encode() in facts.script:
            return (
                f"the here-document of line {match['line']} was never closed: {match['end']} must "
                "stand alone in a line, with nothing before or behind it"
            )
    return None


def _last_match(pattern: re.Pattern[str], facts: RunFacts) -> str | None:
    found = [match for line in facts.lines[-20:] if (match := pattern.fullmatch(line))]
    return found[-1]["what"] if found else None


def _short(command: str) -> str:
    return command if len(command) <= 60 else f"{command[:59]}…"


# Hints about literal values of `env`, and editors that git cannot open.


def literal_environment(facts: RunFacts) -> str | None:
    if not facts.literal_env:
        return None
    return (
        f"env is literal: {facts.literal_env[0]} is not expanded; give the whole value, or set the "
        "variable in the command"
    )


_EDITOR_FAILED: Final = re.compile(r"There was a problem with the editor|problem with the editor")


def prepared_message(facts: RunFacts) -> str | None:
    """Return a hint if git wanted to open an editor for a message that git has prepared."""
    if not any(_EDITOR_FAILED.search(line) for line in facts.lines):
        return None
    words = {word.text for each in _git_commands(facts) for word in each.arguments[:4]}
    if words.isdisjoint(_USE_PREPARED):
        return None
    git = _git_directory(_directory_of_git(facts))
    if git is None:
        return None
    if os.path.isdir(git + b"/rebase-merge") or os.path.isdir(git + b"/rebase-apply"):
        return "a rebase is in progress: GIT_EDITOR=true git rebase --continue keeps the message"
    for name, what in ((b"MERGE_HEAD", "merge"), (b"CHERRY_PICK_HEAD", "cherry-pick")):
        if os.path.exists(git + b"/" + name):
            return f"a {what} is in progress: git commit --no-edit takes the prepared message"
    return None


# Subcommands of git that may open an editor with a message that git has prepared.
_USE_PREPARED: Final = frozenset(
    (b"commit", b"rebase", b"merge", b"cherry-pick", b"revert", b"pull", b"am")
)


def _git_commands(facts: RunFacts) -> list[ParsedCommand]:
    found = analyze(facts.script, cwd=facts.cwd).commands
    return [each for each in found if each.name == b"git"]


def _directory_of_git(facts: RunFacts) -> bytes:
    """Return the directory of the script's last git command, also for `git -C DIRECTORY`."""
    commands = _git_commands(facts)
    if not commands:
        return facts.cwd
    last = commands[-1]
    cwd = last.cwd or facts.cwd
    words = [word.text for word in last.arguments]
    at = words.index(b"-C") + 1 if b"-C" in words else len(words)
    return resolve_path(cwd, words[at] or b".") if at < len(words) else cwd


def _git_directory(cwd: bytes) -> bytes | None:
    """Return the directory in which git keeps the state of the work tree that contains `cwd`."""
    while True:
        place = cwd.rstrip(b"/") + b"/.git"
        if os.path.isdir(place):
            return place
        with suppress(OSError), open(place, "rb") as file:  # a linked work tree, or a submodule
            name, _, path = file.read(4096).rstrip().partition(b": ")
            return resolve_path(cwd, path) if name == b"gitdir" else None
        if cwd in (b"/", b""):
            return None
        cwd = os.path.dirname(cwd)


_ALWAYS: Final[tuple[Hint, ...]] = (does_not_last, open_heredoc, withheld_secret, may_have_asked)
_WHEN_FAILED: Final[tuple[Hint, ...]] = (
    literal_environment,
    missing_program,
    forbidden_program,
    port_in_use,
    disk_full,
    out_of_memory,
    git_lock,
    withheld_secret,
    prepared_message,
    open_heredoc,
    may_have_asked,
)
