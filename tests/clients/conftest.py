"""One provider for all tests of the clients; each test starts it over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from provider import FakeProvider

# litellm is an extra; it takes one generation of the openai SDK only.
collect_ignore = [] if find_spec("litellm") else ["test_litellm.py", "test_gateway.py"]

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # for the tests that import litellm before ctxproxy


@pytest.fixture(scope="session")
def _server() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.fixture
def provider(_server: FakeProvider) -> Iterator[FakeProvider]:
    """A provider with its default settings; the test must not break a rule of its wires."""
    for name in ("answer", "wording", "window", "crlf", "chunk_bytes", "pings", "comments", "compress", "rules"):
        setattr(_server, name, getattr(FakeProvider, name))
    _server.reset()
    _server.errors.clear()
    yield _server
    _server.release()
    assert not _server.violations
    assert not _server.errors
