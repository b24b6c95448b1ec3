"""What is known at a point of a script: variables, arrays, functions, the directory.

Knows which builtins change what. Nothing here reads text.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from nacre.bash.commands import Assignment, Word
from nacre.bash.paths import resolve_path
from nacre.bash.possible_values import IFS, UNKNOWN, UNSET, Value, known_text, merge_values, one_of
from nacre.bash.syntax_tree import Node
from nacre.bash.tokens import Frame

_MAX_ELEMENTS: Final = 256


class Body(Struct, frozen=True, eq=False):
    """What a function does, and the text that it stands in."""

    node: Node
    frame: Frame


class Variables:
    def __init__(self) -> None:
        self.variables: dict[bytes, Value] = {b"IFS": known_text(IFS)}
        self.arrays: dict[bytes, tuple[Value, ...]] = {}
        self.functions: dict[bytes, tuple[Body, ...]] = {}  # several: it is open which
        self.exported: set[bytes] = set()
        self.changed: set[bytes] = set()  # bash changes what is assigned to them: declare -i
        self.locals: set[bytes] = set()  # of the function that is being called
        self.cwd: bytes | None = None

    def copy(self) -> "Variables":
        other = Variables()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.functions = dict(self.functions)
        other.exported = set(self.exported)
        other.changed = set(self.changed)
        other.locals = self.locals
        other.cwd = self.cwd
        return other

    def merge(self, other: "Variables") -> "Variables":
        """What is known when it is open which of the two came to be."""
        merged = Variables()
        for name in self.variables.keys() | other.variables.keys():
            mine = self.variables.get(name, UNKNOWN)
            merged.variables[name] = merge_values(mine, other.variables.get(name, UNKNOWN))
        merged.arrays = {
            name: values for name, values in self.arrays.items() if other.arrays.get(name) == values
        }
        merged.functions = dict(self.functions)
        for name, bodies in other.functions.items():
            known_ones = merged.functions.get(name, ())
            more = tuple(each for each in bodies if each not in known_ones)
            merged.functions[name] = known_ones + more
        merged.exported = self.exported | other.exported
        merged.changed = self.changed | other.changed
        merged.locals = self.locals
        merged.cwd = self.cwd if self.cwd == other.cwd else None
        return merged

    def for_child_shell(
        self, positional: Sequence[Word], given: Sequence[Assignment]
    ) -> "Variables":
        """What a shell knows that this one starts: what was exported, or given with the command."""
        merged = Variables()
        merged.cwd = self.cwd
        for name in (b"HOME", *self.exported):
            if name in self.variables:
                merged.variables[name] = self.variables[name]
        merged.exported = set(self.exported)
        for assignment in given:
            merged.assign(assignment.name, value_of(assignment.value))
        merged.set_positional(positional)
        return merged

    def assign(self, name: bytes, value: Value) -> None:
        self.variables[name] = UNKNOWN if name in self.changed else value
        self.arrays.pop(name, None)

    def assign_array(self, name: bytes, values: tuple[Value, ...]) -> None:
        if len(values) > _MAX_ELEMENTS:
            self.assign(name, UNKNOWN)
            return
        self.arrays[name] = values
        self.variables[name] = values[0] if values else known_text(b"")

    def mark_not_empty(self, names: Iterable[bytes]) -> None:
        """Somebody made sure that these are not."""
        for name in [*names]:
            value = self.variables.get(name, UNKNOWN)
            if b"" in value.texts:
                texts = tuple(each for each in value.texts if each)
                self.variables[name] = Value(texts, open=True, glob=value.glob)

    def set_positional(self, words: Sequence[Word]) -> None:
        self.restore_positional(tuple(map(value_of, words)))

    def restore_positional(self, values: tuple[Value, ...] | None) -> None:
        if values is None or len(values) > _MAX_ELEMENTS:
            self.arrays.pop(b"@", None)
        else:
            self.arrays[b"@"] = values

    def forget_positional(self) -> None:
        self.arrays.pop(b"@", None)

    def forget_everything(self) -> None:
        names = (b"HOME", b"IFS")
        self.variables = {name: self.variables.get(name, UNKNOWN) for name in names}
        self.arrays = {}
        self.cwd = None

    def apply_builtin(self, words: Sequence[Word], stdin: bytes | None) -> None:
        """What a builtin with these words has changed."""
        match words[0].text:
            case b"cd" | b"pushd":
                self._change_directory(words)
            case b"popd":
                self.cwd = None
            case b"read":
                self._read(words[1:], stdin)
            case b"unset":
                for text in (text for word in words[1:] for text in word.texts):
                    name, bracket, _ = text.partition(b"[")
                    self.assign(name, UNKNOWN if bracket else UNSET)
            case b"getopts" | b"mapfile" | b"readarray":
                self._forget_named(words[1:])
            case b"let":
                for text in (text for word in words[1:] for text in word.texts):
                    for name in re.findall(rb"[A-Za-z_]\w*", text):
                        self.assign(name, UNKNOWN)
            case b"printf" if (words[1].prefix if len(words) > 1 else b"").startswith(b"-v"):
                self._forget_named(words[2:3])
                self.assign(words[1].prefix[2:], UNKNOWN)
            case b"source" | b".":
                self.forget_everything()
            case b"shift":
                self._shift(words)
            case b"set" if len(words) > 1:
                self._set(words)
            case b"export" | b"declare" | b"typeset" | b"local" | b"readonly":
                self._declare(words)

    def _set(self, words: Sequence[Word]) -> None:
        if words[1].text == b"--":
            self.set_positional(words[2:])
        elif not words[1].prefix.startswith((b"-", b"+")):
            self.set_positional(words[1:])
        elif any(not each.prefix.startswith((b"-", b"+")) for each in words[2:]):
            self.forget_positional()  # set -e a b, or set -o name

    def _declare(self, words: Sequence[Word]) -> None:
        """Names that are exported, and attributes that change what is assigned."""
        options = b"".join(w.text for w in words[1:] if w.text and w.text.startswith(b"-"))
        for word in words[1:]:
            if word.text is None:
                self.assign(word.prefix.partition(b"=")[0], UNKNOWN)
                continue
            if word.text.startswith(b"-"):
                continue
            name, equals, value = word.text.partition(b"=")
            if words[0].text not in (b"export", b"readonly"):
                self.locals.add(name)
            if words[0].text == b"export" or b"x" in options:
                self.exported.add(name)
            if any(letter in options for letter in b"iulnA"):
                self.changed.add(name)
                self.assign(name, UNKNOWN)
            elif equals and b"[" not in name and b"+" not in name and b"a" not in options:
                self.assign(name, known_text(value))

    def _read(self, words: Sequence[Word], stdin: bytes | None) -> None:
        names = [word for word in words if not (word.text or b"").startswith(b"-")]
        self._forget_named(names)
        plain = all((w.text or b"x").strip(b"-r") == b"" for w in words if w not in names)
        if stdin is not None and len(names) == 1 and names[0].text is not None and plain:
            # In a loop it is each of the lines in turn, and at the end nothing.
            lines = tuple(line.strip(b" \t") for line in stdin.rstrip(b"\n").split(b"\n"))
            self.assign(names[0].text, one_of(lines, open=True))

    def _shift(self, words: Sequence[Word]) -> None:
        count = words[1].text if len(words) > 1 else b"1"
        values = self.arrays.get(b"@")
        if values is None or count is None or not count.isdigit():
            self.forget_positional()
        else:
            self.arrays[b"@"] = values[int(count[:6]) :]

    def _change_directory(self, words: Sequence[Word]) -> None:
        given = [word for word in words[1:] if word.text not in (b"-P", b"-L", b"-e", b"--")]
        if not given:
            home = self.variables.get(b"HOME", UNKNOWN).text
            self.cwd = home if words[0].text == b"cd" else None
            return
        path = given[0].text if len(given) == 1 and not given[0].glob else None
        if path is None or path == b"-" or path.startswith(b"+"):
            self.cwd = None
        elif self.cwd is not None or path.startswith(b"/"):
            self.cwd = resolve_path(self.cwd or b"/", path)

    def _forget_named(self, words: Sequence[Word]) -> None:
        for word in words:
            for text in word.texts:
                self.assign(text.partition(b"=")[0], UNKNOWN)


def value_of(word: Word) -> Value:
    return Value(word.texts, open=word.text is None or word.glob, glob=word.glob)
