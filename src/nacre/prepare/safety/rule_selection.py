"""All safety rules, and the choice of them by the names of packs and rules."""

from collections.abc import Sequence
from typing import Final

from nacre.prepare.safety import disk_rules, git_rules, workspace_rules
from nacre.prepare.safety.rule import SafetyRule
from nacre.text.similar_names import did_you_mean

RULES: Final[dict[str, SafetyRule]] = {
    rule.id: rule for rule in (*disk_rules.RULES, *git_rules.RULES, *workspace_rules.RULES)
}
PACKS: Final = tuple(dict.fromkeys(rule.pack for rule in RULES.values()))


def select_rules(names: Sequence[str]) -> tuple[SafetyRule, ...]:
    """The rules of these packs and ids; `-id` takes one away. Raises ValueError."""
    rules: dict[str, SafetyRule] = {}
    if names and names[0].startswith("-"):
        raise ValueError(
            f"{names[0]} takes a rule away from nothing; name the pack first, as in disk,{names[0]}"
        )
    for name in names:
        wanted = name.removeprefix("-")
        found = {key: rule for key, rule in RULES.items() if wanted in (key, rule.pack)}
        if not found:
            near = did_you_mean(wanted, [*RULES, *PACKS])
            hint = near or f"there is {', '.join((*PACKS, *RULES))}"
            raise ValueError(f"there is no safety rule or pack {wanted!r}; {hint}")
        if name.startswith("-"):
            rules = {key: rule for key, rule in rules.items() if key not in found}
        else:
            rules |= found
    return tuple(rules.values())
