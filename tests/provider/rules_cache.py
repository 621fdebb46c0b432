"""Rules of Anthropic's cache_control: how many markers, which order of lifetimes, on which blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .violation import Violation

__all__ = ["check_cache"]

_MOST = 4  # markers, an automatic one at the top level included


def check_cache(body: Mapping[str, Any]) -> Iterator[Violation]:
    """Markers in the order in which the API processes them: tools, system, messages, top level."""
    found = list(_markers(body))
    if len(found) > _MOST:
        text = f"A maximum of {_MOST} blocks with cache_control may be provided. Found {len(found)}."
        yield Violation("cache-count", text)
    short = False
    for at, block in found:
        ttl = (block["cache_control"] or {}).get("ttl", "5m")
        if ttl == "1h" and short:
            text = (
                f"{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control "
                "block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            )
            yield Violation("cache-ttl-order", text)
        short = short or ttl != "1h"
        kind = block.get("type")
        if kind in ("thinking", "redacted_thinking"):
            yield Violation("cache-thinking", f"{at}.{kind}.cache_control: Extra inputs are not permitted")
        elif kind == "text" and not str(block.get("text") or "").strip():
            yield Violation("cache-empty", f"{at}.text: cache_control cannot be set for empty text blocks")


def _markers(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for i, tool in enumerate(body.get("tools") or []):
        if _marked(tool):
            yield f"tools.{i}", tool
    yield from _in_blocks(body.get("system"), "system")
    for i, message in enumerate(body.get("messages") or []):
        yield from _in_blocks(message.get("content"), f"messages.{i}.content")
    if _marked(body):
        yield "cache_control", {"cache_control": body["cache_control"]}


def _in_blocks(content: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for j, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield from _in_blocks(block.get("content"), f"{where}.{j}.tool_result.content")
        if _marked(block):
            yield f"{where}.{j}", block


def _marked(value: Any) -> bool:
    return isinstance(value, dict) and value.get("cache_control") is not None
