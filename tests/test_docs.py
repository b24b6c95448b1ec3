"""Tests of the documentation: its examples run, and its generated parts are up to date."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nacre import settings
from nacre.contracts import registry
from tests.support.helpers import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
}
README = PAGES["README.md"]
CONFIGURATION = PAGES["docs/guide/configuration.md"]
# The blocks of this page need the agent SDKs: tests/adapters/test_adapters.py runs them.
SDKS = "docs/guide/sdks.md"
# Blocks of the languages `text` and `mermaid` are pictures; all other blocks are checked.
LANGUAGES = {"python", "console", "json", "toml", "sh", "text", "mermaid"}


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def all_blocks(language: str) -> list[Any]:
    return [
        pytest.param(code, id=f"{name}-{number}")
        for name, page in PAGES.items()
        if name != SDKS
        for number, code in enumerate(blocks(language, page), 1)
    ]


@pytest.mark.parametrize("code", all_blocks("python"))
def test_python_in_the_pages_works_when_pasted(code: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("session", all_blocks("console"))
def test_console_sessions_in_the_pages_show_what_happens(session: str, tmp_path: Path) -> None:
    session = session.replace("8391", str(free_port(range(8391, 9999))))
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
    expected = [line for line in session.splitlines() if not line.startswith("$ ")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("code", all_blocks("json"))
def test_json_in_the_pages_can_be_parsed(code: str) -> None:
    json.loads(code)


@pytest.mark.parametrize("code", all_blocks("sh"))
def test_shell_commands_in_the_pages_are_valid_and_their_make_targets_exist(code: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", code], capture_output=True).returncode == 0
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", code, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_block_in_the_pages_has_a_language() -> None:
    for name, page in PAGES.items():
        fences = re.findall(r"^ *```(\w*)$", page, re.MULTILINE)
        assert set(fences[::2]) <= LANGUAGES, name
        assert set(fences[1::2]) <= {""}, name


def test_the_settings_in_the_pages_can_be_had(tmp_path: Path) -> None:
    users, workspaces = blocks("toml", CONFIGURATION)
    (tmp_path / "config" / "nacre").mkdir(parents=True)
    (tmp_path / "config" / "nacre" / "config.toml").write_text(users)
    (tmp_path / "nacre.toml").write_text(workspaces)
    for contract in registry.contract_names():
        settings.load(contract, os.fsencode(tmp_path), {})


def test_the_readme_sets_up_with_two_commands() -> None:
    (commands,) = blocks("sh")
    assert re.findall(r"^make (\w+)", commands, re.MULTILINE) == ["run", "test"]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the documentation site make them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for name, page in PAGES.items():
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page):
            path = ((ROOT / name).parent / target).resolve() if target else ROOT / name
            assert path.exists(), f"{name} points to {target}"
            if anchor:
                linked = PAGES[str(path.relative_to(ROOT))]
                assert anchor in anchors(linked), f"{name} points to {target}#{anchor}"


def test_the_pages_show_the_code_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "scripts" / "draw_docs.py")
    assert spec is not None
    assert spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    for page in draw.PAGES:
        text = (ROOT / "docs" / page).read_text()
        assert draw.redraw(page, text) == text, "run make docs"
