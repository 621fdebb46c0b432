"""Is this answer a context overflow? One pure entry point, `classify`; the knowledge is the table in `overflow_rules`.

The order of checks: only inside an error envelope, a failed stream event or a stop reason; rate limits and other look-alikes
veto; then sentences and codes; last the numbers decide, because most wordings are shared by "the prompt is too long" (compact)
and "prompt and max_tokens together are too long" (lower max_tokens). No I/O, no clock, and no input makes it raise.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, cast

from ctxproxy.envelope import Finding, Stop, unwrap
from ctxproxy.overflow_rules import FIGURES, FINGERPRINTS, HEADERS, RULES, VOCABULARY, Figure, Fingerprint, Rule

__all__ = ["TABLE", "Kind", "Sent", "Table", "Verdict", "classify", "classify_line"]

Kind = Literal["token_overflow", "output_too_long", "payload_too_large", "rate_limit", "other"]
Requested = Literal["prompt", "total", "prompt_lower_bound"]

# A stated lower bound with so small a max_tokens leaves no room that is worth a resend (vLLM "at least N input tokens").
SMALL_OUTPUT = 1024
EDGE = 0.99  # an answer that fills this share of the window was ended by it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the request held, as far as its sender knows: its measured size, its max_tokens, the model's window (tokens)."""

    tokens: int | None = None
    max_tokens: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an answer is, and what it states. Counts are tokens as the provider gives them; None: not stated.

    `requested_kind` says what `requested_tokens` counts; `prompt_tokens` and `total_tokens` are kept apart as well.
    `limit_is_input`: `context_window` is a limit of the prompt alone. `room_tokens`: the output that still fits beside the
    prompt (output_too_long). `tpm_limit`: a tokens-per-minute ceiling that this request alone exceeds, so waiting is no cure.
    `answered`: the verdict comes from the stop of a successful answer, which stays valid. `rule` names the matched rule.
    """

    kind: Kind
    model: str | None = None
    context_window: int | None = None
    limit_is_input: bool = False
    requested_tokens: int | None = None
    requested_kind: Requested | None = None
    max_tokens: int | None = None
    prompt_tokens: int | None = None
    total_tokens: int | None = None
    room_tokens: int | None = None
    tpm_limit: int | None = None
    answered: bool = False
    provider: str | None = None
    rule: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rules to apply. Tests and evaluations pass a table of their own."""

    rules: tuple[Rule, ...] = RULES
    figures: tuple[Figure, ...] = FIGURES
    fingerprints: tuple[Fingerprint, ...] = FINGERPRINTS


TABLE = Table()
_NOTHING = Verdict(kind="other")
_RANK: dict[Kind, int] = {
    "token_overflow": 4,
    "output_too_long": 3,
    "payload_too_large": 2,
    "rate_limit": 1,
    "other": 0,
}
_DIRECT: dict[str, Kind] = {"payload": "payload_too_large", "rate": "rate_limit", "other": "other"}


def classify(
    *,
    status: int | None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    wire: str | None = None,
    stream_event: str | None = None,
    sent: Sent | None = None,
    table: Table = TABLE,
) -> Verdict:
    """Classify one answer of an upstream.

    `status` is the HTTP status (None: unknown), `body` the decoded body or the data of one SSE frame, `stream_event` the
    frame's event name, `wire` "chat", "responses" or "messages" (None: unknown), `sent` what was asked for. An HTTP 200 that
    is no error and did not stop at the window's edge is "other" after a few byte searches.
    """
    sent = sent or Sent()
    full = sent.tokens is not None and sent.window is not None and sent.tokens >= sent.window
    envelope = unwrap(body, status=status, stream_event=stream_event, usage=full)
    if envelope.stop is not None:
        return _judge_stop(envelope.stop, sent)
    if envelope.empty:
        return _judge_empty(status, sent)
    best = _NOTHING
    for finding in envelope.findings:
        verdict = _judge(finding, status, sent, table)
        if best is _NOTHING or _RANK[verdict.kind] > _RANK[best.kind]:
            best = verdict
    if best is _NOTHING or best.provider is not None:
        return best
    names = {name.lower() for name in headers or ()}
    return replace(best, provider=next((maker for name, maker in HEADERS.items() if name in names), None))


