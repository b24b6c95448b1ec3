"""Fuzzer for the decisions that nacre makes before a command runs.

    python -m tests.support.fuzz SEED INPUTS

Prints the slowest input. If an input raises an exception, the program prints that input and ends.
"""

import random
import sys
import time

from nacre.contracts import registry
from nacre.model.caller import Caller
from nacre.prepare.decide import decide
from tests.bash.test_analyze import soup
from tests.support import corpus

TOOLS = ("read", "search", "find", "edit", "write")


def fuzz(seed: int, inputs: int) -> float:
    """Return the longest processor time of one decision, in seconds."""
    generator = random.Random(seed)
    caller = Caller(cwd=b"/tmp", env={b"HOME": b"/home/me", b"A_TOKEN": b"x"}, tools=TOOLS)
    checks = [
        registry.build_checks("pi", {"intercept": "warn", "safety": "disk,git,workspace"}),
        registry.build_checks("nacre", {}),
        registry.build_checks("phoenix", {}),
    ]
    known = corpus.commands()
    worst = (0.0, b"")
    for number in range(inputs):
        text = _text(generator, known)
        each = checks[number % len(checks)]
        began = time.process_time()
        try:
            decide(each.plan(text, caller), each.steps, caller)
        except BaseException:
            print(f"seed {seed}, input {number}: {text!r}", file=sys.stderr)
            raise
        worst = max(worst, (time.process_time() - began, text))
    print(f"{inputs} inputs, the slowest took {worst[0] * 1e3:.1f} ms: {worst[1][:200]!r}")
    return worst[0]


def _text(generator: random.Random, known: list[bytes]) -> bytes:
    """Return random text, or a real command with a part removed, repeated or inserted."""
    kind = generator.randrange(4)
    if kind == 0:
        return soup(generator).encode()
    text = generator.choice(known)
    start, end = sorted(generator.choices(range(len(text) + 1), k=2))
    if kind == 1:
        return text[:start] + text[end:]
    if kind == 2:
        return text[:end] + text[start:]
    return text[:start] + soup(generator).encode()[:20] + text[start:]


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), int(sys.argv[2]))
