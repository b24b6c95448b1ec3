"""State of the shell, as far as the analysis knows it at one point of a script: variables, arrays,
functions and working directory.

The module `builtin_effects` applies the effects of bash builtins to a `KnownState`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from nacre.bash.commands import Assignment, Word
from nacre.bash.possible_values import IFS, UNKNOWN, Value, known_text, merge_values
from nacre.bash.syntax_tree import Node
from nacre.bash.tokens import Frame

_MAX_ELEMENTS: Final = 256


class Body(Struct, frozen=True, eq=False):
    """Body of a shell function, and the frame (text of commands) that contains the body."""

    node: Node
    frame: Frame


class KnownState:
    def __init__(self) -> None:
        self.variables: dict[bytes, Value] = {b"IFS": known_text(IFS)}
        self.arrays: dict[bytes, tuple[Value, ...]] = {}
        # bodies of each shell function, by name; several bodies mean that it is unknown which
        # definition is in effect
        self.functions: dict[bytes, tuple[Body, ...]] = {}
        self.exported: set[bytes] = set()
        # names of variables whose attribute changes every assigned value, such as the integer
        # attribute of `declare -i`
        self.changed: set[bytes] = set()
        # names of the local variables of the shell function whose call is being analyzed
        self.locals: set[bytes] = set()
        self.cwd: bytes | None = None

    def copy(self) -> "KnownState":
        other = KnownState()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.functions = dict(self.functions)
        other.exported = set(self.exported)
        other.changed = set(self.changed)
        other.locals = self.locals
        other.cwd = self.cwd
        return other

    def merge(self, other: "KnownState") -> "KnownState":
        """Return the known shell state after two branches of a script, when either branch may have
        run."""
        merged = KnownState()
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
    ) -> "KnownState":
        """Return the known state of a new child shell: directory, `HOME`, exported variables,
        positional parameters, and the assignments in its command line."""
        merged = KnownState()
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
        """Remove the empty text from the possible values of the variables `names`, for example
        after a test has ensured that the variables are not empty."""
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


def value_of(word: Word) -> Value:
    return Value(word.texts, open=word.text is None or word.glob, glob=word.glob)
