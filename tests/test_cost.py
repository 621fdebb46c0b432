"""Money: what an edit costs and saves by the prices of a model and the state of the provider's cache."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from flipping import Client
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.answers import report_headers
from ctxproxy.compaction import Compaction
from ctxproxy.cost import CacheWatch, Rewrite, replay_saving, weigh
from ctxproxy.effects import Answer, Effect, Outcome, Send, drive
from ctxproxy.models import ModelInfo, Prices, PriceTier
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.tokens.spent import Spent


def model(*, read: float, write: float, output: float, **more: Any) -> ModelInfo:
    prices = Prices(input=1.0, output=output, cache_read=read, cache_write=write, tiers=more.pop("tiers", ()))
    return ModelInfo(
        model="m", context=200_000, input_limit=None, output_limit=None, shared=True, family="x", window=200_000,
        source="catalogue", prices=prices, **more,
    )  # fmt: skip


# 150,000 tokens: summarized to 43,000 with a kept prefix of 20,000; pruned behind the first 30,000; near the end.
SUMMARIZED = Rewrite(before=150_000, after=43_000, kept=20_000, asked=150_000, answered=3_000)
EARLY = Rewrite(before=150_000, after=90_000, kept=30_000)
LATE = Rewrite(before=150_000, after=130_000, kept=120_000)


@pytest.mark.parametrize(
    ("read", "write", "output", "calls"),
    [
        (0.05, 1.25, 5, (9.4, 24, 12)),
        (0.1, 1.25, 5, (5.3, 11.5, 5.8)),
        (0.1, 1, 6, (5.0, 9, 4.5)),
        (0.033, 1, 3, (10.2, 29, 15)),
    ],
)
def test_break_even_is_that_of_the_published_prices(read: float, write: float, output: float, calls: Any) -> None:
    info = model(read=read, write=write, output=output)
    for rewrite, expected in zip((SUMMARIZED, EARLY, LATE), calls, strict=True):
        weighed = weigh(info, rewrite, cache="warm")
        assert weighed is not None
        assert weighed.once > 0
        assert weighed.payback + 1 == pytest.approx(expected, rel=0.03)  # the edited request itself is the first


def test_a_cold_prefix_saves_at_once_and_so_does_a_provider_without_a_cache() -> None:
    info = model(read=0.1, write=1.25, output=5)
    for cache in ("cold", "none"):
        weighed = weigh(info, EARLY, cache=cache)
        assert weighed is not None
        assert weighed.once < 0
        assert weighed.payback == 0


def test_a_prefix_under_the_smallest_cacheable_one_is_not_counted_as_kept() -> None:
    info = model(read=0.1, write=1.25, output=5)
    small = replace(EARLY, kept=900)
    plain, strict = (weigh(i, small, cache="warm") for i in (info, replace(info, min_cache_tokens=1_024)))
    assert plain is not None
    assert strict is not None
    assert strict.once - plain.once == pytest.approx(900 * (1.25 - 0.1) / 1e6)


def test_getting_under_a_price_step_counts() -> None:
    step = PriceTier(above=100_000, input=5.0, output=5.0, cache_read=0.5, cache_write=6.25)
    flat, stepped = model(read=0.1, write=1.25, output=5), model(read=0.1, write=1.25, output=5, tiers=(step,))
    one, other = weigh(flat, EARLY, cache="warm"), weigh(stepped, EARLY, cache="warm")
    assert one is not None
    assert other is not None
    assert other.later > one.later
    assert other.payback < one.payback


def test_without_prices_nothing_is_said() -> None:
    info = replace(model(read=1, write=1, output=1), prices=None)
    assert weigh(info, EARLY, cache="warm") is None
    assert replay_saving(info, before=10, after=5, cache="warm") is None


def test_a_replay_saves_what_could_have_been_sent() -> None:
    info = model(read=0.1, write=1.25, output=5)
    assert replay_saving(info, before=100_000, after=40_000, cache="warm") == pytest.approx(60_000 * 0.1 / 1e6)
    assert replay_saving(info, before=900_000, after=40_000, cache="warm") == pytest.approx(160_000 * 0.1 / 1e6)
    assert replay_saving(info, before=30_000, after=40_000, cache="warm") == 0


tokens = st.integers(0, 200_000)


@given(tokens, tokens, tokens, tokens, st.sampled_from(["warm", "cold", "none"]))
def test_an_edit_that_changes_nothing_costs_nothing_and_any_edit_has_figures(
    before: int, after: int, kept: int, new: int, cache: Any
) -> None:
    info = model(read=0.1, write=1.25, output=5)
    same = weigh(info, Rewrite(before=before, after=before, kept=before - min(new, before), new=new), cache=cache)
    assert same is not None
    assert same.once == pytest.approx(0, abs=1e-9)
    assert same.later == pytest.approx(0, abs=1e-9)
    any_ = weigh(info, Rewrite(before=before, after=after, kept=min(kept, after), new=new), cache=cache)
    assert any_ is not None
    assert any_.payback >= 0


def test_the_state_of_the_cache_is_what_the_last_answer_said() -> None:
    watch = CacheWatch()
    assert watch.state("t", "m", now=1_000) == "cold"
    watch.note("t", "m", Spent(input=5_000), now=1_000)
    assert watch.state("t", "m", now=1_001) == "none"  # a model that never reported a cache
    watch.note("t", "m", Spent(input=5_000, written=5_000), now=1_010)
    assert watch.state("t", "m", now=1_020) == "warm"
    assert watch.state("another", "m", now=1_020) == "cold"
    assert watch.state("t", "m", now=1_010 + 301) == "cold"
    watch.note("t", "m", Spent(input=5_000), now=1_400)
    assert watch.state("t", "m", now=1_401) == "cold"


# --- through the engine


class Anthropic:
    """Answers with cache figures as Anthropic does: all but the newest message is read."""

    def __init__(self, *, cached: bool = True, **policy: Any) -> None:
        self.now = 1_000.0
        self.runtime = Runtime(
            policy=Policy(summaries=False, **policy), window=6_000, clock=lambda: self.now, secret=b"s" * 32
        )
        self.cached = cached

    def __call__(self, effect: Effect) -> Any:
        return Answer(status=200) if isinstance(effect, Send) else self.runtime.perform(effect)

    def turn(self, client: Client) -> Outcome:
        self.now += 10
        call = self.runtime.call(api="messages", body=client.body(), account="a", upstream="http://u")
        outcome: Outcome = drive(self.runtime.engine.run(call), self)
        assert outcome.report is not None
        size = outcome.report.tokens_after
        usage = {"input_tokens": 10, "cache_read_input_tokens": size - 110, "cache_creation_input_tokens": 100}
        self.runtime.engine.observe(call, outcome, usage if self.cached else {"input_tokens": size, "output_tokens": 1})
        return outcome


def turns(provider: Anthropic, count: int) -> list[Outcome]:
    client = Client("messages", flips=False)
    found: list[Outcome] = []
    for _ in range(count):
        client.grow()
        found.append(provider.turn(client))
    return found


def compactions(outcomes: list[Outcome]) -> list[Compaction]:
    return [o.compaction for o in outcomes if o.compaction is not None]


def test_a_compaction_of_a_warm_prompt_is_a_loss_at_first_and_each_replay_a_gain() -> None:
    outcomes = turns(Anthropic(), 24)
    first = next(i for i, o in enumerate(outcomes) if o.compaction is not None)
    compaction = outcomes[first].compaction
    assert compaction is not None
    assert compaction.cost_saved is not None
    assert compaction.cost_saved < 0
    assert compaction.payback is not None
    assert compaction.payback > 0
    report, later = outcomes[first].report, outcomes[first + 1].report
    assert report is not None
    assert report.cost_saved == compaction.cost_saved
    assert json.loads(json.dumps(report.as_dict()))["cost_saved"] == compaction.cost_saved
    assert later is not None
    assert later.replayed
    assert later.cost_saved is not None
    assert later.cost_saved > 0


def test_the_response_headers_say_it_too() -> None:
    headers = [report_headers(o.report, id="x", overhead_ms=1.0) for o in turns(Anthropic(), 24)]
    told = [float(h["x-ctxproxy-cost-saved"]) for h in headers if "x-ctxproxy-cost-saved" in h]
    assert min(told) < 0 < max(told)
    assert "x-ctxproxy-cost-saved" not in headers[0]


def test_without_a_cache_a_compaction_saves_at_once() -> None:
    (compaction, *_) = compactions(turns(Anthropic(cached=False), 24))
    assert compaction.cost_saved is not None
    assert compaction.cost_saved > 0


def test_by_default_cost_puts_nothing_off() -> None:
    assert all(c.level == "COMPRESS" for c in compactions(turns(Anthropic(), 16))[:1])


def test_one_that_pays_too_late_is_put_off_until_the_window_forces_it() -> None:
    outcomes = turns(Anthropic(payback_turns=1), 24)
    found = compactions(outcomes)
    assert found
    assert all(c.level in ("EMERGENCY", "OVERFLOW") for c in found)
    passed = [o.report for o in outcomes if o.report is not None and o.report.level == "COMPRESS"]
    assert passed
    assert all(r.tokens_after <= 6_000 for r in passed)


def test_one_that_pays_in_time_is_not_put_off() -> None:
    found = compactions(turns(Anthropic(payback_turns=1_000), 24))
    assert found == compactions(turns(Anthropic(), 24))