def _judge(finding: Finding, status: int | None, sent: Sent, table: Table) -> Verdict:
    """The verdict on one error sentence."""
    text = _normalise(finding.message)
    figures = _read_figures(text, finding.fields, table.figures)
    limited = not {429, 402}.isdisjoint((status, finding.status))
    rule = _match(finding, text, figures, table.rules, codes_only=limited, weak=(status or 0) < 500)
    if limited and rule is None:
        rule = next((rule for rule in table.rules if rule.says == "rate" and rule.on == "text"), None)
        name = f"status-{429 if 429 in (status, finding.status) else 402}"
        rule = Rule(name=name, says="rate", pattern="", source="")
    message = " ".join(finding.message.split())[:500] or " ".join(finding.codes)[:500]
    provider = (
        (rule.provider if rule else None) or finding.provider or _fingerprint(text, finding.codes, table.fingerprints)
    )
    verdict = Verdict(
        kind="other", model=finding.model, provider=provider, rule=rule.name if rule else None, message=message
    )
    if rule is None or not rule.numbers:
        return replace(verdict, kind=_kind_of(rule, {}, sent) if rule else "other")
    return _stated(replace(verdict, kind=_kind_of(rule, figures, sent)), figures)


def _match(
    finding: Finding, text: str, figures: Mapping[str, int], rules: Iterable[Rule], *, codes_only: bool, weak: bool
) -> Rule | None:
    """The first rule that fits; on a 429 or 402 only a typed overflow code or a named rate rule counts."""
    sentences = re.split(r"(?<=[.!?])\s|[\n;]", text)
    codes = (
        *finding.codes,
        *re.findall(r"\b(?:[a-z0-9]+(?:_[a-z0-9]+)+|[a-z]+(?:error|exception|exceeded))\b", text)[:32],
    )
    for rule in rules:
        if (codes_only and rule.on != "code" and rule.says != "rate") or (rule.weak and not weak):
            continue
        pattern = _compiled(rule.pattern)
        if rule.on == "code":
            hit = any(pattern.fullmatch(code) for code in codes)
        elif rule.on == "sentence":
            hit = any(pattern.search(sentence) for sentence in sentences)
        elif rule.on == "text":
            hit = pattern.search(text) is not None
        else:
            hit = (
                "window" in figures
                and max(figures.get(role, 0) for role in ("prompt", "total", "bound")) >= figures["window"]
            )
        if hit:
            return rule
    return None


def _kind_of(rule: Rule, figures: Mapping[str, int], sent: Sent) -> Kind:
    """The numbers decide between a prompt that is too long and an output that is. See `Says` for what a rule claims."""
    if rule.says in _DIRECT:
        return _DIRECT[rule.says]
    window = figures.get("window", sent.window)
    output = figures.get("output", sent.max_tokens)
    if "debt" in figures:  # the server's own arithmetic; a client that asked for a negative count has another problem
        return "other" if (sent.max_tokens or 1) < 0 else "token_overflow"
    prompt = _prompt(figures, output)
    if window is not None:
        if prompt is not None:
            if prompt >= window:
                return "token_overflow"
            return "output_too_long" if output or rule.says != "overflow" else "token_overflow"
        bound = figures.get("bound")
        if bound is not None and bound >= window:
            return "token_overflow"
        if output is not None and output >= window and (rule.says != "overflow" or "output" in figures):
            return "output_too_long"  # no prompt fits beside it, so compaction cannot be the cure
        if bound is not None or "chars" in figures:
            # How long the prompt really is, is not stated. Ours, else: lower max_tokens first if that can help at all.
            size = sent.tokens if sent.tokens is not None else figures.get("chars", 0) // 4
            if sent.tokens is None and bound is not None:
                return "token_overflow" if (output or 0) <= SMALL_OUTPUT else "output_too_long"
            return "token_overflow" if size >= window else "output_too_long"
        if rule.says == "shared" and output is not None and sent.tokens is not None:
            return "output_too_long" if sent.tokens < 0.9 * window <= sent.tokens + output else "token_overflow"
        if rule.says == "shared" and output is not None and output >= window // 2 and "total" not in figures:
            return "output_too_long"
    return "output_too_long" if rule.says == "room" else "token_overflow"


def _prompt(figures: Mapping[str, int], output: int | None) -> int | None:
    """The prompt's exact size: stated, or the stated total without the output."""
    if "prompt" in figures:
        return figures["prompt"]
    if "total" in figures and output is not None and output < figures["total"]:
        return figures["total"] - output
    return None


