"""The step `interception`: commands that the caller has a better tool for.

A rule counts only when its tool is among the caller's. It looks at commands, not at text: at those
that stand for themselves. What is fed by a pipe or feeds one, what sits in a substitution, a
function or a loop, and what reads devices or `/proc`, is left alone: the other tool could not stand
there.
"""

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Final, Literal

import msgspec
from msgspec import Struct

from nacre.caller import Caller
from nacre.findings import Suggested
from nacre.plan import Plan
from nacre.prepare.arguments import NONE, beginning, flags, has, operands
from nacre.prepare.notes import noted
from nacre.prepare.reading import reading
from nacre.refusals import Intercepted
from nacre.script.commands import Command, Reading, Redirect, Word
from nacre.script.said import said
from nacre.text import decode

Mode = Literal["off", "warn", "block"]
Arguments = dict[str, str | int]
Look = Callable[[Command, bytes], Arguments | None]  # the other tool's arguments, on a match

# Whose work is the same with or without them.
_TRANSPARENT: Final = {
    *(b"command", b"env", b"builtin", b"exec", b"nohup", b"nice", b"ionice", b"time", b"timeout"),
    *(b"stdbuf", b"setsid", b"eval", b"bash", b"sh", b"dash"),
}
# Options that take the next word.
_COUNTS: Final = frozenset({b"-n", b"-c", b"--lines", b"--bytes"})
_SEARCH_VALUED: Final = frozenset(
    {
        b"-A",
        b"-B",
        b"-C",
        b"-e",
        b"-f",
        b"-g",
        b"-m",
        b"-t",
        b"-T",
        b"--regexp",
        b"--file",
        b"--glob",
    }
    | {
        b"--type",
        b"--max-count",
        b"--context",
        b"--after-context",
        b"--before-context",
        b"--include",
    }
)
_FD_VALUED: Final = frozenset(
    {b"-t", b"-e", b"-d", b"-E", b"-c", b"-j", b"--type", b"--extension", b"--max-depth"}
)
_NOT_FILES: Final = (b"/dev/", b"/proc/", b"/sys/")


class Given(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as a person writes it: a regular expression over a command's text, or first words."""

    tool: str
    message: str
    pattern: str | None = None
    words: tuple[str, ...] | None = None


class Rule(Struct, frozen=True, kw_only=True):
    id: str
    tool: str
    message: str
    look: Look


class Match(Struct, frozen=True, kw_only=True):
    rule: Rule
    command: Command
    arguments: Arguments


def loaded(given: Sequence[Given]) -> tuple[Rule, ...]:
    """Rules of the user's own. Raises ValueError, naming the rule, for one that makes no sense."""
    return tuple(_loaded(number, each) for number, each in enumerate(given, 1))


def _loaded(number: int, given: Given) -> Rule:
    name = f"rule {number} (for the tool {given.tool!r})"
    if not given.tool or (given.pattern is None) == (given.words is None):
        raise ValueError(f"{name} needs a tool and either a pattern or words")
    look = (
        _first_words(given.words) if given.words is not None else _regex(name, given.pattern or "")
    )
    return Rule(id=f"user.{number}", tool=given.tool, message=given.message, look=look)


def _first_words(wanted: Sequence[str]) -> Look:
    first = [each.encode() for each in wanted]

    def look(command: Command, script: bytes) -> Arguments | None:
        del script
        texts = [command.name, *(word.text for word in command.arguments)]
        return {} if texts[: len(first)] == first else None

    return look


def _regex(name: str, pattern: str) -> Look:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{name} has a pattern that does not compile ({error}): {pattern}"
        ) from None

    def look(command: Command, script: bytes) -> Arguments | None:
        return {} if compiled.search(decode(script[command.start : command.end])) else None

    return look


def interception(rules: Sequence[Rule], mode: Mode) -> Callable[[Plan, Caller], Plan | Intercepted]:
    def step(plan: Plan, caller: Caller) -> Plan | Intercepted:
        """Refuse a command that the caller has a better tool for, or note it."""
        if mode == "off" or not caller.tools:
            return plan
        found = intercept(reading(plan, caller), rules, caller.tools)
        if found is None:
            return plan
        rule = found.rule
        if mode == "warn":
            return noted(
                plan,
                Suggested(tool=rule.tool, message=rule.message, arguments=found.arguments),
            )
        command = found.command
        return Intercepted(
            rule=f"intercept.{rule.id}",
            tool=rule.tool,
            message=rule.message,
            command=decode(plan.command.given),
            matched=tuple(decode(word.text or b"?") for word in command.words),
            spans=((command.start, command.end),),
            arguments=found.arguments,
        )

    return step


def intercept(reading: Reading, rules: Sequence[Rule], tools: Sequence[str]) -> Match | None:
    """The first command that a tool of the caller's would do better."""
    counted = [rule for rule in rules if rule.tool in tools]
    for command in reading.commands:
        if not _stands_for_itself(command):
            continue
        for rule in counted:
            arguments = rule.look(command, reading.text)
            if arguments is not None:
                return Match(rule=rule, command=command, arguments=arguments)
    return None


