"""The APIs that ctxproxy reads and edits. A new wire is one file here and one line in `WIRES`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ctxproxy.conversation import Api
from ctxproxy.wire.anthropic_messages import AnthropicMessages
from ctxproxy.wire.base import Reader, Wire
from ctxproxy.wire.openai_chat import OpenAIChat
from ctxproxy.wire.openai_responses import OpenAIResponses

__all__ = ["PATHS", "WIRES", "Reader", "Wire", "detect"]

WIRES: Mapping[Api, Wire] = MappingProxyType(
    {wire.api: wire for wire in (OpenAIChat(), OpenAIResponses(), AnthropicMessages())}
)

# A request's API is known by the end of its path, so that any base path works.
PATHS: Mapping[str, Api] = MappingProxyType(
    {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
)


def detect(path: str) -> Api | None:
    """The API of a request path, None where it is not one of ours."""
    for end, api in PATHS.items():
        if path.endswith(end) and api in WIRES:
            return api
    return None
