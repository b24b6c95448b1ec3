"""Tests of the documentation: its examples run, and its generated parts are up to date."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nacre import settings
from nacre.contracts import registry
from tests.support.helpers import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CHECKS = (ROOT / "docs" / "guide" / "checks.md").read_text()
MCP = (ROOT / "docs" / "guide" / "mcp.md").read_text()
RPC = (ROOT / "docs" / "guide" / "rpc.md").read_text()
RUNS = (ROOT / "docs" / "guide" / "runs.md").read_text()
CONFIGURATION = (ROOT / "docs" / "guide" / "configuration.md").read_text()
CONTRACTS = [path.read_text() for path in sorted((ROOT / "docs" / "contracts").glob("*.md"))]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "code", [code for page in (README, RUNS, MCP, *CONTRACTS) for code in blocks("python", page)]
)
def test_python_in_the_pages_works_when_pasted(code: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    "session",
    [session for page in (README, CHECKS, RUNS, RPC) for session in blocks("console", page)],
)
def test_console_sessions_in_the_pages_show_what_happens(session: str, tmp_path: Path) -> None:
    session = session.replace("8391", str(free_port(range(8391, 9999))))
    commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
    expected = [line for line in session.splitlines() if not line.startswith("$ ")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = subprocess.run(
        ["bash", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout.splitlines() == expected


def test_the_settings_in_the_pages_can_be_had(tmp_path: Path) -> None:
    users, workspaces = blocks("toml", CONFIGURATION)
    (tmp_path / "config" / "nacre").mkdir(parents=True)
    (tmp_path / "config" / "nacre" / "config.toml").write_text(users)
    (tmp_path / "nacre.toml").write_text(workspaces)
    for contract in registry.contract_names():
        settings.load(contract, os.fsencode(tmp_path), {})


def test_the_two_commands_of_the_readme_are_in_the_makefile() -> None:
    (commands,) = blocks("sh")
    targets = re.findall(r"^make (\w+)", commands, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["run", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_links_between_pages_lead_somewhere() -> None:
    for page in ROOT.glob("**/*.md"):
        if ".venv" in page.parts:
            continue
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page} points to {target}"


def test_the_pages_show_the_code_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "scripts" / "draw_docs.py")
    assert spec is not None
    assert spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    for page in draw.PAGES:
        text = (ROOT / "docs" / page).read_text()
        assert draw.drawn(page, text) == text, "run make docs"
