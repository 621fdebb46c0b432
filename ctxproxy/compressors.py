"""Single compressions by name, for lists of messages and texts of your own: windows, summaries, priorities, outputs.

They are stateless and count as `estimate_tokens` does unless told otherwise. No tool call is parted from its result:
what is kept or dropped are whole exchanges. The proxy, the clients, `compact` and `Session` compose the same steps by
measured tokens, and remember what they did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxproxy.conversation import Exchange, Message, exchanges, texts_of, turns
from ctxproxy.gate import CompressResult
from ctxproxy.ledger import MemoryArchive
from ctxproxy.messages import ask, plain
from ctxproxy.policy import FreshTail
from ctxproxy.rawjson import load, replace
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.facts import digest
from ctxproxy.strategies.passages import Passage
from ctxproxy.strategies.prioritize import RULES, Rule, score, scores
from ctxproxy.strategies.summarize import SECTIONS
from ctxproxy.strategies.truncate import preview
from ctxproxy.tokens import estimate_tokens
from ctxproxy.wire import WIRES

__all__ = [
    "TruncatedResult",
    "calculate_fresh_tail_budget",
    "calculate_priority_score",
    "prioritized_compress",
    "prune_tool_outputs",
    "sliding_window_compress",
    "summarize_compress",
    "truncate_tool_output",
]

Count = Callable[[str], int]


def sliding_window_compress(
    history: Iterable[Any],
    keep_recent: int = 20,
    *,
    preserve_checkpoints: bool = True,
    preserve_decisions: bool = True,
    api: str = "chat",
    count: Count = estimate_tokens,
) -> CompressResult:
    """Keep the newest `keep_recent` messages (more where an exchange begins before them), archive the older ones.

    System messages stay, and checkpoints and decisions of the user where they are preserved.
    """
    given, messages = _read(history, api)
    if len(given) <= keep_recent:
        return CompressResult(kept=tuple(given))

    def stays(group: Exchange) -> bool:
        points = scores(messages, group)
        return (
            group.stop > len(given) - keep_recent
            or messages[group.start].role in ("system", "developer")
            or (preserve_checkpoints and points == 100)
            or (preserve_decisions and points == 90)
        )

    return _split(given, messages, stays, count, "archived")


def prioritized_compress(
    history: Iterable[Any],
    target_tokens: int,
    *,
    rules: Sequence[Rule] = RULES,
    api: str = "chat",
    count: Count = estimate_tokens,
) -> CompressResult:
    """Keep the exchanges with the highest scores within `target_tokens`, in their order; of equals the newer ones."""
    given, messages = _read(history, api)
    sizes = [count(str(message)) for message in given]
    groups = sorted(exchanges(messages), key=lambda g: (-scores(messages, g, rules), -g.start))
    chosen: set[Exchange] = set()
    used = 0
    for group in groups:
        size = sum(sizes[i] for i in group)
        if used + size <= target_tokens:
            chosen.add(group)
            used += size
    return _split(given, messages, lambda group: group in chosen, count, "discarded")


def summarize_compress(
    history: Iterable[Any],
    summary_window: int = 30,
    *,
    summarize: Callable[[Sequence[Any]], str] | None = None,
    enabled: bool = True,
    min_messages: int = 30,
    target_length: int = 1_000,
    api: str = "chat",
    count: Count = estimate_tokens,
) -> CompressResult:
    """Put a summary in the place of all but the newest half of `summary_window` messages.

    Args:
        summarize: makes the text of the messages that go, with a model for one; notes of their facts by default.
        min_messages: with fewer messages nothing is done.
        target_length: tokens of the notes.
    """
    given, messages = _read(history, api)
    if not enabled or len(given) < min_messages or len(given) <= summary_window:
        return CompressResult(kept=tuple(given))
    edge = len(given) - summary_window // 2
    head = next((i for i, m in enumerate(messages) if m.role not in ("system", "developer")), 0)
    gone = [i for group in exchanges(messages) if group.stop <= edge for i in group if i >= head]
    if not gone:
        return CompressResult(kept=tuple(given))
    old = [given[i] for i in gone]
    text = summarize(old) if summarize is not None else _notes([(i, messages[i]) for i in gone], target_length, count)
    summary = f"## History Summary (Messages {gone[0] + 1}-{gone[-1] + 1})\n\n{text.strip()}\n"
    kept = [*given[:head], {"role": "user", "content": summary}, *given[gone[-1] + 1 :]]
    saved = sum(count(str(message)) for message in old) - count(summary)
    return CompressResult(kept=tuple(kept), archived=tuple(old), summary=summary, tokens_saved=saved)


def calculate_priority_score(message: Any, *, rules: Sequence[Rule] = RULES) -> int:
    """Points of a message: checkpoint 100, user decision 90, error 80, code 70, file 60, progress 50, routine 30."""
    fields: Any = plain(message)
    return score(str(fields.get("role", "")), str(fields.get("content", "")), rules)


def calculate_fresh_tail_budget(context_window: int, *, reserved: int = 0, tail: FreshTail = FreshTail()) -> int:
    """Tokens of the newest messages that stay verbatim: 25 % of what is usable, at least 2,000 and at most 8,000.

    `reserved` tokens of the window are not usable. In a small window the tail is at most 40 % of what is usable.
    """
    usable = max(0, context_window - reserved)
    return tail.budget(usable=usable, left=usable)


def prune_tool_outputs(
    messages: Iterable[Any],
    protected_turns: int = 2,
    prune_threshold: int = 0,
    *,
    api: str = "chat",
    protected_tools: Sequence[str] = (),
    count: Count = estimate_tokens,
) -> list[Any]:
    """The messages with stubs in the place of tool outputs older than the last `protected_turns` turns.

    Every call keeps a result. Outputs go from the newest backward; nothing is done unless that saves at least
    `prune_threshold` tokens. Messages that stay are the same objects.
    """
    given, read = _read(messages, api)
    starts = [start for start, _ in turns(read)]
    barrier = len(read) if not protected_turns else starts[-protected_turns] if len(starts) >= protected_turns else 0
    names = {p.id: p.name for m in read for p in m.of("tool_call") if p.id}
    saved, made = 0, list(given)
    for i in range(barrier - 1, -1, -1):
        raw, texts = read[i].raw, texts_of(read[i])
        for part, text in zip(read[i].parts, texts, strict=True):
            stub = f"[old output removed: {count(text):,} tokens]"
            named = part.name or names.get(part.id or "")
            if part.kind != "tool_result" or named in protected_tools or count(text) <= count(stub):
                continue
            raw = replace(raw, part.path, b'"' + stub.encode() + b'"')
            saved += count(text) - count(stub)
        if raw is not read[i].raw:
            made[i] = load(raw)
    return made if saved >= max(1, prune_threshold) else list(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedResult:
    """A tool output, cut or whole. `content` is what to send; `path` holds the full text where it was cut."""

    content: str
    truncated: bool
    path: Path | None = None
    hint: str = ""
    tokens: int = 0
    tokens_saved: int = 0


def truncate_tool_output(
    output: str, max_tokens: int = 2_000, *, folder: str | Path, count: Count = estimate_tokens
) -> TruncatedResult:
    """An output over `max_tokens` as a preview of its beginning and end; the full text is a file in `folder`.

    The file is readable for this user only and named by its content; nothing deletes it.

    Raises:
        OSError: it can't be written; then nothing is lost either.
    """
    tokens = count(output)
    if tokens <= max_tokens:
        return TruncatedResult(content=output, truncated=False, tokens=tokens)
    data = output.encode("utf-8", "surrogateescape" if output.isascii() else "surrogatepass")
    folder = Path(folder).expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{hashlib.blake2b(data, digest_size=12).hexdigest()}.txt"
    if not path.exists():
        part = path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(data)
        part.replace(path)
    hint = f" The full output is in {path}."
    content = preview(output, limit=max_tokens, count=count, where=lambda _: hint)
    return TruncatedResult(
        content=content, truncated=True, path=path, hint=hint.strip(), tokens=tokens,
        tokens_saved=tokens - count(content),
    )  # fmt: skip


def _read(history: Iterable[Any], api: str) -> tuple[list[Any], tuple[Message, ...]]:
    """The messages as given and as read.

    Raises:
        WireFormatError: a message is not of that API.
    """
    asked = ask(history, api=api)
    runtime = Runtime(archive=MemoryArchive(max_bytes=1))
    return list(asked.given), runtime.engine.reader.read(asked.body, WIRES[api]).messages


def _split(
    given: list[Any], messages: Sequence[Message], stays: Callable[[Exchange], bool], count: Count, name: str
) -> CompressResult:
    kept = {i for group in exchanges(messages) if stays(group) for i in group}
    gone = tuple(message for i, message in enumerate(given) if i not in kept)
    return CompressResult(
        kept=tuple(message for i, message in enumerate(given) if i in kept),
        tokens_saved=sum(count(str(message)) for message in gone),
        **{name: gone},  # pyright: ignore[reportArgumentType]
    )


def _notes(gone: Sequence[tuple[int, Message]], budget: int, count: Count) -> str:
    """Facts of the messages under the headings of a summary, without a model."""
    passages = [
        Passage(index=i, role=m.role, kind=part.kind, name=part.name, text=text, error=part.error)
        for i, m in gone
        for part, text in zip(m.parts, texts_of(m), strict=True)
        if part.kind in ("text", "tool_call", "tool_result") and text.strip()
    ]
    chosen: dict[str, list[Passage]] = {name: [] for name in SECTIONS}
    for passage in passages:
        chosen[_SECTION.get(score(passage.role, passage.text), "Critical Context")].append(passage)
    room = max(16, budget // max(1, sum(bool(found) for found in chosen.values())) - 12)
    return "\n\n".join(
        f"### {name}\n{(digest(found, budget=room, count=count) if found else '') or '- none'}"
        for name, found in chosen.items()
    )


_SECTION = {90: "Decisions Made", 80: "Errors", 70: "Files Modified", 60: "Files Modified"}