def _stated(verdict: Verdict, figures: Mapping[str, int]) -> Verdict:
    """Fill in what the provider said."""
    window, bound, total, prompt = (figures.get(role) for role in ("window", "bound", "total", "prompt"))
    output = figures.get("output")
    if prompt is None and output is not None:
        prompt = _prompt(figures, output)
    requested: tuple[int | None, Requested | None] = (None, None)
    if bound is not None:
        requested = (bound, "prompt_lower_bound")
    elif total is not None and total != prompt:
        requested = (total, "total")
    elif prompt is not None:
        requested = (prompt, "prompt")
    if verdict.kind == "rate_limit" and "asked" in figures:
        requested = (figures["asked"], "total")
    if window is not None and prompt is not None and prompt < window and verdict.kind == "token_overflow":
        window = None  # the two contradict each other (seen in a log of vLLM): no limit to learn from
    room = window - prompt if verdict.kind == "output_too_long" and window is not None and prompt is not None else None
    return replace(
        verdict,
        context_window=window if verdict.kind in ("token_overflow", "output_too_long") else None,
        limit_is_input="limit_is_input" in figures and window is not None,
        requested_tokens=requested[0],
        requested_kind=requested[1],
        max_tokens=output,
        prompt_tokens=prompt,
        total_tokens=total,
        room_tokens=room,
        tpm_limit=figures.get("tpm") if verdict.kind == "rate_limit" else None,
    )


def _read_figures(text: str, fields: Mapping[str, int], figures: Iterable[Figure]) -> dict[str, int]:
    """The numbers of one text by role; structured fields win, then the table's order."""
    found: dict[str, int] = {}
    for figure in figures:
        hit = _compiled(figure.pattern).search(text)
        if hit is None:
            continue
        groups = {
            role: _number(value) for role, value in hit.groupdict().items() if value is not None and role != "used"
        }
        if "used" in hit.groupdict() and hit["used"] is not None:
            del groups["tpm"]  # "Used + Requested > Limit" is cured by waiting
        for role, number in groups.items():
            if number is not None:
                found.setdefault(role, number)
    found.update(fields)
    if "limit" in found and ("window" not in found or found["window"] == found["limit"]):
        found["window"] = found["limit"]
        found["limit_is_input"] = 1
    if {"tpm", "asked"} <= found.keys() and found["asked"] <= found["tpm"]:
        del found["tpm"]
    bound, output = found.get("bound"), found.get("output", 0)
    if (
        bound is not None
        and "at least" not in text
        and found.get("window") is not None
        and bound + output != found["window"] + 1
    ):
        found["prompt"] = found.pop("bound")  # vLLM counts no further than window - max_tokens + 1
    if found.get("prompt") is not None and "bound" in found:
        del found["prompt"]
    return found


def _judge_stop(stop: Stop, sent: Sent) -> Verdict:
    """An answer that ended, or was cut, at the edge of the window. The partial answer is valid."""
    verdict = Verdict(
        kind="token_overflow",
        answered=True,
        requested_tokens=stop.prompt,
        requested_kind=None if stop.prompt is None else "prompt",
        prompt_tokens=stop.prompt,
        message=stop.reason,
    )
    window, prompt, output = sent.window, stop.prompt, stop.output
    if stop.reason == "model_context_window_exceeded":
        return replace(verdict, rule="stop-window-exceeded")
    if stop.reason in ("length", "max_tokens", "max_output_tokens"):
        used = (prompt or 0) + (output or 0)
        at_edge = window is not None and prompt is not None and EDGE * window <= used and prompt <= window * 1.05
        budget = sent.max_tokens is not None and output is not None and output >= sent.max_tokens
        if at_edge and not budget:
            return replace(verdict, rule="stop-length-at-edge")
        # No token at all is no output budget's doing, unless that was 0 (Anthropic's way to warm a cache).
        unknown = window is None or prompt is None
        if output == 0 and stop.silent and sent.max_tokens != 0 and unknown and (prompt is None or prompt > 0):
            return replace(verdict, rule="stop-length-empty")
    if prompt is not None and stop.total is not None and prompt > stop.total > 0 and stop.silent:
        return replace(
            verdict, rule="usage-contradiction"
        )  # lmdeploy: an empty answer that counts more prompt than total
    if prompt is not None and window is not None and sent.tokens is not None and sent.tokens >= window:
        # The server cut the prompt (Ollama keeps about half the window) and answered what was left. A server that only
        # drops fields when it renders the prompt does not fall to a fraction of what was sent.
        if 0.4 * window <= prompt <= min(window, 0.6 * sent.tokens):
            return replace(verdict, rule="silent-truncation")
    return _NOTHING


