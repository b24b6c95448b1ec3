"""Draw what the pages show of the code, between their markers (`make docs`)."""

from pathlib import Path

from nacre.engine.lifecycle import TABLE, State
from nacre.prepare.better_tools import DEFAULTS
from nacre.prepare.safety.safety import RULES

DOCS = Path(__file__).parent
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
    rows += [f"| {rule.pack} | `{rule.id}` | {rule.says} |" for rule in RULES.values()]
    return "\n".join([*rows, ""])


def interception() -> str:
    rows = ["| rule | tool | says |", "|---|---|---|"]
    rows += [f"| `{rule.id}` | `{rule.tool}` | {rule.message} |" for rule in DEFAULTS]
    return "\n".join([*rows, ""])


PAGES = {
    "design.md": {"lifecycle": lifecycle},
    "checks.md": {"rules": rules, "interception": interception},
}


def drawn(page: str, text: str) -> str:
    """The page with its drawings as they are now."""
    for name, draw in PAGES[page].items():
        begin = f"<!-- drawn by docs/draw.py: {name} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = f"{before}{begin}{draw()}{END}{after}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(drawn(page, path.read_text()))
