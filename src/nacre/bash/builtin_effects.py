"""Effects of bash builtins such as `cd`, `read`, `export`, `set` and `shift` on what the script
analysis knows about the state of the shell."""

import re
from collections.abc import Sequence

from nacre.bash.commands import Word
from nacre.bash.known_state import KnownState
from nacre.bash.paths import resolve_path
from nacre.bash.possible_values import UNKNOWN, UNSET, known_text, one_of


def apply_builtin(state: KnownState, words: Sequence[Word], stdin: bytes | None) -> None:
    """Change `state`, the known state of the shell, as the builtin command `words` would change the
    shell. `stdin` is the text that a builtin such as `read` would read from standard input; None if
    the text is unknown."""
    match words[0].text:
        case b"cd" | b"pushd":
            _change_directory(state, words)
        case b"popd":
            state.cwd = None
        case b"read":
            _read(state, words[1:], stdin)
        case b"unset":
            for text in (text for word in words[1:] for text in word.texts):
                name, bracket, _ = text.partition(b"[")
                state.assign(name, UNKNOWN if bracket else UNSET)
        case b"getopts" | b"mapfile" | b"readarray":
            _forget_named(state, words[1:])
        case b"let":
            for text in (text for word in words[1:] for text in word.texts):
                for name in re.findall(rb"[A-Za-z_]\w*", text):
                    state.assign(name, UNKNOWN)
        case b"printf" if (words[1].prefix if len(words) > 1 else b"").startswith(b"-v"):
            _forget_named(state, words[2:3])
            state.assign(words[1].prefix[2:], UNKNOWN)
        case b"source" | b".":
            state.forget_everything()
        case b"shift":
            _shift(state, words)
        case b"set" if len(words) > 1:
            _set(state, words)
        case b"export" | b"declare" | b"typeset" | b"local" | b"readonly":
            _declare(state, words)


def _set(state: KnownState, words: Sequence[Word]) -> None:
    if words[1].text == b"--":
        state.set_positional(words[2:])
    elif not words[1].prefix.startswith((b"-", b"+")):
        state.set_positional(words[1:])
    elif any(not each.prefix.startswith((b"-", b"+")) for each in words[2:]):
        # `set -e a b` sets the positional parameters and `set -o name` does not; after either of
        # them the analysis treats the positional parameters as unknown.
        state.forget_positional()


def _declare(state: KnownState, words: Sequence[Word]) -> None:
    """Apply `export`, `declare`, `typeset`, `local` or `readonly` to `state`, the known state of
    the shell. A variable that is declared with an attribute such as `-i` (integer) becomes unknown,
    because the attribute changes the assigned value."""
    options = b"".join(w.text for w in words[1:] if w.text and w.text.startswith(b"-"))
    for word in words[1:]:
        if word.text is None:
            state.assign(word.prefix.partition(b"=")[0], UNKNOWN)
            continue
        if word.text.startswith(b"-"):
            continue
        name, equals, value = word.text.partition(b"=")
        if words[0].text not in (b"export", b"readonly"):
            state.locals.add(name)
        if words[0].text == b"export" or b"x" in options:
            state.exported.add(name)
        if any(letter in options for letter in b"iulnA"):
            state.changed.add(name)
            state.assign(name, UNKNOWN)
        elif equals and b"[" not in name and b"+" not in name and b"a" not in options:
            state.assign(name, known_text(value))


def _read(state: KnownState, words: Sequence[Word], stdin: bytes | None) -> None:
    names = [word for word in words if not (word.text or b"").startswith(b"-")]
    _forget_named(state, names)
    plain = all((w.text or b"x").strip(b"-r") == b"" for w in words if w not in names)
    if stdin is not None and len(names) == 1 and names[0].text is not None and plain:
        # In a `while read` loop, the variable gets each line of the input in turn, and is empty
        # after the loop.
        lines = tuple(line.strip(b" \t") for line in stdin.rstrip(b"\n").split(b"\n"))
        state.assign(names[0].text, one_of(lines, open=True))


def _shift(state: KnownState, words: Sequence[Word]) -> None:
    count = words[1].text if len(words) > 1 else b"1"
    values = state.arrays.get(b"@")
    if values is None or count is None or not count.isdigit():
        state.forget_positional()
    else:
        state.arrays[b"@"] = values[int(count[:6]) :]


def _change_directory(state: KnownState, words: Sequence[Word]) -> None:
    given = [word for word in words[1:] if word.text not in (b"-P", b"-L", b"-e", b"--")]
    if not given:
        home = state.variables.get(b"HOME", UNKNOWN).text
        state.cwd = home if words[0].text == b"cd" else None
        return
    path = given[0].text if len(given) == 1 and not given[0].glob else None
    if path is None or path == b"-" or path.startswith(b"+"):
        state.cwd = None
    elif state.cwd is not None or path.startswith(b"/"):
        state.cwd = resolve_path(state.cwd or b"/", path)


def _forget_named(state: KnownState, words: Sequence[Word]) -> None:
    for word in words:
        for text in word.texts:
            state.assign(text.partition(b"=")[0], UNKNOWN)
