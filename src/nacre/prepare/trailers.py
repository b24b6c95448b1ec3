"""The step `trailers`: a real `git commit` gets a trailer, exactly once.

Two insertions, everything else stays as it is: the trailer behind the word `commit`, and before it
a setting that keeps git from adding what is there already, wherever it stands.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Final

import msgspec
from msgspec import Struct

from nacre.caller import Caller
from nacre.findings import Signed, Unsigned
from nacre.plan import Plan
from nacre.prepare.arguments import flags
from nacre.prepare.git import COMMIT_VALUED, Git, git
from nacre.prepare.notes import noted
from nacre.prepare.reading import reading
from nacre.script.commands import Command, Reading, Word
from nacre.script.paths import at

# With these no commit is made, or one that will be melted into another.
_NO_COMMIT: Final = frozenset(
    {b"--dry-run", b"--fixup", b"--squash", b"--short", b"--porcelain", b"--long", b"--help"}
)
_LONG: Final = _NO_COMMIT | {
    *(
        b"--all",
        b"--amend",
        b"--allow-empty",
        b"--allow-empty-message",
        b"--branch",
        b"--edit",
        b"--gpg-sign",
    ),
    *(
        b"--include",
        b"--interactive",
        b"--no-edit",
        b"--no-gpg-sign",
        b"--no-post-rewrite",
        b"--no-verify",
    ),
    *(
        b"--null",
        b"--only",
        b"--patch",
        b"--quiet",
        b"--reset-author",
        b"--signoff",
        b"--status",
        b"--verbose",
    ),
}
_ASKS_WITHIN: Final = 2.0  # seconds, for a question to git
_FIRST_WITH_TRAILERS: Final = (2, 32)


class Commit(Struct, frozen=True, kw_only=True):
    """A command that makes a commit."""

    command: Command
    git: Git


def commits(reading: Reading) -> Iterator[Commit]:
    """Every commit that a script would make."""
    for command in reading.commands:
        found = git(command)
        if found is None or found.subcommand != b"commit":
            continue
        names = {flag.name for flag in flags(found.arguments, COMMIT_VALUED, _LONG)}
        if not names & (_NO_COMMIT | {b"-h"}):
            yield Commit(command=command, git=found)


def trailers(trailer: str) -> Callable[[Plan, Caller], Plan]:
    key = trailer.partition(":")[0].lower()
    line = trailer.encode()

    def step(plan: Plan, caller: Caller) -> Plan:
        """Add the trailer to each commit, unless the repository does not want it."""
        found = [*commits(reading(plan, caller))]
        if not found:
            return plan
        edits: dict[int, bytes] = {}
        for commit in found:
            why = _why_not(commit, line, plan, caller)
            if why is not None:
                plan = noted(plan, Unsigned(why=why))
                continue
            edits |= _insertions(commit, key.encode(), line)
        if not edits:
            return plan
        command = plan.command
        script = command.script
        for place in sorted(edits, reverse=True):
            script = script[:place] + edits[place] + script[place:]
        plan = msgspec.structs.replace(
            plan, command=msgspec.structs.replace(command, script=script)
        )
        return noted(plan, Signed(trailer=trailer, commits=len(edits) // 2))

    return step


def _insertions(commit: Commit, key: bytes, line: bytes) -> dict[int, bytes]:
    word = commit.command.words[commit.git.place]
    mark = b'"' if commit.command.quotes == b"'" else b"'"
    return {
        word.start: b"-c trailer." + key + b".ifexists=addIfDifferent ",
        word.end: b" --trailer " + mark + line + mark,
    }


def _why_not(commit: Commit, line: bytes, plan: Plan, caller: Caller) -> str | None:
    command = commit.command
    if not command.exact or command.words[commit.git.place].glob:
        return "the commit stands in a text that cannot be changed in place"
    if any(word.text is not None and line in word.text for word in _trailers(commit)):
        return "the command gives the trailer itself"
    env = dict(os.environb if caller.env is None else caller.env) | plan.command.extra
    program = shutil.which("git", path=os.fsdecode(env.get(b"PATH", b"")) or None)
    if program is None:
        return "there is no git here"
    version = _version(program, os.stat(program).st_mtime)
    if version is not None and version < _FIRST_WITH_TRAILERS:
        return f"git {version[0]}.{version[1]} cannot add trailers; 2.32 can"
    directory = _directory(commit)
    if directory is not None and _declines(program, directory, env):
        return "the repository says nacre.coauthor = false"
    return None


def _trailers(commit: Commit) -> Iterator[Word]:
    arguments = commit.git.arguments
    for word, following in zip_longest(arguments, arguments[1:]):
        if word.text == b"--trailer" and following is not None:
            yield following
        elif word.prefix.startswith(b"--trailer="):
            yield word


def _directory(commit: Commit) -> bytes | None:
    """Where git would look for the repository."""
    path = commit.command.cwd
    for step in commit.git.directories:
        path = None if path is None or step is None else at(path, step)
    return path


def _declines(program: str, directory: bytes, env: dict[bytes, bytes]) -> bool:
    said = _ask([program, "-C", directory, "config", "--type=bool", "--get", "nacre.coauthor"], env)
    return said is not None and said.strip() == b"false"


@lru_cache(maxsize=4)
def _version(program: str, changed: float) -> tuple[int, int] | None:
    del changed  # another program then
    said = _ask([program, "version"], None)
    found = re.search(rb"(\d+)\.(\d+)", said or b"")
    return (int(found[1]), int(found[2])) if found else None


def _ask(words: list[str | bytes], env: dict[bytes, bytes] | None) -> bytes | None:
    """A question to git that changes nothing."""
    try:
        return subprocess.run(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASKS_WITHIN,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
