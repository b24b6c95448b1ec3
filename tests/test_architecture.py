"""The house: imports point down, never in a circle, and `import nacre` loads no extra."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "nacre"

# From the bottom up. Rooms of one floor never import each other, but for floor 0, which is
# ordered as it stands.
FLOORS: list[tuple[str, ...]] = [
    ("findings", "signals"),
    ("plan",),
    ("refusals",),
    ("outcome",),
    ("events",),
    ("asks", "caller", "cancel"),
    ("script", "secrets", "shell", "text", "lines", "unmarked", "digest", "loop", "proc"),
    ("render", "search"),
    ("prepare", "hindsight", "store", "capture", "process"),
    ("contracts", "engine"),
    ("settings", "warden"),
    ("reach",),
    ("watch",),
    ("handle", "look", "pursue", "remembered"),
    ("gather", "attend"),
    ("place", "calls", "callers"),
    ("tool", "oneshot"),
    ("fronts", "adapters"),
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# What only one room may know.
RESERVED = {
    "ctypes": {"process"},
    "subprocess": {"process", "fronts", "prepare"},  # prepare asks git a question
    "tree_sitter": {"script"},
    "tree_sitter_bash": {"script"},
    "fcntl": {"process", "store", "warden"},
    "argparse": {"fronts"},
    "asyncio": {"engine", "fronts"},
    "socket": {"warden"},
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; say where from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> Iterator[str]:
    for name in imports(path):
        first, _, rest = name.partition(".")
        if first == "nacre" and rest.split(".")[0] in FLOOR_OF:
            yield rest.split(".")[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    assert room in FLOOR_OF, f"{room} has no floor; give it one here and in docs/design.md"
    for other in rooms_imported(path):
        if other != room:
            assert FLOOR_OF[other] < FLOOR_OF[room], f"{room} may not import {other}"


def test_there_is_no_circle_among_modules() -> None:
    graph = {path: set(_modules_imported(path)) for path in modules()}
    while True:
        leaves = {path for path, others in graph.items() if not others & graph.keys()}
        if not leaves:
            break
        graph = {path: others for path, others in graph.items() if path not in leaves}
    assert graph == {}


def _modules_imported(path: Path) -> Iterator[Path]:
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "nacre":
            continue
        base = SOURCE.joinpath(*parts[1:])
        for candidate in (base.with_suffix(".py"), base.parent.with_suffix(".py")):
            if candidate.is_file() and candidate != path and candidate.parent != SOURCE.parent:
                yield candidate
                break


@pytest.mark.parametrize(("name", "rooms"), RESERVED.items())
def test_some_things_are_known_to_one_room_only(name: str, rooms: set[str]) -> None:
    users = {
        room_of(path) for path in modules() if name in {n.split(".")[0] for n in imports(path)}
    }
    assert users <= rooms


def test_every_module_says_what_it_is_for() -> None:
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_a_tool_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys, nacre; tool = nacre.Tool('harness'); tool.call({'command': 'true'});"
        "print([m for m in ('asyncio', 'argparse', 'ctypes', 'json', 'logging', 'mcp', 'pathlib',"
        "'subprocess', 'tempfile', 'textual', 'tree_sitter') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout == "[]\n"


def test_the_package_is_typed_and_has_a_licence() -> None:
    assert (SOURCE / "py.typed").exists()
    assert "Apache License" in (SOURCE.parent.parent / "LICENSE").read_text()


def test_no_file_names_a_package_index() -> None:
    root = SOURCE.parent.parent
    listed = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    hosts = ("py" + "pi.org", "pythonho" + "sted", "npm" + "js.", "index" + "-url")
    for name in listed:
        text = (root / name).read_text(errors="replace") if (root / name).is_file() else ""
        assert not [host for host in hosts if host in text], name
