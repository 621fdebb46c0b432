"""A plan in tokens: what stays of the prompt's beginning, and what was never sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from flipping import Client

from ctxproxy.budget import usage_of
from ctxproxy.cost import Weighed
from ctxproxy.effects import drive
from ctxproxy.planning import Plan, make_plan
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.weighing import pays_late, rewrite_of


@pytest.fixture
def planned() -> tuple[Any, Plan]:
    runtime = Runtime(policy=Policy(mode="observe"), window=6_000, clock=lambda: 1.0)
    client = Client("chat", flips=False)
    for _ in range(14):
        client.grow()
    call = runtime.call(api="chat", body=client.body())
    base = drive(runtime.engine.prepare(call), runtime.perform)
    plan = make_plan(runtime.engine.reader, call, base.conversation, base.info, 3_000, ("prune", "window", "facts"))
    return base, plan


def test_what_stays_is_all_before_the_first_edit(planned: tuple[Any, Plan]) -> None:
    base, plan = planned
    usage = usage_of(base.conversation, total=6_000)
    found = rewrite_of(base, plan, usage)
    first = next(i for i, (a, b) in enumerate(zip(base.sent, plan.messages, strict=False)) if a.digest != b.digest)
    assert found.kept == base.conversation.fixed.tokens + sum(m.tokens for m in base.sent[:first])
    assert (found.before, found.after, found.asked) == (usage.value, plan.tokens, 0)
    assert found.new == base.sent[-1].tokens  # the newest tool result


def test_figures_are_in_the_provider_s_measure(planned: tuple[Any, Plan]) -> None:
    base, plan = planned
    one = rewrite_of(base, plan, usage_of(base.conversation, total=6_000))
    two = rewrite_of(
        base, plan, usage_of(base.conversation, total=6_000, value=2 * base.conversation.tokens), summary=90
    )
    assert (two.before, two.after, two.new) == (2 * one.before, 2 * one.after, 2 * one.new)
    assert (two.asked, two.answered) == (two.before, 90)


def test_only_a_policy_that_says_so_puts_off() -> None:
    slow = Weighed(once=10.0, later=1.0)
    assert not pays_late(slow, Policy())
    assert pays_late(slow, replace(Policy(), payback_turns=9))
    assert not pays_late(slow, replace(Policy(), payback_turns=10))
    assert not pays_late(None, replace(Policy(), payback_turns=1))
    assert pays_late(Weighed(once=1.0, later=0.0), replace(Policy(), payback_turns=10**6))
