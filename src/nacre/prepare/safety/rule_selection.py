"""All safety rules, and their selection by pack name and rule id."""

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
    """Return the safety rules that these pack names and rule ids select. A pack name or rule id
    with a leading dash, such as `-disk.dd`, deselects the rules that it names. Raises ValueError
    for an unknown pack name or rule id, or if the first of `names` has a leading dash."""
    rules: dict[str, SafetyRule] = {}
    if names and names[0].startswith("-"):
        raise ValueError(
            f"{names[0]} removes a rule, but no pack comes before it; write one, such as disk"
        )
    for name in names:
        wanted = name.removeprefix("-")
        found = {key: rule for key, rule in RULES.items() if wanted in (key, rule.pack)}
        if not found:
            near = did_you_mean(wanted, [*RULES, *PACKS])
            hint = near or f"choose from {', '.join((*PACKS, *RULES))}"
            raise ValueError(f"there is no safety rule or pack {wanted!r}; {hint}")
        if name.startswith("-"):
            rules = {key: rule for key, rule in rules.items() if key not in found}
        else:
            rules |= found
    return tuple(rules.values())
