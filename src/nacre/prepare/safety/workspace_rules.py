"""The pack `workspace` of safety rules: `rm` commands that destroy an agent's own work or the
user's home."""

import fnmatch
import os
from collections.abc import Iterator
from typing import Final

from nacre.bash.commands import ParsedCommand, Word
from nacre.prepare.option_parsing import find_operands, has_flag
from nacre.prepare.safety.protected_paths import EVERYTHING, possible_paths
from nacre.prepare.safety.rule import RuleContext, RuleMatch, SafetyRule, show_words


def _removed(command: ParsedCommand) -> Iterator[Word]:
    if has_flag(command.arguments, b"rR", b"--recursive"):
        yield from find_operands(command.arguments)


def _hit(command: ParsedCommand, word: Word, why: str, instead: str) -> RuleMatch:
    return RuleMatch(
        words=(command.words[0], word), shown=show_words(command.words), why=why, instead=instead
    )


def _git(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    for word in _removed(command):
        for text in word.texts:
            parts = text.rstrip(b"/").split(b"/")
            inside = parts[-2:-1] if EVERYTHING.fullmatch(parts[-1]) or parts[-1] == b"." else []
            if b".git" in (parts[-1], *inside) or (word.glob and _matches_git(parts[-1])):
                yield _hit(
                    command,
                    word,
                    "would remove the repository, with all commits that exist only in it",
                    "move it aside (mv .git ../git.old)",
                )


def _matches_git(pattern: bytes) -> bool:
    """Return whether a glob such as `.g*` is aimed at `.git`. `_matches_git` ignores the glob `*`,
    because other safety rules of the pack `workspace` check globs that match every file."""
    return pattern.startswith(b".g") and fnmatch.fnmatchcase(".git", pattern.decode("latin-1"))


def _everything(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    for word in _removed(command):
        for path in possible_paths(word, command):
            parent, last = os.path.split(path)
            every = word.glob and EVERYTHING.fullmatch(last) and parent == command.cwd
            if every or path == command.cwd:
                yield _hit(
                    command,
                    word,
                    "would remove everything in its working directory",
                    "name the files to remove, or use git clean -n to list untracked files",
                )


def _home(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    home = around.home
    if home is None:
        return
    for word in _removed(command):
        for path in possible_paths(word, command):
            ours = command.cwd is not None and (path + b"/").startswith(command.cwd + b"/")
            if (path + b"/").startswith(os.path.normpath(home) + b"/") and not ours:
                yield _hit(
                    command,
                    word,
                    "would remove what is in the home directory, outside of the workspace",
                    "leave it, or ask the owner of the home directory",
                )


RULES: Final = (
    SafetyRule(id="workspace.git", summary="rm -rf of .git", programs=(b"rm",), check_command=_git),
    SafetyRule(
        id="workspace.all",
        summary="rm -rf of *, .* or .",
        programs=(b"rm",),
        check_command=_everything,
    ),
    SafetyRule(
        id="workspace.home", summary="rm -rf under ~", programs=(b"rm",), check_command=_home
    ),
)
