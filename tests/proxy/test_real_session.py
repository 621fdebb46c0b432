"""A session with the real model; tests/benchmarks/real_session.py holds longer ones, with every fault."""

from __future__ import annotations

import pytest
from faulty import Faulty, Mode
from sessions import talk

from ctxproxy.demo.server import missing, model_server

pytestmark = [pytest.mark.model, pytest.mark.skipif(bool(missing()), reason="the model server is not installed")]


@pytest.mark.parametrize("mode", ["good", "empty"])
def test_a_session_outgrows_its_window(mode: Mode) -> None:
    with model_server(n_ctx=2048) as model, Faulty(model.url, mode=mode) as server:
        found = talk(model, server, turns=16)
    assert found.problems == []
    assert found.needless == []
    assert found.turns == 16
    assert found.compactions >= 1
    assert "none" not in found.kinds
