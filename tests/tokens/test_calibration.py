from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.tokens.calibration import (
    FACTOR_RANGE,
    Anchor,
    Calibration,
    Measurement,
    judge,
    predict,
)


def anchor(*, tokens: int, counted: int, messages: int = 1, prefix: bytes = b"p", model: str = "") -> Anchor:
    return Anchor(prefix=prefix, messages=messages, tokens=tokens, counted=counted, model=model)


# --- anchors ---


def test_an_anchor_holds_for_what_continues_its_prefix():
    known = anchor(tokens=1, counted=1, messages=2, prefix=b"two")
    assert known.matches([b"one", b"two"])
    assert known.matches([b"one", b"two", b"three"])
    assert not known.matches([b"one"])
    assert not known.matches([b"one", b"other", b"two"])
    assert not known.matches([])


def test_an_anchor_of_another_model_does_not_hold():
    known = anchor(tokens=1, counted=1, model="a")
    assert known.matches([b"p"], model="a")
    assert not known.matches([b"p"], model="b")


def test_nothing_new_is_what_the_provider_said():
    assert predict(900, anchor=anchor(tokens=1234, counted=900)) == Measurement(value=1234, margin=8, basis="anchored")


def test_what_is_new_comes_on_top_and_widens_the_margin():
    near = predict(1000, anchor=anchor(tokens=1234, counted=900), margin=0.1)
    far = predict(5000, anchor=anchor(tokens=1234, counted=900), margin=0.1)
    assert near.value == 1334
    assert far.value == 5334
    assert near.margin < far.margin


def test_the_basis_says_where_a_figure_comes_from():
    assert predict(1000, exact=True).basis == "counted"
    assert predict(1000, margin=0.1).basis == "estimated"
    assert predict(1000, exact=True, anchor=anchor(tokens=1, counted=1)).basis == "anchored"


def test_media_and_tools_widen_the_margin():
    plain = predict(10_000, margin=0.05)
    assert predict(10_000, margin=0.05, media=2000).margin > plain.margin
    assert predict(10_000, margin=0.05, tools=2000).margin > plain.margin


# --- learning ---


