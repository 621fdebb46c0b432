from __future__ import annotations

from pathlib import Path

import pytest

from ctxproxy.stores import state_folder


@pytest.mark.parametrize("env", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative/path"}])
def test_stores_lie_in_the_users_state_folder(env: dict[str, str]) -> None:
    assert state_folder(env) == Path.home() / ".local" / "state" / "ctxproxy"


def test_the_state_folder_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "ctxproxy"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "ctxproxy"
