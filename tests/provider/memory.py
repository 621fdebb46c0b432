"""What the provider remembers between calls: reasoning chains, stored responses, its prompt cache, and the key that
signs thinking.

Preserved thinking: a thinking block is bound to the system prompt, the tools and every message before it (and to the
blocks before it in its own message). The signature made here is a keyed hash over those in canonical form: cache
markers dropped, a string equal to its one text block, consecutive messages of one role merged, keys in any order.
A block that this server signed and whose prefix has changed is refused; a block of another server is let through
unless `strict`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any

from .answers import Answer
from .counting import count_request
from .rules import Violation, item_requirements

__all__ = ["Memory", "canonical", "preserves_thinking"]

_KEY = b"fake-provider-signing-key"
_MARK = "fakesig."
_PRESERVED = re.compile(r"(fable|mythos)-5[.-][12]|(opus|sonnet|haiku)-5[.-]5")

BOUND = "Invalid signature in thinking block. The block is bound to a different conversation"
INVALID = "Invalid `signature` in `thinking` block"


def preserves_thinking(model: str) -> bool:
    """Models that bind thinking to its prefix (Claude Fable and Mythos 5.1 and 5.2, the 5.5 family)."""
    return bool(_PRESERVED.search(model))


class Memory:
    """One provider's memory. `required` maps item ids to the reasoning item that they need."""

    def __init__(self) -> None:
        self.required: dict[str, str] = {}
        self._stored: dict[str, int] = {}
        self._seen: set[str] = set()

    def learn(self, body: Mapping[str, Any], wire: str, response: Mapping[str, Any]) -> None:
        """Remember an accepted request and its response."""
        if wire != "responses":
            return
        entries = body.get("input")
        self.required.update(item_requirements(entries if isinstance(entries, list) else []))
        self.required.update(item_requirements(response["output"]))
        usage = response["usage"]
        self._stored[response["id"]] = usage["input_tokens"] + usage["output_tokens"]

    def stored_tokens(self, body: Mapping[str, Any]) -> int:
        """Tokens of the conversation that previous_response_id names; 0 if it is not known here."""
        return self._stored.get(str(body.get("previous_response_id")), 0)

    # --- the prompt cache ---

    def cached(self, body: Mapping[str, Any], wire: str) -> tuple[int, int]:
        """(tokens read from the cache, tokens written to it) of this prompt, which is then in the cache."""
        system = {k: body[k] for k in ("tools", "system", "instructions") if k in body}
        key = "input" if wire == "responses" else "messages"
        entries = body.get(key) or []
        entries = [{"role": "user", "content": entries}] if isinstance(entries, str) else entries
        digest, tokens, read = "", 0, 0
        for part in [system, *({key: [entry]} for entry in entries)]:
            digest = hashlib.sha256((digest + _dump(canonical(part))).encode("utf-8", "replace")).hexdigest()
            tokens += count_request(dict(part), wire)
            if digest in self._seen:
                read = tokens
            self._seen.add(digest)
        if wire == "messages" and '"cache_control"' not in json.dumps(body):
            return 0, 0
        return read, (tokens - read if wire == "messages" else 0)

    # --- thinking ---

    def sign(self, body: Mapping[str, Any], answer: Answer, *, preserved: bool | None) -> str:
        """The signature of the answer's thinking block, which opens the next assistant message."""
        if answer.thinking is None:
            return ""
        text = _mac("text", answer.thinking)
        if not _binds(body, preserved):
            return f"{_MARK}{text}."
        messages = [*body.get("messages", []), {"role": "assistant", "content": []}]
        return f"{_MARK}{text}.{_mac('bound', _prefix(body, messages, len(messages) - 1, 0))}"

    def verify(self, body: Mapping[str, Any], *, preserved: bool | None, strict: bool) -> list[Violation]:
        """Check every thinking block; at most one violation, of the first bad block."""
        messages = body.get("messages") or []
        drops = (body.get("thinking") or {}).get("block_binding") or {}
        if drops.get("prefix_mismatch_behavior") == "drop_block":
            return []
        latest = max((i for i, m in enumerate(messages) if m.get("role") == "assistant"), default=-1)
        for i, message in enumerate(messages):
            content = message.get("content")
            for j, block in enumerate(content if isinstance(content, list) else []):
                if not isinstance(block, dict) or block.get("type") != "thinking":
                    continue
                where = f"messages.{i}.content.{j}"
                signature = str(block.get("signature") or "")
                text, _, bound = signature.removeprefix(_MARK).partition(".")
                if not signature.startswith(_MARK):
                    if strict:
                        return [Violation("thinking-signature", f"{where}: {INVALID}", where)]
                    continue
                if not hmac.compare_digest(text, _mac("text", str(block.get("thinking")))):
                    return [_altered(where, latest=i == latest)]
                if bound and _binds(body, preserved) and bound != _mac("bound", _prefix(body, messages, i, j)):
                    return [Violation("thinking-bound", f"{where}: {BOUND}", where)]
        return []


def _altered(where: str, *, latest: bool) -> Violation:
    if not latest:
        return Violation("thinking-signature", f"{where}: {INVALID}", where)
    text = (
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
        "These blocks must remain as they were in the original response."
    )
    return Violation("thinking-modified", f"{where}: {text}", where)


def _binds(body: Mapping[str, Any], preserved: bool | None) -> bool:
    return preserves_thinking(str(body.get("model"))) if preserved is None else preserved


def _mac(purpose: str, text: str) -> str:
    data = f"{purpose}:{text}".encode("utf-8", "surrogatepass")
    return hmac.new(_KEY, data, hashlib.sha256).hexdigest()[:32]


def _prefix(body: Mapping[str, Any], messages: list[Any], index: int, block: int) -> str:
    """Canonical text of everything before block `block` of message `index`."""
    before = [*messages[:index], {**messages[index], "content": _as_blocks(messages[index].get("content"))[:block]}]
    merged: list[list[Any]] = []
    for message in before:
        role, blocks = message.get("role"), canonical(_as_blocks(message.get("content")))
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append([role, list(blocks)])
    return _dump([canonical(_as_blocks(body.get("system"))), canonical(body.get("tools") or []), merged])


def _as_blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


def canonical(value: Any) -> Any:
    """The value without cache markers, and with string content as its text block."""
    if isinstance(value, dict):
        return {
            k: canonical(_as_blocks(v) if k == "content" and isinstance(v, str) else v)
            for k, v in value.items()
            if k != "cache_control"
        }
    return [canonical(v) for v in value] if isinstance(value, list) else value


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
