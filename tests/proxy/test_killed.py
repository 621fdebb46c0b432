"""A killed proxy loses no original that a sent request mentions; tests/benchmarks/kill_nine.py does it 200 times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from killing import kill_often

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")


def test_a_proxy_killed_at_random_moments_leaves_all_that_its_requests_mention(tmp_path: Path) -> None:
    found = kill_often(tmp_path, kills=8, seed=6)
    assert found.problems == []
    assert found.kills == 8
    assert found.sent >= found.answered > 0