def _stands_for_itself(command: Command) -> bool:
    alone = not (command.feeds or (command.fed and command.name != b"tee"))
    placed = not (command.substitution or command.function or command.loop)
    return bool(command.words) and alone and placed and _TRANSPARENT.issuperset(command.via)


# The rules that pi has


def _read(command: Command, script: bytes) -> Arguments | None:
    del script
    if _keeps_its_output(command):
        return None
    if command.name == b"tail" and has(command.arguments, b"fF", b"--follow", b"--retry"):
        return None
    if any(beginning(word).startswith(b"+F") for word in command.arguments):
        return None
    valued = _COUNTS if command.name in (b"head", b"tail") else NONE
    files = [*operands(command.arguments, valued)]
    files = [word for word in files if word.text != b"-" and not _is_count(word)]
    files += [each.target for each in command.redirects if _is_input(each) and not files]
    if not files or any(_is_device(word) for word in files):
        return None
    arguments = _path(files[0])
    count = _count(command) if command.name == b"head" else None
    return arguments if count is None else arguments | {"limit": count}


def _search(command: Command, script: bytes) -> Arguments | None:
    del script
    if _keeps_its_output(command):
        return None
    given = [*flags(command.arguments, _SEARCH_VALUED)]
    named = any(each.name in (b"-e", b"--regexp", b"-f", b"--file") for each in given)
    words = [*operands(command.arguments, _SEARCH_VALUED)]
    patterns = [_after(command, b"-e", b"--regexp")] if named else words[:1]
    where = words if named else words[1:]
    recursive = command.name not in (b"grep", b"egrep", b"fgrep") or has(
        command.arguments, b"rR", b"--recursive", b"--dereference-recursive"
    )
    where += [each.target for each in command.redirects if _is_input(each)]
    if not (patterns and (where or recursive)) or any(map(_is_device, where)):
        return None
    if any(word.text == b"-" for word in where):
        return None
    pattern = {} if patterns[0] is None else _text("pattern", patterns[0])
    return pattern | (_path(where[0]) if where else {})


def _find(command: Command, script: bytes) -> Arguments | None:
    del script
    if _keeps_its_output(command):
        return None
    texts = [word.text or word.prefix for word in command.arguments]
    if command.name == b"find":
        acts = {
            b"-delete",
            b"-exec",
            b"-execdir",
            b"-ok",
            b"-okdir",
            b"-fprint",
            b"-fprintf",
            b"-fls",
        }
        asks = {
            b"-name",
            b"-iname",
            b"-type",
            b"-path",
            b"-ipath",
            b"-wholename",
            b"-regex",
            b"-iregex",
        }
        if acts & {*texts} or not asks & {*texts}:
            return None
        named = _after(command, *asks - {b"-type"})
        starts = [each for each in command.arguments if each.text not in (b"-L", b"-H", b"-P")]
        start = starts[0] if starts and not beginning(starts[0]).startswith(b"-") else None
    elif command.name in (b"fd", b"fdfind"):
        if {b"-x", b"--exec", b"-X", b"--exec-batch"} & {*texts}:
            return None
        flagged = has(command.arguments, b"tge", b"--type", b"--glob", b"--extension")
        words = [*operands(command.arguments, _FD_VALUED)]
        if not flagged:
            return None
        named, start = (words[0] if words else None), (words[1] if len(words) > 1 else None)
    else:  # locate
        words = [*operands(command.arguments, frozenset({b"-d", b"-l", b"-n"}))]
        if not any(
            b"*" in text or text.startswith((b"-b", b"--basename", b"-r")) for text in texts
        ):
            return None
        named, start = (words[0] if words else None), None
    if start is not None and _is_device(start):
        return None
    arguments = {} if named is None else _text("pattern", named)
    return arguments | ({} if start is None else _path(start))


def _edit(command: Command, script: bytes) -> Arguments | None:
    del script
    name, words = command.name, command.arguments
    texts = [word.text or word.prefix for word in words]
    if name in (b"sed", b"gsed"):
        before = texts[: texts.index(b"--")] if b"--" in texts else texts
        hit = any(
            (len(text) > 3 and b"--in-place".startswith(text.partition(b"=")[0]))
            or (_letters(text, b"nrEsuzle") and b"i" in text)
            for text in before
        )
    elif name == b"perl":
        hit = _perl_edits(texts)
    else:  # awk and kin
        hit = (
            any(
                text == b"-iinplace"
                or (text in (b"-i", b"--include") and following.startswith(b"inplace"))
                for text, following in zip_longest(texts, texts[1:], fillvalue=b"")
            )
            or b"--include=inplace" in texts
        )
    if not hit:
        return None
    last = [word for word in words if not beginning(word).startswith(b"-")][-1:]
    return _path(last[0]) if last else {}


def _letters(text: bytes, allowed: bytes) -> bool:
    """A bundle of short options, `i` perhaps with a suffix behind it."""
    if not text.startswith(b"-") or text.startswith(b"--") or len(text) < 2:
        return False
    before = text[1:].split(b"i")[0]
    return all(byte in allowed for byte in before)


