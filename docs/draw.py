"""Draw the lifecycle's table into docs/design.md, between its two markers (`make docs`)."""

from pathlib import Path

from nacre.engine.lifecycle import TABLE, State

DESIGN = Path(__file__).parent / "design.md"
BEGIN, END = "<!-- drawn by docs/draw.py -->\n", "<!-- end of the drawing -->\n"


def drawing() -> str:
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


def drawn(text: str) -> str:
    """The page with the drawing as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{drawing()}{END}{after}"


if __name__ == "__main__":
    DESIGN.write_text(drawn(DESIGN.read_text()))
