"""The pack `git` of safety rules: git commands that are regretted later when an agent runs them,
such as a force push."""

from collections.abc import Iterator
from typing import Final

from nacre.bash.commands import ParsedCommand, Word
from nacre.prepare.git_command import GitCommand, parse_git
from nacre.prepare.option_parsing import NONE, find_flags, find_operands, has_flag
from nacre.prepare.safety.rule import RuleContext, RuleMatch, SafetyRule, show_words

_PUSH_VALUED: Final = frozenset({b"-o", b"--push-option", b"--repo", b"--receive-pack", b"--exec"})
_PUSH_LONG: Final = frozenset({b"--force", b"--force-with-lease", b"--force-if-includes"})
_CONFIG_VALUED: Final = frozenset(
    {b"-f", b"--file", b"--blob", b"--type", b"--default", b"--value"}
)
_READS: Final = {
    *(b"--get", b"--get-all", b"--get-regexp", b"--get-urlmatch", b"-l", b"--list", b"--get-color"),
    *(b"get", b"list", b"--name-only"),
}
_IDENTITY: Final = (
    *(b"user.name", b"user.email", b"author.name", b"author.email", b"committer.name"),
    b"committer.email",
)
_VARIABLES: Final = (
    *(b"GIT_AUTHOR_NAME", b"GIT_AUTHOR_EMAIL", b"GIT_COMMITTER_NAME", b"GIT_COMMITTER_EMAIL"),
)


def _hit(
    command: ParsedCommand,
    found: GitCommand | None,
    words: tuple[Word, ...],
    why: str,
    instead: str,
) -> RuleMatch:
    place = (command.words[found.place],) if found is not None else ()
    return RuleMatch(
        words=(*command.words[:1], *place, *words),
        shown=show_words(command.words),
        why=why,
        instead=instead,
    )


def _add(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    found = parse_git(command)
    if found is None or found.subcommand not in (b"add", b"stage"):
        return
    paths = [*find_operands(found.arguments, frozenset({b"--pathspec-from-file", b"--chmod"}))]
    if has_flag(found.arguments, b"n", b"--dry-run"):
        return
    blind = [
        word
        for word in paths
        if word.text in (b".", b"./", b":/", b":/.", b"*", b"./*", b":", command.cwd)
    ]
    everything = [
        flag.word
        for flag in find_flags(found.arguments, NONE, frozenset({b"--all"}))
        if flag.name in (b"-A", b"--all")
    ]
    if blind or (everything and not paths):
        yield _hit(
            command,
            found,
            (*everything, *blind),
            "would stage every file, secrets and build output included",
            "check git status, and add files by name",
        )


def _push(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    found = parse_git(command)
    if found is None or found.subcommand != b"push":
        return
    if has_flag(found.arguments, b"n", b"--dry-run"):
        return
    given = [*find_flags(found.arguments, _PUSH_VALUED, _PUSH_LONG)]
    force = [flag.word for flag in given if flag.name in (b"-f", b"--force", b"--mirror")]
    lease = any(flag.name == b"--force-with-lease" for flag in given)
    refs = [*find_operands(found.arguments, _PUSH_VALUED)]
    plus = [word for word in refs[1:] if (word.text or word.prefix).startswith(b"+")]
    if force or (plus and not lease):
        yield _hit(
            command,
            found,
            (*force, *plus),
            "would overwrite commits that other people have pushed",
            "use --force-with-lease alone, which refuses when the remote branch has changed",
        )


def _identity(command: ParsedCommand, around: RuleContext) -> Iterator[RuleMatch]:
    del around
    why = "would change the author of future commits"
    instead = "keep the configured identity, or ask a person to change it"
    found = parse_git(command)
    if found is not None:
        for word in found.settings:
            if word.prefix.lower().startswith(_IDENTITY) and b"=" in word.prefix:
                yield _hit(command, found, (word,), why, instead)
        if found.subcommand == b"config":
            yield from _configured(command, found, why, instead)
    for assignment in command.assignments:
        if assignment.name in _VARIABLES:
            word = Word(start=assignment.start, end=assignment.end, text=assignment.name + b"=")
            yield RuleMatch(words=(word,), shown=(assignment.name,), why=why, instead=instead)
    if command.name in (b"export", b"declare", b"typeset", b"readonly", b"env", b"sudo"):
        for word in command.arguments:
            name, equals, _ = word.prefix.partition(b"=")
            if name in _VARIABLES and equals:
                yield _hit(command, None, (word,), why, instead)


def _configured(
    command: ParsedCommand, found: GitCommand, why: str, instead: str
) -> Iterator[RuleMatch]:
    names = {flag.name for flag in find_flags(found.arguments, _CONFIG_VALUED, NONE)}
    rest = [*find_operands(found.arguments, _CONFIG_VALUED)]
    if names & _READS or (rest and rest[0].text in _READS):
        return
    sections = names & {b"--remove-section", b"--rename-section"}
    if rest and rest[0].text == b"user" and sections:
        yield _hit(command, found, tuple(rest[:1]), why, instead)
    if rest and rest[0].text in (b"set", b"unset", b"add"):
        verb, rest = rest[0].text, rest[1:]
    else:
        verb = b"unset" if names & {b"--unset", b"--unset-all"} else b""
    if rest and (rest[0].text or b"").lower() in _IDENTITY and (len(rest) > 1 or verb):
        yield _hit(command, found, tuple(rest[:2]), why, instead)


RULES: Final = (
    SafetyRule(
        id="git.add-all",
        summary="git add -A, --all or .",
        programs=(b"git",),
        check_command=_add,
    ),
    SafetyRule(
        id="git.force-push",
        summary="force push without a lease",
        programs=(b"git",),
        check_command=_push,
    ),
    SafetyRule(
        id="git.identity", summary="a change of user.name or user.email", check_command=_identity
    ),
)