def _judge_empty(status: int | None, sent: Sent) -> Verdict:
    """An error without a body (Cerebras, lmdeploy): undecidable, except that the prompt nearly fills a known window."""
    if (
        status in (400, 413)
        and sent.tokens is not None
        and sent.window is not None
        and sent.tokens >= 0.95 * sent.window
    ):
        return Verdict(kind="token_overflow", rule="empty-body-full-window")
    return _NOTHING


def _fingerprint(text: str, codes: Iterable[str], fingerprints: Iterable[Fingerprint]) -> str | None:
    haystack = f"{text} {' '.join(codes)}"
    return next((mark.provider for mark in fingerprints if _compiled(mark.pattern).search(haystack)), None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Expand the vocabulary (twice: adjectives, then numbers inside words) and compile. Compiled on first use, since most
    processes never see an error."""
    for name, words in VOCABULARY.items():
        pattern = pattern.replace(f"{{{name}}}", words)
    return re.compile(pattern)


_QUOTES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "`": None, "*": None, "\u00a0": " ", "\uff0c": "，"}
)


def _normalise(text: str) -> str:
    """Lower case, plain quotes, no escapes of a JSON string that was cut off, single spaces; a line break ends a sentence only
    after punctuation or when doubled."""
    if "\\" in text:
        text = re.sub(r"\\u00(2[267]|3[ce])", lambda hit: chr(int(hit[1], 16)), text, flags=re.IGNORECASE)
        text = re.sub(r"\\+([nrt])", " ", re.sub(r"\\+(?=[\"'])", "", text))
    if "&" in text:
        text = html.unescape(text)
    text = text.translate(_QUOTES).lower()
    text = re.sub(r"(?<=[.!?:])[ \t]*\r?\n|\r?\n\s*\n", "\0", text[:8192])
    return re.sub(r"\s+", " ", text).replace("\0", "\n").strip()


def _number(text: str) -> int | None:
    """A number as people write it: 131072, 131,072, 131_072, 131.072, 128k, 1.5m."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1])
    digits = text[:-1] if scale else text
    try:
        if scale:
            return round(float(digits.replace(",", "")) * scale)
        value = int(re.sub(r"\D", "", digits))
    except ValueError:
        return None
    return value if value < 10**12 else None


def classify_line(line: Mapping[str, object]) -> dict[str, object]:
    """One decoded line of `ctxproxy classify --jsonl` as its answer.

    The line: `id`, `status`, `body` (a string), and where known `headers`, `wire`, `stream_event`, `sent` {tokens, max_tokens,
    window}. A line of another shape gives {"id", "error": {"type", "message"}} and does not raise.
    """
    body, status, headers = line.get("body", ""), line.get("status"), line.get("headers")
    wire, event, sent = line.get("wire"), line.get("stream_event"), line.get("sent")
    if "body" not in line or not isinstance(body, str | None):
        problem = "`body` must be a string"
    elif isinstance(status, bool) or not isinstance(status, int | None):
        problem = "`status` must be an integer or null"
    elif not isinstance(headers, dict | None) or not isinstance(sent, dict | None):
        problem = "`headers` and `sent` must be objects"
    elif not isinstance(wire, str | None) or not isinstance(event, str | None):
        problem = "`wire` and `stream_event` must be strings"
    else:
        counts = {
            name: _count(cast("dict[str, object]", sent or {}).get(name)) for name in ("tokens", "max_tokens", "window")
        }
        verdict = classify(
            status=status,
            headers={str(name): str(value) for name, value in cast("dict[str, object]", headers or {}).items()},
            body=(body or "").encode("utf-8", "replace"),
            wire=wire,
            stream_event=event,
            sent=Sent(**counts),
        )
        return {
            "id": line.get("id"),
            "class": verdict.kind,
            "context_window": verdict.context_window,
            "requested_tokens": verdict.requested_tokens,
            "requested_kind": verdict.requested_kind,
            "max_tokens": verdict.max_tokens,
            "provider": verdict.provider,
            "rule": verdict.rule,
        }
    return {"id": line.get("id"), "error": {"type": "invalid_line", "message": problem}}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
