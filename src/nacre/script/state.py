"""What is known at a point of a script: variables, arrays, functions, the directory.

Knows which builtins change what. Nothing here reads text.
"""

from collections.abc import Sequence

from nacre.script.commands import Word
from nacre.script.paths import at
from nacre.script.skeleton import Node
from nacre.script.tokens import Frame
from nacre.script.words import UNKNOWN, Value, either, known


class State:
    def __init__(self) -> None:
        self.variables: dict[bytes, Value] = {}
        self.arrays: dict[bytes, tuple[Value, ...]] = {}
        self.functions: dict[bytes, tuple[Node, Frame]] = {}
        self.cwd: bytes | None = None

    def copy(self) -> "State":
        other = State()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.functions = dict(self.functions)
        other.cwd = self.cwd
        return other

    def or_else(self, other: "State") -> "State":
        """What is known when it is open which of the two came to be."""
        made = State()
        for name in self.variables.keys() | other.variables.keys():
            mine = self.variables.get(name, UNKNOWN)
            made.variables[name] = either(mine, other.variables.get(name, UNKNOWN))
        made.arrays = {
            name: values for name, values in self.arrays.items() if other.arrays.get(name) == values
        }
        made.functions = other.functions | self.functions
        made.cwd = self.cwd if self.cwd == other.cwd else None
        return made

    def of_another_shell(self, positional: Sequence[Word]) -> "State":
        """What a shell knows that this one starts. What was exported to it is open."""
        made = State()
        made.cwd = self.cwd
        if b"HOME" in self.variables:
            made.variables[b"HOME"] = self.variables[b"HOME"]
        made.set_positional(positional)
        return made

    def assign(self, name: bytes, value: Value) -> None:
        self.variables[name] = value
        self.arrays.pop(name, None)

    def assign_array(self, name: bytes, values: tuple[Value, ...]) -> None:
        self.arrays[name] = values
        self.variables[name] = values[0] if values else known(b"")

    def set_positional(self, words: Sequence[Word]) -> None:
        self.restore_positional(tuple(Value(each.texts, open=each.text is None) for each in words))

    def restore_positional(self, values: tuple[Value, ...] | None) -> None:
        self.forget_positional()
        if values is not None:
            self.arrays[b"@"] = values
            for number, value in enumerate(values[:9], 1):
                self.variables[str(number).encode()] = value

    def forget_positional(self) -> None:
        self.arrays.pop(b"@", None)
        for name in [name for name in self.variables if name.isdigit()]:
            del self.variables[name]

    def forget_everything(self) -> None:
        self.variables = {b"HOME": self.variables.get(b"HOME", UNKNOWN)}
        self.arrays = {}
        self.cwd = None

    def after(self, words: Sequence[Word]) -> None:
        """What a builtin with these words has changed."""
        match words[0].text:
            case b"cd" | b"pushd":
                self._change_directory(words)
            case b"popd":
                self.cwd = None
            case b"read" | b"unset" | b"getopts" | b"mapfile" | b"readarray" | b"let":
                self._forget_named(words[1:])
            case b"printf" if len(words) > 2 and words[1].text == b"-v":
                self._forget_named(words[2:3])
            case b"source" | b".":
                self.forget_everything()
            case b"shift":
                self.forget_positional()
            case b"set" if len(words) > 1 and words[1].text == b"--":
                self.set_positional(words[2:])

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
            self.cwd = at(self.cwd or b"/", path)

    def _forget_named(self, words: Sequence[Word]) -> None:
        for word in words:
            for text in word.texts:
                self.assign(text.partition(b"=")[0], UNKNOWN)
