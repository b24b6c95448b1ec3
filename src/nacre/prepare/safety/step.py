"""The safety step: refuses a command that a selected safety rule matches."""

from collections.abc import Callable, Sequence

from nacre.bash.commands import Analysis
from nacre.model.caller import Caller
from nacre.model.plan import Plan
from nacre.model.refusals import Dangerous
from nacre.prepare.plan_analysis import analyze_plan, command_home
from nacre.prepare.safety.rule import RuleContext, RuleMatch, SafetyRule
from nacre.text.clean import decode


def safety_step(rules: Sequence[SafetyRule]) -> Callable[[Plan, Caller], Plan | Dangerous]:
    judge = SafetyChecker(rules)

    def step(plan: Plan, caller: Caller) -> Plan | Dangerous:
        """Refuse a plan whose script matches a safety rule."""
        return judge(analyze_plan(plan, caller), command_home(plan, caller)) or plan

    return step


class SafetyChecker:
    """Selected safety rules, indexed by the programs that they apply to."""

    def __init__(self, rules: Sequence[SafetyRule]) -> None:
        self._of_all = [
            each for each in rules if each.check_command is not None and not each.programs
        ]
        self._of_reading = [each for each in rules if each.check_analysis is not None]
        self._of_program: dict[bytes, list[SafetyRule]] = {}
        for rule in rules:
            for program in rule.programs:
                self._of_program.setdefault(program, []).append(rule)

    def __call__(self, reading: Analysis, home: bytes | None) -> Dangerous | None:
        """Return the refusal of the first safety rule that matches the script; None if no rule
        matches."""
        around = RuleContext(home=home, analysis=reading)
        for command in reading.commands:
            for rule in (*self._of_program.get(command.name or b"", ()), *self._of_all):
                assert rule.check_command is not None
                for hit in rule.check_command(command, around):
                    return _refusal(rule, hit)
        for rule in self._of_reading:
            assert rule.check_analysis is not None
            for hit in rule.check_analysis(around):
                return _refusal(rule, hit)
        return None


def _refusal(rule: SafetyRule, hit: RuleMatch) -> Dangerous:
    spans = [(word.start, word.end) for word in hit.words]
    if hit.redirect is not None:
        spans.append((hit.redirect.start, hit.redirect.end))
    return Dangerous(
        rule=rule.id,
        matched=tuple(decode(each) for each in hit.shown),
        why=hit.why,
        instead=hit.instead,
        spans=tuple(dict.fromkeys(spans)),
    )
