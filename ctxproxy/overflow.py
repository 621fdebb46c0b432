"""Is this answer a context overflow? One pure entry point, `classify`; the knowledge is the table in `overflow_rules`.

The order of checks: only inside an error envelope, a failed stream event or a stop reason; rate limits and other
look-alikes veto; then sentences and codes; last the numbers decide, because most wordings are shared by "the prompt is
too long" (compact) and "prompt and max_tokens are too long together" (lower max_tokens). No input makes it raise.
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
Figures = dict[str, int]

SMALL_OUTPUT = 1024  # a max_tokens that is not worth lowering when the prompt's size is only bounded from below
EDGE = 0.99  # an answer that fills this share of the window was ended by it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the request held as far as its sender knows, in tokens: measured size, max_tokens, the model's window."""

    tokens: int | None = None
    max_tokens: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an answer is and what it states. Counts are tokens as the provider gives them; None: not stated.

    `requested_kind` says what `requested_tokens` counts: the stated total where there is one, else the prompt;
    `prompt_tokens` and `total_tokens` keep both. `limit_is_input`: `context_window` limits the prompt alone.
    `room_tokens`: the output that still fits beside the prompt (output_too_long). `tpm_limit`: a tokens-per-minute
    ceiling that this request alone exceeds, so that waiting is no cure. `answered`: the verdict comes from the stop of
    an answer, which stays valid. `message` is the provider's own sentence, `rule` the name of the matched rule.
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
    """The rules to apply; tests and evaluations pass a table of their own."""

    rules: tuple[Rule, ...] = RULES
    figures: tuple[Figure, ...] = FIGURES
    fingerprints: tuple[Fingerprint, ...] = FINGERPRINTS


