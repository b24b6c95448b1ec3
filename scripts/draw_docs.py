"""`make docs`: generate the parts of the documentation that come from code or the case table.

Each generated part replaces the text between its two markers in a page.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

import nacre
from nacre import settings
from nacre.contracts import option_reader, registry
from nacre.engine.lifecycle import TABLE, State
from nacre.frontends.cli.main import build_parser
from nacre.prepare.interception_rules import DEFAULT_RULES
from nacre.prepare.safety.rule_selection import RULES

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS.parent))
from tests.support import case_table  # noqa: E402
from tests.support.case_table import Case  # noqa: E402

END = "<!-- end of the drawing -->\n"


def lifecycle() -> str:
    return f"{_diagram()}\n{_table()}"


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    lines += [
        f"    {state.value} --> {step.to.value}: {happening.value}"
        for (state, happening), step in TABLE.items()
        if step.to is not state
    ]
    return "\n".join([*lines, f"    {State.DONE.value} --> [*]", "```", ""])


def _table() -> str:
    rows = ["| in | when | becomes | and does |", "|---|---|---|---|"]
    for (state, happening), step in TABLE.items():
        actions = ", ".join(action.value for action in step.actions) or "waits"
        rows.append(f"| {state.value} | {happening.value} | {step.to.value} | {actions} |")
    return "\n".join([*rows, ""])


def rules() -> str:
    rows = ["| pack | rule | refuses |", "|---|---|---|"]
    rows += [f"| {rule.pack} | `{rule.id}` | {rule.summary} |" for rule in RULES.values()]
    return "\n".join([*rows, ""])


def interception() -> str:
    rows = ["| rule | tool | says |", "|---|---|---|"]
    rows += [f"| `{rule.id}` | `{rule.tool}` | {rule.message} |" for rule in DEFAULT_RULES]
    return "\n".join([*rows, ""])


def descriptions(contract: str) -> str:
    """Return the description and the arguments of each tool, as the model gets them."""
    with nacre.Tool(contract, cwd="/repo") as tool:
        specs = tool.specs()
    lines = []
    for spec in specs:
        lines += ["```text", spec["description"], "```", ""]
        lines += ["| argument | type | description for the model |", "|---|---|---|"]
        for name, each in _arguments(spec["input_schema"]):
            kind = " \\| ".join(f"`{c}`" for c in each["enum"]) if "enum" in each else each["type"]
            lines.append(f"| `{name}` | {kind} | {each['description']} |")
        lines.append("")
    return "\n".join(lines)


def _arguments(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in schema.get("properties", {}).items():
        yield f"{above}{name}", each
        yield from _arguments(each, f"{above}{name}.")


def options(contract: str) -> str:
    """Return a table of the contract's options, and how a workspace may change each option."""
    rows = ["| option | default | values | a workspace may |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(registry.options_type(contract)):
        way = settings.find_tightening(field.type)
        may = _MAY.get(way or "", "not set it")
        default = json.dumps(field.default)
        values = _values(field.type)
        if (stands_for := option_reader.find_mark(field.type, "true")) is not None:
            values += f", or `true` ({stands_for:g})"
        rows.append(f"| `{field.encode_name}` | `{default}` | {values} | {may} |")
    return "\n".join([*rows, ""])


_MAY = {
    "less": "lower it",
    "more": "add to it",
    "words": "add to it, by words",
    "limit": "lower it",
    "later": "make it stricter",
    "off": "switch it off",
}


def _values(wanted: Any) -> str:
    if hasattr(wanted, "__metadata__"):
        wanted = get_args(wanted)[0]
    inside = [each for each in get_args(wanted) if each is not type(None)]
    if inside and isinstance(inside[0], str):
        return ", ".join(f"`{each}`" for each in inside)
    if get_origin(wanted) is tuple:
        return "a list"
    if inside:
        return _values(inside[0])
    names = {float: "a number", bool: "`true`, `false`", str: "text", int: "a number"}
    return names.get(wanted, wanted.__name__)


def command_line() -> str:
    """Return a section for each command: what it does, and a table of its arguments."""
    lines = []
    for name, command in _commands().items():
        lines += [f"### nacre {name}", "", command.description or "", ""]
        rows = [_argument_row(each) for each in command._actions if each.dest != "help"]
        if rows:
            lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _commands() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser()
    (commands,) = (each for each in parser._actions if hasattr(each, "_name_parser_map"))
    return dict(commands._name_parser_map)


def _argument_row(action: argparse.Action) -> str:
    value = action.metavar or (" | ".join(action.choices) if action.choices else "")
    names = ", ".join(action.option_strings)
    shown = f"{names} {value}".strip() if action.nargs != 0 else names
    shown, text = shown.replace("|", "\\|"), (action.help or "").replace("|", "\\|")
    return f"| `{shown}` | {text} |"


def cases(contract: str) -> str:
    """Return all cases of the contract's case table as Markdown."""
    lines = []
    for section in case_table.sections(contract):
        lines += [f"### {section['title']}", ""]
        lines += [section["text"], ""] if "text" in section else []
        for case in section.get("case", []):
            lines += [f"- {case['says']}", "", *(f"  {line}" for line in _shown(case)), ""]
        for each in section.get("elsewhere", []):
            lines += [f"- {each['says']} (`{each['test']}`)", ""]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _shown(case: Case) -> Iterator[str]:
    given = {
        "in": case.get("cwd"),
        "with the options": case.get("options"),
        "with the tools": case.get("tools"),
        "with the variables": case.get("env"),
        "with the files": case.get("files"),
        "after": case.get("setup"),
        "after the calls": case.get("before"),
        "called off when there is": case.get("cancel"),
    }
    said = [
        f"{words} `{value if isinstance(value, str) else json.dumps(value)}`"
        for words, value in given.items()
        if value is not None
    ]
    yield from ([", ".join(said), ""] if said else [])
    yield "```text"
    yield f"> {case['json'] if 'json' in case else json.dumps(case['arguments'])}"
    if "reply" in case:
        yield json.dumps(case["reply"], ensure_ascii=False)
    elif "matches" in case:
        yield from f"{case['matches'].strip()}    (a regular expression)".split("\n")
    else:
        yield from case["text"].split("\n")
    yield "```"
    if case.get("is_error"):
        yield "an error"
    if case.get("details"):
        details = json.dumps(case["details"]).replace('"NULL"', "null")
        yield f"details `{details}`"


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "internals/lifecycle.md": {"lifecycle": lifecycle},
    "cli.md": {"commands": command_line},
    "guide/checks.md": {"rules": rules, "interception": interception},
    "guide/configuration.md": {
        f"options of {name}": partial(options, name) for name in registry.contract_names()
    },
    **{
        f"contracts/{name}.md": {
            "descriptions": partial(descriptions, name),
            "cases": partial(cases, name),
        }
        for name in case_table.contracts()
    },
}


def redraw(page: str, text: str) -> str:
    """Return the text of the page with its generated parts brought up to date."""
    for name, draw in PAGES[page].items():
        begin = f"<!-- drawn by scripts/draw_docs.py: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = f"{before}{begin}{draw()}{END}{after}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(redraw(page, path.read_text()))