def talk(
    *,
    factor: float = 1.0,
    hidden: int = 0,
    drops_tools: bool = False,
    tools: int = 3000,
    margin: float = 0.15,
    turns: int = 12,
    noise: float = 0.03,
    start: Calibration | None = None,
    seed: int = 1,
) -> tuple[Calibration, list[float], list[str]]:
    """A conversation against a server with these habits: calibration, relative errors and verdicts by turn."""
    rand = random.Random(seed)
    known, held = start or Calibration(), None
    counted = tools + 600
    reported = factor * 600 + hidden + (0 if drops_tools else factor * tools)
    errors: list[float] = []
    verdicts: list[str] = []
    for _ in range(turns):
        new = rand.randrange(200, 4000)
        counted += new
        reported += new * factor * (1 + rand.uniform(-noise, noise))
        said = round(reported)
        errors.append(predict(counted, calibration=known, anchor=held, margin=margin, tools=tools).value / said - 1)
        verdicts.append(judge(known, counted=counted, reported=said, anchor=held, tools=tools))
        known = known.observe(counted=counted, reported=said, anchor=held, margin=margin, tools=tools)
        held = anchor(tokens=said, counted=counted)
    return known, errors, verdicts


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.5, 2.2])
@pytest.mark.parametrize("hidden", [0, 900])
@pytest.mark.parametrize("drops_tools", [False, True])
def test_warm_predictions_are_near(factor: float, hidden: int, drops_tools: bool):
    known, errors, verdicts = talk(factor=factor, hidden=hidden, drops_tools=drops_tools)
    assert "truncated" not in verdicts
    assert sorted(map(abs, errors[2:]))[len(errors) // 2] < 0.03
    assert abs(errors[-1]) < 0.02
    assert abs(known.recent / factor - 1) < 0.12


def test_a_server_that_drops_tools_is_learned_and_not_taken_for_truncation():
    known, errors, verdicts = talk(drops_tools=True)
    assert set(verdicts) <= {"used", "small"}
    assert known.dropped > 0.8
    assert errors[0] > 0.3
    _, later, _ = talk(drops_tools=True, start=known, seed=2)
    assert abs(later[0]) < 0.1


def test_dropped_tools_do_not_lower_a_request_without_tools():
    known, _, _ = talk(drops_tools=True)
    assert predict(10_000, calibration=known).value >= 9_000


def test_what_the_server_adds_is_learned_apart_from_the_factor():
    known, _, _ = talk(hidden=900, margin=0.0, noise=0.0, tools=0)
    assert abs(known.factor - 1) < 0.01
    assert 800 < known.additive < 1000


def test_an_exact_counter_is_believed_over_a_single_response():
    known = Calibration().observe(counted=10_000, reported=10_800, margin=0.0)
    assert abs(known.factor - 1) < 0.02


def test_the_factor_of_new_content_leads_and_the_model_keeps_its_own():
    known, _, _ = talk(factor=1.0, turns=30, margin=0.1)
    changed, _, _ = talk(factor=1.6, turns=4, margin=0.1, start=known, seed=3)
    assert changed.recent > changed.factor
    assert changed.recent > 1.2


# --- what is not learned ---


def test_small_prompts_teach_nothing():
    known = Calibration()
    assert judge(known, counted=200, reported=390) == "small"
    assert known.observe(counted=200, reported=390) == known


@pytest.mark.parametrize(("counted", "reported"), [(0, 10), (10, 0), (1000, -5)])
def test_figures_that_cannot_be(counted: int, reported: int):
    known = Calibration()
    assert judge(known, counted=counted, reported=reported) == "invalid"
    assert known.observe(counted=counted, reported=reported) == known


def test_a_prompt_that_stays_pinned_while_the_conversation_grows_was_cut():
    held = anchor(tokens=4096, counted=5000)
    assert judge(Calibration(), counted=9000, reported=4096, anchor=held) == "truncated"
    assert judge(Calibration(), counted=9000, reported=4000, anchor=held) == "truncated"
    assert judge(Calibration(), counted=9000, reported=8000, anchor=held) == "used"


def test_a_first_prompt_far_below_what_was_sent_was_cut():
    assert judge(Calibration(), counted=20_000, reported=4096, tools=2000) == "truncated"
    assert judge(Calibration(), counted=6_000, reported=4096, tools=2000) == "used"


def test_a_cut_prompt_teaches_nothing_and_takes_back_what_it_may_have_taught():
    known = Calibration().observe(counted=9_000, reported=4_096, tools=5_000)
    assert known.dropped > 0.5
    after = known.observe(counted=13_000, reported=4_096, tools=5_000, anchor=anchor(tokens=4096, counted=9000))
    assert after.dropped == 0
    assert after.factor == known.factor


def test_a_picture_among_what_is_new_does_not_move_the_factor():
    known, _, _ = talk(turns=3)
    held = anchor(tokens=10_000, counted=10_000)
    assert known.observe(counted=13_000, reported=20_000, anchor=held, media=2_000).factor == known.factor
    before = Anchor(prefix=b"p", messages=1, tokens=10_000, counted=10_000, media=2_000)
    assert known.observe(counted=13_000, reported=14_000, anchor=before, media=2_000).factor != known.factor


def test_a_server_that_drops_tool_calls_is_learned():
    known, held = Calibration(), anchor(tokens=2_000, counted=2_000)
    for turn in range(1, 5):
        counted, calls, reported = 2_000 + 1_300 * turn, 1_000 * turn, 2_000 + 300 * turn
        assert judge(known, counted=counted, reported=reported, anchor=held, calls=calls) == "used"
        known = known.observe(counted=counted, reported=reported, anchor=held, calls=calls, margin=0.1)
        held = Anchor(prefix=b"p", messages=turn, tokens=reported, counted=counted, calls=calls)
    assert known.calls_dropped > 0.9
    next_value = predict(held.counted + 1_300, calibration=known, anchor=held, calls=held.calls + 1_000).value
    assert abs(next_value - (held.tokens + 300)) < 60
    assert predict(held.counted + 1_300, calibration=known, anchor=held, calls=held.calls).value > held.tokens + 1_000


def test_a_template_without_tools_is_taken_to_know_no_calls_either():
    known = Calibration().observe(counted=3_000, reported=1_000, tools=2_000, margin=0.1)
    assert known.calls_dropped == known.dropped > 0.9


def test_a_conversation_that_shrank_does_not_move_the_factor():
    known, _, _ = talk(turns=3)
    held = anchor(tokens=50_000, counted=50_000)
    assert known.observe(counted=10_000, reported=9_000, anchor=held).factor == known.factor


@given(
    st.lists(
        st.tuples(
            st.integers(-10, 2_000_000),
            st.integers(-10, 4_000_000),
            st.booleans(),
            st.sampled_from([0.0, 0.1, 0.6]),
            st.integers(0, 50_000),
        ),
        max_size=20,
    )
)
def test_no_history_breaks_the_bounds(history: list[tuple[int, int, bool, float, int]]):
    known, held = Calibration(), None
    for counted, reported, anchored, margin, tools in history:
        known = known.observe(
            counted=counted, reported=reported, anchor=held if anchored else None, margin=margin, tools=tools
        )
        held = anchor(tokens=reported, counted=counted)
        for factor in (known.factor, known.recent):
            assert FACTOR_RANGE[0] <= factor <= FACTOR_RANGE[1]
        assert 0 <= known.dropped <= 1
        assert all(map(math.isfinite, (known.additive, known.spread, known.weight)))
        for place in (None, held):
            found = predict(1000, calibration=known, anchor=place, margin=margin)
            assert found.value >= 1
            assert found.margin >= 0
