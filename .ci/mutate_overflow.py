"""Break each rule, figure and fingerprint of the overflow table in turn; the tests' vectors must notice every time.

    python .ci/mutate_overflow.py

Mutants: an entry left out; a rule that claims another class, matches everything, or loses a condition (weak, numbers,
final, provider); a figure that does not read one of its numbers. The vectors of tests/test_overflow.py are run
in-process with the mutated table. Exit 1 when a mutant survives.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from test_overflow import VECTORS, differences, run  # noqa: E402

from ctxproxy.overflow import TABLE, Table  # noqa: E402
from ctxproxy.overflow_rules import Figure, Rule  # noqa: E402

ANYTHING = r"[\s\S]*"


def broken_rules(rule: Rule) -> Iterator[tuple[str, Rule]]:
    yield "claims another class", replace(rule, says="other" if rule.says != "other" else "overflow")
    if rule.on != "figures":
        yield "matches anything", replace(rule, pattern=ANYTHING)
    if rule.weak:
        yield "is not weak", replace(rule, weak=False)
    if not rule.numbers:
        yield "reads numbers", replace(rule, numbers=True)
    if rule.final:
        yield "is not final", replace(rule, final=False)
    if rule.provider:
        yield "has no provider", replace(rule, provider=None)


def broken_figures(figure: Figure) -> Iterator[tuple[str, Figure]]:
    for role in ("window", "limit", "prompt", "bound", "total", "output", "tpm", "asked", "chars", "debt"):
        if f"(?P<{role}>" in figure.pattern:
            yield (
                f"does not read {role}",
                replace(figure, pattern=figure.pattern.replace(f"(?P<{role}>", "(?P<nothing>")),
            )


def mutants() -> Iterator[tuple[str, Table]]:
    for at, rule in enumerate(TABLE.rules):
        around = (TABLE.rules[:at], TABLE.rules[at + 1 :])
        yield f"rule {rule.name}: left out", replace(TABLE, rules=around[0] + around[1])
        for name, broken in broken_rules(rule):
            yield f"rule {rule.name}: {name}", replace(TABLE, rules=(*around[0], broken, *around[1]))
    for at, figure in enumerate(TABLE.figures):
        around_figure = (TABLE.figures[:at], TABLE.figures[at + 1 :])
        yield f"figure {figure.name}: left out", replace(TABLE, figures=around_figure[0] + around_figure[1])
        for name, broken_figure in broken_figures(figure):
            yield (
                f"figure {figure.name}: {name}",
                replace(TABLE, figures=(*around_figure[0], broken_figure, *around_figure[1])),
            )
    for at, mark in enumerate(TABLE.fingerprints):
        yield (
            f"fingerprint {mark.provider}: left out",
            replace(TABLE, fingerprints=TABLE.fingerprints[:at] + TABLE.fingerprints[at + 1 :]),
        )


def main() -> int:
    begin = time.monotonic()
    wrong = [vector for vector in VECTORS if differences(vector)]
    if wrong:
        print("the unbroken table fails:", wrong[0], differences(wrong[0]))
        return 1
    # The vectors of a rule are the likeliest to notice that it is broken: they go first.
    by_rule = {rule.name: [vector for vector in VECTORS if run(vector).rule == rule.name] for rule in TABLE.rules}
    total, survivors = 0, []
    for name, table in mutants():
        total += 1
        first = by_rule.get(name.partition(" ")[2].partition(":")[0], [])
        if not any(differences(vector, table) for vector in (*first, *VECTORS)):
            survivors.append(name)
    for name in survivors:
        print("survived:", name)
    print(f"{total} mutants, {len(survivors)} survived, {len(VECTORS)} vectors, {time.monotonic() - begin:.1f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
