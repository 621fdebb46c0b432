"""The provider of the clients' tests, for the frameworks too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from provider import FakeProvider


@pytest.fixture(scope="session")
def _server() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.fixture
def provider(_server: FakeProvider) -> Iterator[FakeProvider]:
    """A provider with its default settings; the test must not break a rule of its wires."""
    for name in ("answer", "wording", "window", "rules", "fault"):
        setattr(_server, name, getattr(FakeProvider, name))
    _server.reset()
    _server.errors.clear()
    yield _server
    _server.release()
    assert not _server.violations
    assert not _server.errors
