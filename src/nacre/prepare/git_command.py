"""Parsing a git command line into global options, subcommand and arguments, as git does."""

from typing import Final

from msgspec import Struct

from nacre.bash.commands import ParsedCommand, Word

_VALUED: Final = {
    *(b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace", b"--exec-path"),
    *(b"--super-prefix", b"--config-env", b"--attr-source", b"--list-cmds"),
}


# Options of `git commit` that take the next word as their value.
COMMIT_VALUED: Final = frozenset(
    {b"-m", b"-F", b"-C", b"-c", b"-t", b"--message", b"--file", b"--author", b"--date"}
    | {b"--template", b"--cleanup", b"--reuse-message", b"--reedit-message", b"--trailer"}
    | {b"--pathspec-from-file"}
)


class GitCommand(Struct, frozen=True, kw_only=True):
    # Value of each `-C` option of git; None: a value that is not known before the run.
    directories: tuple[bytes | None, ...]
    settings: tuple[Word, ...]  # value of each `-c` option of git
    place: int  # index of the git subcommand in the words of the command
    subcommand: bytes
    arguments: tuple[Word, ...]


def parse_git(command: ParsedCommand) -> GitCommand | None:
    """Return the parts of a git command; return None if the command is not git, only asks for help
    or the version, or has a subcommand that is unknown before the run."""
    if command.name != b"git":
        return None
    directories: list[bytes | None] = []
    settings: list[Word] = []
    at = 1
    words = command.words
    while at < len(words):
        text = words[at].text
        if text is None:
            if not words[at].prefix.startswith(b"-"):
                return None
        elif not text.startswith(b"-"):
            return GitCommand(
                directories=tuple(directories),
                settings=tuple(settings),
                place=at,
                subcommand=text,
                arguments=words[at + 1 :],
            )
        elif text in _VALUED and at + 1 < len(words):
            if text == b"-C":
                directories.append(words[at + 1].text)
            elif text == b"-c":
                settings.append(words[at + 1])
            at += 1
        elif text in (b"--help", b"-h", b"--version", b"-v"):
            return None
        at += 1
    return None
