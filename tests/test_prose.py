"""Tests of the language: comments, messages, pages and `--help` use plain technical English."""

import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

from nacre.frontends.cli.main import build_parser

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
MODULES = sorted((ROOT / "src").rglob("*.py"))
# Words without a component as their subject, and words that no engineer searches for.
FORBIDDEN = re.compile(
    r"""\b(?:whoever|whomever|whatever|whichever|nobody|somebody|anybody|everybody|someone|anyone
    |shall|anew|lest|hence|thereby|of\ ours|one\ who|those\ who|by\ itself|so\ many
    |(?:of|for|to|by|from|with)\ whom|of\ which|has\ it\ done|he|she|his|her|him)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Words that an engineer searches for, and that name something in nacre.
GLOSSARY = re.findall(
    r"\w+",
    """backpressure buffer callback daemon deadline detach grace handshake idempotent lazy leftover
    lifecycle pool prewarmed race retry session subreaper warden""",
)


@functools.cache
def comments_and_strings(module: Path) -> str:
    """Return the comments and string literals of a module, docstrings included."""
    tokens = tokenize.generate_tokens(io.StringIO(module.read_text()).readline)
    return "\n".join(
        token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)
    )


def find_forbidden(text: str) -> list[str]:
    return [
        text[max(0, match.start() - 40) : match.end() + 20] for match in FORBIDDEN.finditer(text)
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_the_source_has_no_word_of_the_list(module: Path) -> None:
    assert find_forbidden(comments_and_strings(module)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_no_word_of_the_list(page: Path) -> None:
    assert find_forbidden(page.read_text()) == []


def test_the_help_has_no_word_of_the_list() -> None:
    parser = build_parser()
    (commands,) = (each for each in parser._actions if hasattr(each, "_name_parser_map"))
    for command in (parser, *commands._name_parser_map.values()):
        assert find_forbidden(command.format_help()) == []


@pytest.mark.parametrize("term", GLOSSARY)
def test_a_term_of_the_glossary_is_used(term: str) -> None:
    word = re.compile(rf"\b{term}\b", re.IGNORECASE)
    assert any(word.search(comments_and_strings(module)) for module in MODULES), "in src"
    assert any(word.search(page.read_text()) for page in PAGES), "in docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_a_page_wrap_at_100_columns(page: Path) -> None:
    """Code blocks, tables and generated parts may be wider."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- (?:drawn|printed) by.*?<!-- end", "", text, flags=re.DOTALL)
    wide = [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert wide == []


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_the_pages_for_newcomers_are_short(page: str) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= 200
