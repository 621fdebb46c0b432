"""Each client that is installed, in a scripted session of several windows; see the package's docstring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from real_clients.clients import CLIENTS, Client
from real_clients.session import HEADER, Result, run_session

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    print("\n" + "\n".join([HEADER, *lines]))


def session(client: Client, folder: Path, table: list[str], *, known: bool) -> Result:
    if client.path is None:
        pytest.skip(f"{client.name} is not installed ({client.install})")
    result = run_session(client, folder / "session", known=known)
    table.append(result.line())
    print("\n" + result.line())
    told = f"exit {result.code}\n{result.output[-2000:]}\n{result.said[-2000:]}"
    assert result.errors == 0, told
    assert result.invalid == 0
    assert "fault" not in result.said, told
    assert result.windows >= 4, told
    assert result.compactions, told
    return result


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_session_of_several_windows(client: Client, tmp_path: Path, table: list[str]) -> None:
    session(client, tmp_path, table, known=True)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_session_whose_window_is_learned_from_refusals(client: Client, tmp_path: Path, table: list[str]) -> None:
    result = session(client, tmp_path, table, known=False)
    # A refusal of input and output together already states the window; then nothing had to be cut for it.
    assert result.refused or result.compactions["retry"]
