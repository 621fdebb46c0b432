from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.strategies.plan import compress_plan, sections
from ctxproxy.tokens import estimate_tokens

PLAN = """---
id: plan-7
wave: 2
---
# Objective
Ship the login.

# Must-Haves
- sessions expire

# Context
{context}

# Dependencies
- plan-3

# Threads
## Thread 1: token store
id: t1
verification: pytest tests/store
{notes}
### Example
```python
print("# not a heading")
```
## Thread 2: login page
verification: open /login
{notes}

# Implementation Notes
{notes}
"""
LONG = PLAN.format(context="Background line.\n" * 200, notes="We could do this in many ways.\n" * 120)


def test_a_plan_that_fits_is_returned_as_it_is() -> None:
    assert compress_plan(LONG, estimate_tokens(LONG)) is LONG


def test_what_must_stay_stays_and_the_rest_goes() -> None:
    short = compress_plan(LONG, 160)
    for kept in (
        "id: plan-7",
        "Ship the login.",
        "sessions expire",
        "plan-3",
        "Thread 1: token store",
        "verification: pytest tests/store",
        "Thread 2: login page",
        "verification: open /login",
    ):
        assert kept in short
    assert "many ways" not in short
    assert "print(" not in short
    assert estimate_tokens(short) <= 160


def test_the_gentlest_step_that_fits_is_taken() -> None:
    brief = PLAN.format(context="Short context.", notes="One note.\n" * 60)
    short = compress_plan(brief, estimate_tokens(brief) - 4)
    assert "Short context." in short
    assert "One note." in short
    assert "[code removed]" in short


def test_headings_inside_a_fence_are_text() -> None:
    titles = [s.title for s in sections("# A\n```\n# B\n```\n# C\n")]
    assert titles == ["A", "C"]


@given(st.text(alphabet="#-` \nabc:", max_size=400))
def test_sections_lose_nothing(text: str) -> None:
    joined = "".join(s.text for s in sections(text))
    assert joined.strip() == text.strip() or joined.replace("\n", "").strip() == text.replace("\n", "").strip()


@given(st.text(max_size=600), st.integers(0, 60))
def test_any_text_and_any_target_gives_a_text_that_is_not_longer(text: str, target: int) -> None:
    assert len(compress_plan(text, target)) <= len(text) + len("[code removed]\n[shortened]\n") * (1 + text.count("\n"))
