"""A strict fake LLM provider on 127.0.0.1, for tests: three wires, real bytes, a window in tokens.

    with FakeProvider(window=4096, fail_plan=["overflow"]) as provider:
        client = openai.OpenAI(base_url=provider.base_url, api_key="x")
        ...
        assert provider.calls == 2 and not provider.violations and not provider.errors

It imports nothing of ctxproxy, so that it cannot share its mistakes.
"""

from __future__ import annotations

from .answers import Answer, ToolCall, Usage
from .counting import count_request, o200k
from .faults import Fault
from .loopback import Request
from .memory import preserves_thinking
from .rules import PROFILES, Violation, item_requirements, validate
from .server import FakeProvider
from .wordings import WORDINGS, Numbers, Problem, problem_for, wire_error

__all__ = [
    "PROFILES",
    "WORDINGS",
    "Answer",
    "FakeProvider",
    "Fault",
    "Numbers",
    "Problem",
    "Request",
    "ToolCall",
    "Usage",
    "Violation",
    "count_request",
    "item_requirements",
    "o200k",
    "preserves_thinking",
    "problem_for",
    "validate",
    "wire_error",
]
