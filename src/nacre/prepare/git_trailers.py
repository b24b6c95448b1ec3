"""Preparation step `trailer_step`: adds a trailer such as `Co-authored-by` to every real commit.

The step `trailer_step` changes a script only by two insertions at each `git commit`: the option
`--trailer` after the word `commit`, and a `-c` setting before that word. Each commit message gets
the trailer exactly once. The `-c` setting that nacre inserts before `commit` keeps git from adding
the trailer if the commit message already contains it, in any position.
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

from nacre.bash.commands import Analysis, ParsedCommand, known_prefix
from nacre.bash.paths import resolve_path
from nacre.model.caller import Caller
from nacre.model.findings import TrailerAdded, TrailerSkipped
from nacre.model.plan import Plan
from nacre.prepare.decide import add_findings
from nacre.prepare.git_command import COMMIT_VALUED, GitCommand, parse_git
from nacre.prepare.option_parsing import find_flags
from nacre.prepare.plan_analysis import analyze_plan

# Options with which `git commit` makes no commit, or a commit that a later rebase will merge into
# another commit.
_NO_COMMIT: Final = frozenset(
    {b"--dry-run", b"--fixup", b"--squash", b"--short", b"--porcelain", b"--long", b"--help"}
)
# Forms of the message option of `git commit`: `-m x`, `-mx`, `-am x`.
_MESSAGE: Final = re.compile(rb"-[^-mFCctSu]*m(.*)", re.DOTALL)
_GLUED: Final = frozenset({b"-S", b"-u"})
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
# Environment variables that git needs to find its settings; none of these variables holds a secret.
_FOR_GIT: Final = (
    *(b"PATH", b"HOME", b"XDG_CONFIG_HOME", b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM"),
    *(b"GIT_CONFIG_NOSYSTEM", b"GIT_CEILING_DIRECTORIES"),
)
_ASKS_WITHIN: Final = 2.0  # timeout of a query such as `git version`, in seconds
FIRST_WITH_TRAILERS: Final = (2, 32)


class Commit(Struct, frozen=True, kw_only=True):
    """One `git commit` command of a script, without an option such as `--dry-run` or `--fixup`."""

    command: ParsedCommand
    git: GitCommand


def find_commits(reading: Analysis) -> Iterator[Commit]:
    """Yield the `git commit` commands of a script, except those with an option such as `--dry-run`
    or `--fixup`."""
    for command in reading.commands:
        found = parse_git(command)
        if found is None or found.subcommand != b"commit":
            continue
        names = {flag.name for flag in find_flags(found.arguments, COMMIT_VALUED, _LONG, _GLUED)}
        if not names & (_NO_COMMIT | {b"-h"}):
            yield Commit(command=command, git=found)


def trailer_step(trailer: str) -> Callable[[Plan, Caller], Plan]:
    key = trailer.partition(":")[0].lower()
    line = trailer.encode()

    def step(plan: Plan, caller: Caller) -> Plan:
        """Add the git trailer to each `git commit` in the script, unless there is a reason against
        it, such as an old git version or the repository's setting `nacre.coauthor = false`."""
        found = [*find_commits(analyze_plan(plan, caller))]
        if not found:
            return plan
        script = plan.command.script
        asked = _GitQueries(caller)
        edits: dict[int, bytes] = {}
        for commit in found:
            why = _reason_against(commit, line, script) or asked.reason_against(commit)
            if why is not None:
                plan = add_findings(plan, TrailerSkipped(why=why))
            else:
                edits |= _insertions(commit, key.encode(), line)
        if not edits:
            return plan
        for place in sorted(edits, reverse=True):
            script = script[:place] + edits[place] + script[place:]
        command = msgspec.structs.replace(plan.command, script=script)
        plan = msgspec.structs.replace(plan, command=command)
        return add_findings(plan, TrailerAdded(trailer=trailer, commits=len(edits) // 2))

    return step


def _insertions(commit: Commit, key: bytes, line: bytes) -> dict[int, bytes]:
    word = commit.command.words[commit.git.place]
    mark = b'"' if commit.command.quotes == b"'" else b"'"
    setting = b"-c trailer." + key
    return {
        word.start: setting + b".ifexists=addIfDifferent " + setting + b".ifmissing=add ",
        word.end: b" --trailer " + mark + line + mark,
    }


def _reason_against(commit: Commit, line: bytes, script: bytes) -> str | None:
    """Return why the text of a `git commit` command does not allow nacre to add the trailer line;
    None if nacre may add the line."""
    command = commit.command
    if not command.exact or not _stands_there(commit, script):
        return "the commit is inside a text that cannot be changed in place"
    if any(line in text for text in (*_texts(commit), command.stdin or b"")):
        return "the command gives the trailer itself"
    messages = [*_messages(commit)]
    if messages and all(text is not None and not text.strip() for text in messages):
        return "the message is empty, and git itself refuses that"
    return None


def _stands_there(commit: Commit, script: bytes) -> bool:
    """Return whether `git` and `commit` are written literally in the script, without expansions."""
    words = commit.command.words
    spans = [(word.start, word.end) for word in words]
    for word in (words[0], words[commit.git.place]):
        written = script[word.start : word.end]
        if spans.count((word.start, word.end)) > 1 or re.search(rb"[$`{*?\[~]", written):
            return False
    return not any(word.bare and word.text is None for word in words[1 : commit.git.place])


def _texts(commit: Commit) -> Iterator[bytes]:
    return (word.text for word in commit.git.arguments if word.text is not None)


def _messages(commit: Commit) -> Iterator[bytes | None]:
    """Yield the commit messages given with `-m` and `-F`; None is a message not known before the
    run."""
    arguments = commit.git.arguments
    for word, following in zip_longest(arguments, arguments[1:]):
        text = known_prefix(word)
        after = None if following is None else following.text
        short = _MESSAGE.fullmatch(text)
        if short and short[1]:
            yield None if word.text is None else short[1]
        elif short or text == b"--message":
            yield after
        elif text.startswith(b"--message="):
            yield None if word.text is None else text.partition(b"=")[2]
        elif text in (b"-F", b"--file"):
            yield b"" if after == b"/dev/null" else None


class _GitQueries:
    """Queries for the git version and for repository settings; git runs only once for each
    query."""

    def __init__(self, caller: Caller) -> None:
        env = os.environb if caller.env is None else caller.env
        self._env = {name: env[name] for name in _FOR_GIT if name in env}
        path = os.fsdecode(env.get(b"PATH", b""))
        self._program = shutil.which("git", path=path or None)
        self._declines: dict[bytes, bool] = {}

    def reason_against(self, commit: Commit) -> str | None:
        if self._program is None:
            return "git is not installed"
        version = _version(self._program, os.stat(self._program).st_mtime)
        if version is not None and version < FIRST_WITH_TRAILERS:
            return f"git {version[0]}.{version[1]} cannot add trailers; 2.32 can"
        directory = _directory(commit)
        if directory is None:
            return None
        if directory not in self._declines:
            output = _query_git(
                [
                    self._program,
                    "-C",
                    directory,
                    "config",
                    "--type=bool",
                    "--get",
                    "nacre.coauthor",
                ],
                self._env,
            )
            self._declines[directory] = output is not None and output.strip() == b"false"
        return "the repository says nacre.coauthor = false" if self._declines[directory] else None


def _directory(commit: Commit) -> bytes | None:
    """Return the directory in which git would look for the repository; None if the directory is
    unknown."""
    path = commit.command.cwd
    for step in commit.git.directories:
        path = None if path is None or step is None else resolve_path(path, step)
    return path


@lru_cache(maxsize=4)
def _version(program: str, changed: float) -> tuple[int, int] | None:
    # The parameter `changed`, the modification time of the git program, is only a cache key, so
    # that nacre queries the version again after git was replaced.
    del changed
    output = _query_git([program, "version"], None)
    found = re.search(rb"(\d+)\.(\d+)", output or b"")
    return (int(found[1]), int(found[2])) if found else None


def _query_git(words: list[str | bytes], env: dict[bytes, bytes] | None) -> bytes | None:
    """Run a git command that only reads, and return its output; None if git cannot be run."""
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