TABLE = Table()
_NOTHING, _UNKNOWN = Verdict(kind="other"), Sent()
_LIMITED = Rule(name="status-limited", says="rate", on="text", pattern="", source="HTTP 429 and 402")
_GRAVITY: tuple[Kind, ...] = ("other", "rate_limit", "payload_too_large", "output_too_long", "token_overflow")
_DIRECT: dict[str, Kind] = {"payload": "payload_too_large", "rate": "rate_limit", "other": "other"}
_CODE_WORDS = re.compile(r"\b(?:[a-z0-9]++(?:_[a-z0-9]++){1,12}|[a-z]{0,40}(?:error|exceeded|context[a-z]{1,40}))\b")
_SENTENCE_END = re.compile(r"(?<=[\w)\]'][.!?])\s|[\n;]")
_PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": "'", "\u201d": "'", '"': "'", "`": None, "*": None})


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

    `status` is the HTTP status (None: unknown), `body` the decoded body or the data of one SSE frame, `stream_event`
    the frame's event name, `wire` "chat", "responses" or "messages" where known, `sent` what was asked for. An HTTP 200
    that is no error and did not stop at the window's edge is "other" after a few byte searches.
    """
    del wire  # every envelope is recognised by its own shape, since relays answer in another wire's
    sent = sent or _UNKNOWN
    full = sent.tokens is not None and sent.window is not None and sent.tokens >= sent.window
    envelope = unwrap(body, status=status, stream_event=stream_event, usage=full)
    if envelope.stop is not None:
        return _judge_stop(envelope.stop, sent)
    if envelope.empty:
        return _judge_empty(status, sent)
    verdicts = [_judge(finding, status, sent, table) for finding in envelope.findings]
    if not verdicts:
        return _NOTHING
    final = {rule.name for rule in table.rules if rule.final}
    verdicts = [verdict for verdict in verdicts if verdict.rule in final] or verdicts
    best = max(verdicts, key=_weight)  # the first of equals
    names = {name.lower() for name in headers or ()}
    maker = best.provider or next((maker for name, maker in HEADERS.items() if name in names), None)
    return replace(best, provider=maker)


def _weight(verdict: Verdict) -> tuple[int, bool, bool]:
    """Of several errors the gravest counts, then one that was recognised by its text, then one that states a number."""
    numbers = (verdict.context_window, verdict.requested_tokens, verdict.max_tokens)
    return _GRAVITY.index(verdict.kind), verdict.rule not in (None, _LIMITED.name), numbers != (None, None, None)


def _judge(finding: Finding, status: int | None, sent: Sent, table: Table) -> Verdict:
    """The verdict on one error sentence."""
    text = _normalise(finding.message)
    codes = (*finding.codes, *_CODE_WORDS.findall(text)[:32])
    figures = _read(text, finding.fields, table.figures)
    limited = not {429, 402, 401}.isdisjoint((status, finding.status))
    rule = _match(text, codes, figures, table.rules, limited=limited, weak=(finding.status or 0) < 500)
    if rule is None and limited and 401 not in (status, finding.status):
        rule = _LIMITED
    shown = " ".join((text, *codes))
    marks = (mark.provider for mark in table.fingerprints if _compiled(mark.pattern).search(shown))
    provider = (rule.provider if rule else None) or finding.provider or next(marks, None)
    message = (" ".join(finding.message.split()) or " ".join(finding.codes))[:500]
    verdict = Verdict(kind="other", model=finding.model, provider=provider, message=message)
    if rule is None:
        return verdict
    figures = figures if rule.numbers else {}
    return _stated(replace(verdict, kind=_kind(rule, figures, sent), rule=rule.name), figures)


def _match(
    text: str, codes: Iterable[str], figures: Figures, rules: Iterable[Rule], *, limited: bool, weak: bool
) -> Rule | None:
    """The first rule that fits. `limited` (429, 402, 401): only a code makes an overflow; `weak` admits weak rules."""
    sentences = _SENTENCE_END.split(text)
    largest = max(figures.get(role, 0) for role in ("prompt", "total", "bound"))
    for rule in rules:
        if (limited and rule.on != "code" and rule.says != "rate") or (rule.weak and not weak):
            continue
        pattern = _compiled(rule.pattern)
        if (
            (rule.on == "sentence" and any(pattern.search(sentence) for sentence in sentences))
            or (rule.on == "text" and pattern.search(text) is not None)
            or (rule.on == "code" and any(pattern.fullmatch(code) for code in codes))
            or (rule.on == "figures" and 0 < figures.get("window", 0) <= largest)
        ):
            return rule
    return None


def _kind(rule: Rule, figures: Figures, sent: Sent) -> Kind:
    """The numbers decide between a prompt that is too long and an output that is; `Says` has what the rule claims."""
    if rule.says in _DIRECT:
        return _DIRECT[rule.says]
    if "debt" in figures:  # the server's own arithmetic, unless the client asked for a negative count
        return "other" if (sent.max_tokens or 0) < 0 else "token_overflow"
    window, output = figures.get("window", sent.window), figures.get("output", sent.max_tokens)
    prompt, bound = _prompt(figures, output), figures.get("bound")
    if window is None:
        return "output_too_long" if rule.says == "room" else "token_overflow"
    if prompt is not None and ("window" in figures or rule.says != "overflow"):
        # Our window may be a guess and our output a default: only a sum over the window puts the blame on the output.
        blamed = rule.says == "room" or "output" in figures or prompt + (output or 0) > window
        return "output_too_long" if prompt < window and blamed else "token_overflow"
    if bound is not None and bound >= window:
        return "token_overflow"
    shared = rule.says != "overflow" or "output" in figures
    if shared and output is not None and output >= window > (sent.tokens or 0):
        return "output_too_long"  # no prompt fits beside it, so compaction cannot be the cure
    if bound is not None or "chars" in figures:
        # The prompt's size is not stated. Ours decides, else the characters, else whether lowering max_tokens can help.
        size = sent.tokens if sent.tokens is not None else figures.get("chars", 0) // 4
        small = sent.tokens is None and bound is not None and (output or 0) <= SMALL_OUTPUT
        return "token_overflow" if small or size >= 0.95 * window else "output_too_long"
    if rule.says == "shared" and output is not None and sent.tokens is not None:
        return "output_too_long" if sent.tokens < 0.9 * window <= sent.tokens + output else "token_overflow"
    if rule.says == "shared" and output is not None and output >= window // 2 and "total" not in figures:
        return "output_too_long"
    return "output_too_long" if rule.says == "room" else "token_overflow"


def _prompt(figures: Figures, output: int | None) -> int | None:
    """The prompt's exact size: stated, or the stated total without the output."""
    total = figures.get("total")
    if "prompt" in figures or total is None or output is None or output >= total:
        return figures.get("prompt")
    return total - output


def _stated(verdict: Verdict, figures: Figures) -> Verdict:
    """Fill in what the provider said."""
    window, total, output = figures.get("window"), figures.get("total"), figures.get("output")
    prompt = _prompt(figures, output)
    requested: tuple[int | None, Requested | None] = (prompt, "prompt") if prompt is not None else (None, None)
    if total is not None and total != prompt:
        requested = (total, "total")
    if "bound" in figures:
        requested = (figures["bound"], "prompt_lower_bound")
    if verdict.kind == "rate_limit" and "asked" in figures:
        requested = (figures["asked"], "total")
    if verdict.kind not in ("token_overflow", "output_too_long"):
        window = None
    elif verdict.kind == "token_overflow" and window is not None and prompt is not None and prompt < window:
        window = None  # they contradict each other (seen in a log of vLLM): no limit to learn from
    room = window - prompt if verdict.kind == "output_too_long" and window is not None and prompt is not None else None
    return replace(
        verdict,
        context_window=window,
        limit_is_input="limit_is_input" in figures and window is not None,
        requested_tokens=requested[0],
        requested_kind=requested[1],
        max_tokens=output,
        prompt_tokens=prompt,
        total_tokens=total,
        room_tokens=room,
        tpm_limit=figures.get("tpm") if verdict.kind == "rate_limit" else None,
    )


def _read(text: str, fields: Mapping[str, int], figures: Iterable[Figure]) -> Figures:
    """The numbers of one text by role: the table's order, but structured fields win."""
    found: Figures = dict(fields)
    for figure in figures:
        hit = _compiled(figure.pattern).search(text)
        for role, value in hit.groupdict().items() if hit is not None else ():
            if value is not None and (number := _number(value)) is not None:
                found.setdefault(role, number)
    if "used" in found or found.get("asked", 0) <= found.get("tpm", 0):
        found.pop("tpm", None)  # "Used + Requested > Limit" is cured by waiting
    if "limit" in found and found.setdefault("window", found["limit"]) == found["limit"]:
        found["limit_is_input"] = 1
    bound, output = found.get("bound"), found.get("output", 0)
    if bound is not None and "at least" not in text and bound + output != found.get("window", 0) + 1:
        found["prompt"] = found.pop("bound")  # vLLM counts a prompt no further than window - max_tokens + 1
    if "bound" in found:
        found.pop("prompt", None)
    return found


def _judge_stop(stop: Stop, sent: Sent) -> Verdict:
    """An answer that was cut, or whose prompt was cut, at the edge of the window. What it says is valid."""
    window, prompt, output = sent.window, stop.prompt, stop.output
    used, rule = (prompt or 0) + (output or 0), None
    if stop.reason == "model_context_window_exceeded":
        rule = "stop-window-exceeded"
    elif stop.reason in ("length", "max_tokens", "max_output_tokens"):
        budget = sent.max_tokens is not None and output is not None and output >= sent.max_tokens > 0
        if window is not None and prompt is not None:
            # A prompt far over the window says that our figure for the window is wrong, not that it was reached.
            rule = "stop-length-at-edge" if EDGE * window <= used and prompt <= 1.05 * window and not budget else None
        elif output == 0 and stop.silent and sent.max_tokens != 0 and prompt != 0:
            rule = "stop-length-empty"  # no token at all is no output budget's doing, unless that was 0
    if rule is None and stop.silent and prompt is not None and prompt > (stop.total or prompt) > 0:
        rule = "usage-contradiction"  # lmdeploy: an empty answer whose total is less than its prompt
    if rule is None and prompt is not None and window is not None and (sent.tokens or 0) >= window:
        # The server cut the prompt (Ollama keeps about half the window). One that only drops fields when it renders the
        # prompt does not fall to a fraction of what was sent.
        rule = "silent-truncation" if 0.4 * window <= prompt <= min(window, 0.6 * (sent.tokens or 0)) else None
    if rule is None:
        return _NOTHING
    verdict = Verdict(kind="token_overflow", answered=True, prompt_tokens=prompt, rule=rule, message=stop.reason)
    return replace(verdict, requested_tokens=prompt, requested_kind=None if prompt is None else "prompt")


def _judge_empty(status: int | None, sent: Sent) -> Verdict:
    """An error without a body (Cerebras, lmdeploy): undecidable, unless the prompt nearly fills a known window."""
    full = sent.tokens is not None and sent.window is not None and sent.tokens >= 0.95 * sent.window
    if full and status in (400, 413):
        return Verdict(kind="token_overflow", rule="empty-body-full-window")
    return _NOTHING


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern with its vocabulary filled in; compiled on first use, since most processes never see an error."""
    for name, words in VOCABULARY.items():
        pattern = pattern.replace(f"{{{name}}}", words)
    return re.compile(pattern)


def _normalise(text: str) -> str:
    """Lower case, one kind of quote, single spaces, no escapes of a cut JSON string, line breaks between sentences."""
    if "\\" in text:
        text = re.sub(r"\\u00(2[267]|3[ce])", lambda hit: chr(int(hit[1], 16)), text, flags=re.IGNORECASE)
        text = re.sub(r"(?<!\\)\\++(?:[nrt]|(?=[\"']))", lambda hit: " " if hit[0][-1] in "nrt" else "", text)
    if "&" in text:
        text = html.unescape(text)
    text = re.sub(r"(?<=\d)[\u2009\u202f\u00a0](?=\d{3})", ",", text)  # 131 072
    text = re.sub(r"(?<=[.!?:])[ \t]{0,8}\r?\n|\n\s{0,8}\n", "\0", text.translate(_PLAIN).lower())
    return re.sub(r"\s+", " ", text).replace("\0", "\n").strip()


def _number(text: str) -> int | None:
    """A number as people write it: 131072, 131,072, 131_072, 131.072, 128k, 1.5m."""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1])
    value = round(float(text[:-1].replace(",", "")) * scale) if scale else int(re.sub(r"\D", "", text)[:13])
    return value if value < 10**12 else None


def classify_line(line: Mapping[str, object]) -> dict[str, object]:
    """One decoded line of `ctxproxy classify --jsonl` as its answer.

    The line: `id`, `status`, `body` (a string), and where known `headers`, `wire`, `stream_event`, `sent` {tokens,
    max_tokens, window}. A line of another shape gives {"id", "error": {"type", "message"}}.
    """
    body, status, event = line.get("body"), line.get("status"), line.get("stream_event")
    headers, sent = line.get("headers", {}), line.get("sent", {})
    if not isinstance(body, str):
        problem = "`body` must be a string"
    elif isinstance(status, bool) or not isinstance(status, int | None):
        problem = "`status` must be an integer or null"
    elif not isinstance(headers, dict | None) or not isinstance(sent, dict | None):
        problem = "`headers` and `sent` must be objects"
    elif not isinstance(event, str | None) or not isinstance(line.get("wire"), str | None):
        problem = "`wire` and `stream_event` must be strings"
    else:
        figures = cast("dict[str, object]", sent or {})
        verdict = classify(
            status=status,
            headers=dict.fromkeys(cast("dict[str, str]", headers or {}), ""),
            body=body.encode("utf-8", "replace"),
            stream_event=event,
            sent=Sent(**{name: _count(figures.get(name)) for name in ("tokens", "max_tokens", "window")}),
        )
        shown = ("context_window", "requested_tokens", "requested_kind", "max_tokens", "provider", "rule")
        return {"id": line.get("id"), "class": verdict.kind} | {name: getattr(verdict, name) for name in shown}
    return {"id": line.get("id"), "error": {"type": "invalid_line", "message": problem}}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