def _perl_edits(texts: list[bytes]) -> bool:
    """perl's switches end at the first word that is none: the script."""
    skip = False
    for text in texts:
        if skip:
            skip = False
            continue
        if not text.startswith(b"-") or text.startswith(b"--") or text == b"-":
            return False
        switches = re.match(rb"-((?:[aclnpsStTuUvwWX0-9]|C[A-Z0-9]*)*)(.?)", text)
        assert switches is not None
        if switches[2] == b"i":
            return True
        skip = switches[2] in (b"e", b"E", b"I", b"M", b"m") and switches.end() == len(text)
    return False


def _write(command: Command, script: bytes) -> Arguments | None:
    del script
    feeds_text = any(each.operator in (b"<<", b"<<<") for each in command.redirects)
    if command.name == b"cat" and not feeds_text:
        return None
    targets = [each for each in command.redirects if each.of_output and _is_file(each)]
    if not targets:
        return None
    arguments = _path(targets[-1].target)
    body = command.stdin if command.name == b"cat" else _said(command)
    if body is not None and targets[-1].operator not in (b">>", b"&>>"):
        arguments |= {"content": decode(body)}
    return arguments


def _tee(command: Command, script: bytes) -> Arguments | None:
    """`echo x | tee f` writes a file as well; `make | tee log` keeps what somebody else said."""
    del script
    feeder = command.feeder
    if feeder is None or feeder.name not in (b"echo", b"printf", b"cat"):
        return None
    if feeder.name == b"cat" and feeder.stdin is None:
        return None
    files = [word for word in operands(command.arguments) if not _is_device(word)]
    if not files:
        return None
    body = command.stdin
    if body is None or has(command.arguments, b"a", b"--append"):
        return _path(files[0])
    return _path(files[0]) | {"content": decode(body)}


def _is_file(redirect: Redirect) -> bool:
    return not _is_device(redirect.target)


def _keeps_its_output(command: Command) -> bool:
    """What goes into a file is not for reading."""
    return any(each.of_output for each in command.redirects)


def _is_input(redirect: Redirect) -> bool:
    return redirect.operator == b"<" and redirect.descriptor == 0


def _is_device(word: Word) -> bool:
    texts = (*word.texts, word.prefix)
    return any((text.rstrip(b"/") + b"/").startswith(_NOT_FILES) for text in texts if text)


def _said(command: Command) -> bytes | None:
    return said(msgspec.structs.replace(command, redirects=()))


def _is_count(word: Word) -> bool:
    return bool(word.text) and (word.text or b"")[:1] == b"+"


def _count(command: Command) -> int | None:
    texts = [word.text or b"" for word in command.arguments]
    for text, following in zip_longest(texts, texts[1:], fillvalue=b""):
        for shape, value in (
            (rb"-(\d+)", text),
            (rb"-n(\d+)", text),
            (rb"--lines=(\d+)", text),
            (rb"(\d+)", following if text in (b"-n", b"--lines") else b""),
        ):
            found = re.fullmatch(shape, value)
            if found:
                return int(found[1])
    return None


def _after(command: Command, *options: bytes) -> Word | None:
    """The value of an option that stands in a word of its own."""
    for word, following in zip(command.arguments, command.arguments[1:], strict=False):
        if word.text in options:
            return following
    return None


def _path(word: Word) -> Arguments:
    return _text("path", word)


def _text(key: str, word: Word) -> Arguments:
    return {} if word.text is None else {key: decode(word.text)}


def _about(*programs: bytes) -> Callable[[Look], Look]:
    def only(look: Look) -> Look:
        def looked(command: Command, script: bytes) -> Arguments | None:
            return look(command, script) if command.name in programs else None

        return looked

    return only


DEFAULTS: Final = (
    Rule(
        id="write",
        tool="write",
        message="use the write tool to make a file; it takes the content as it is, without quoting",
        look=_about(b"echo", b"printf", b"cat")(_write),
    ),
    Rule(
        id="write-tee",
        tool="write",
        message="use the write tool to make a file; it takes the content as it is, without quoting",
        look=_about(b"tee")(_tee),
    ),
    Rule(
        id="read",
        tool="read",
        message="use the read tool to look at a file; it shows line numbers and takes ranges",
        look=_about(b"cat", b"head", b"tail", b"less", b"more")(_read),
    ),
    Rule(
        id="search",
        tool="search",
        message="use the search tool to find text in files; it respects .gitignore",
        look=_about(b"grep", b"egrep", b"fgrep", b"rg", b"ripgrep", b"ag", b"ack")(_search),
    ),
    Rule(
        id="find",
        tool="find",
        message="use the find tool to find files by name",
        look=_about(b"find", b"fd", b"fdfind", b"locate")(_find),
    ),
    Rule(
        id="edit",
        tool="edit",
        message="use the edit tool to change a file; it shows what it changed",
        look=_about(b"sed", b"gsed", b"perl", b"awk", b"gawk", b"mawk")(_edit),
    ),
)
