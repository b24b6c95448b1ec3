"""Tests of the layers: a package imports only lower layers, and modules have no import cycle.

Also, a simple call of a tool loads no optional module.
"""

import ast
import builtins
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "nacre"

# Layers from the bottom up; docs/design.md has the same list. A package may import itself and the
# packages of lower layers. Packages in one tuple may not import each other. A package may import
# packages of an earlier tuple in its layer.
LAYERS: list[list[tuple[str, ...]]] = [
    [("model",)],
    [("bash", "text", "shell_state", "eventloop", "procfs", "terminal")],
    [("prepare", "hints", "store", "capture", "process", "sandbox")],
    [("sessions",)],
    [("contracts", "engine")],
    [("settings", "warden"), ("remote",)],
    [("runs",)],
    [("tool", "api")],
    [("frontends", "adapters")],
]
RANK_OF = {
    package: (layer, step)
    for layer, steps in enumerate(LAYERS)
    for step, packages in enumerate(steps)
    for package in packages
}
# Packages of lower layers that a package must not import.
FORBIDDEN = {
    "contracts": {"store", "capture", "process", "sandbox", "sessions", "eventloop", "procfs"},
    "engine": {"prepare", "hints", "bash"},
    "warden": {"contracts", "prepare", "hints", "bash"},
}
# Modules outside of nacre that only the listed packages may import.
RESERVED = {
    "ctypes": {"process"},
    "subprocess": {"process", "frontends", "prepare"},  # prepare runs git to query a repository
    "tree_sitter": {"bash"},
    "tree_sitter_bash": {"bash"},
    "fcntl": {"process", "store", "warden"},
    "argparse": {"frontends"},
    "asyncio": {"engine", "frontends"},
    "socket": {"warden"},
}
# Module names that may occur in several packages, because those modules have the same role.
SAME_JOB = {"contract", "handle", "leading_cd", "main", "reply", "server"}
# Names in prose that look like modules, but are files or Python attributes.
NOT_MODULES = {"runs/rN", "warden.lock"}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    """Yield the names that a module imports at load time or later, except for type checking."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages_imported(path: Path) -> Iterator[str]:
    for name in imports(path):
        first, _, rest = name.partition(".")
        if first == "nacre" and rest.split(".")[0] in RANK_OF:
            yield rest.split(".")[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    package = package_of(path)
    if package in ("__init__", "__main__"):
        return
    assert package in RANK_OF, f"{package} has no layer; give it one here and in docs/design.md"
    for other in packages_imported(path):
        if other != package:
            assert RANK_OF[other] < RANK_OF[package], f"{package} may not import {other}"
            assert other not in FORBIDDEN.get(package, ()), f"{package} may not import {other}"


def test_the_root_has_few_modules() -> None:
    assert len([path for path in SOURCE.glob("*.py") if path.stem != "__main__"]) <= 6


def test_a_name_stands_for_one_module() -> None:
    """Check all modules except those of commands, which have the names of the commands."""
    stems = Counter(
        path.stem
        for path in modules()
        if path.stem != "__init__" and path.parent != SOURCE / "frontends" / "cli"
    )
    assert {stem for stem, count in stems.items() if count > 1} <= SAME_JOB


def test_modules_that_are_named_in_comments_and_internals_exist() -> None:
    """Check module names such as `package.module` and `package/module`, also with an attribute."""
    documents = [ROOT / "docs" / "design.md", *(ROOT / "docs" / "internals").glob("*.md")]
    known = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in modules()
    }
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*modules(), *documents)
        for name in re.findall(r"`(?:nacre[./])?(\w+[./]\w[\w./]*)`", path.read_text())
        if name.replace("/", ".").split(".")[0] in RANK_OF
        and name not in NOT_MODULES
        and not any(_named(name, level) in known for level in (2, 3))
    ]
    assert not missing


def _named(name: str, level: int) -> str:
    return ".".join(name.removesuffix(".py").replace("/", ".").split(".")[:level])


def test_exceptions_that_docstrings_name_exist() -> None:
    """Check the exception names in sentences such as `Raises Refused, OSError.`"""
    nodes = [(path, node) for path in modules() for node in ast.walk(ast.parse(path.read_text()))]
    known = {node.name for _, node in nodes if isinstance(node, ast.ClassDef | ast.alias)}
    missing = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for names in re.findall(r"Raises ((?:[A-Z]\w+,\s)*[A-Z]\w+)", ast.get_docstring(node) or "")
        for name in re.split(r",\s", names)
        if name not in known and not hasattr(builtins, name)
    ]
    assert not missing


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


@pytest.mark.parametrize(("name", "packages"), RESERVED.items())
def test_some_modules_are_for_few_packages(name: str, packages: set[str]) -> None:
    users = {
        package_of(path) for path in modules() if name in {n.split(".")[0] for n in imports(path)}
    }
    assert users <= packages


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
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_no_file_names_a_package_index() -> None:
    root = ROOT
    listed = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    hosts = ("py" + "pi.org", "pythonho" + "sted", "npm" + "js.", "index" + "-url")
    for name in listed:
        text = (root / name).read_text(errors="replace") if (root / name).is_file() else ""
        assert not [host for host in hosts if host in text], name
