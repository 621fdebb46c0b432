"""The rules of the three wires, as strict as the real providers about what an editor of requests can break.

`validate` is pure. It knows nothing that is not in the request, except what the caller passes in: `required` maps the
id of a Responses item to the id of the reasoning item that led to it (`item_requirements` reads that from a request
or a response), and `version` is the anthropic-version header. What real providers tolerate is accepted: unknown
fields, call ids that repeat over turns, consecutive user messages.

Profiles: "default" (the wire's own provider), "openai", "anthropic" (both the same as default), "anthropic-old"
(thinking before a final tool call is demanded, as older servers did), "mistral", "gemini", "deepseek", "bedrock",
"strict-template" (a chat template that wants strict user/assistant alternation), "strict-args" (servers whose chat
template parses the arguments of tool calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import rules_chat, rules_messages, rules_responses
from .violation import Violation

__all__ = ["PROFILES", "Violation", "item_requirements", "validate"]

PROFILES = frozenset(
    [
        *("default", "openai", "anthropic", "anthropic-old", "mistral", "gemini", "deepseek", "bedrock"),
        *("strict-template", "strict-args"),
    ]
)

item_requirements = rules_responses.item_requirements


def validate(
    body: Mapping[str, Any],
    wire: str,
    *,
    profile: str = "default",
    required: Mapping[str, str] | None = None,
    version: str = "",
) -> list[Violation]:
    """All violations of a chat, responses or messages request, in the order of the request; [] if it is sound."""
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}")
    if wire == "chat":
        return list(rules_chat.check(body, profile))
    if wire == "responses":
        return list(rules_responses.check(body, profile, required or {}))
    if wire == "messages":
        return list(rules_messages.check(body, profile, version))
    raise ValueError(f"unknown wire {wire!r}")
