"""Unwrap what an upstream answered into the sentences and codes that are really *its error*, or into its stop reason.

Providers and relays wrap errors in each other: objects in objects, JSON in strings, strings with a prefix, SSE frames, arrays,
HTML. `unwrap` opens them and returns flat `Finding` values. Text that is not an error is never returned: a completion that
quotes an error, the request echoed by a validator, a field that no error envelope has.

Nothing here raises on any input, and every step is bounded (bytes, depth, nodes): a body is untrusted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ctxproxy.overflow_rules import FIELDS

__all__ = ["Envelope", "Finding", "Stop", "unwrap"]

JSON_BYTES = 1 << 20  # a larger body is no error envelope; parsing it would cost more than it tells
TEXT_BYTES = 1 << 16  # of a body that is not JSON
MAX_DEPTH, MAX_NODES, MAX_FINDINGS, MAX_TEXT = 8, 256, 24, 4096

# Keys whose value is the error's own sentence, and keys that hold its code. Lower case; "-" and "_" are dropped.
_SENTENCES = frozenset(
    {
        "message",
        "msg",
        "errormessage",
        "errormsg",
        "errmsg",
        "errordescription",
        "description",
        "detail",
        "title",
        "exception",
        "text",
        "raw",
        "result",
        "responsebody",
        "reason",
        "errordetail",
    }
)
_CODES = frozenset(
    {
        "code",
        "type",
        "status",
        "reason",
        "errorcode",
        "errortype",
        "errtype",
        "errcode",
        "name",
        "kind",
        "statuscode",
        "httpstatuscode",
        "rawstatuscode",
        "httpstatus",
        "errorname",
    }
)
_CONTAINERS = frozenset(
    {
        "error",
        "errors",
        "detail",
        "details",
        "metadata",
        "raw",
        "attempts",
        "response",
        "cause",
        "innererror",
        "inner",
        "originalerror",
        "upstreamerror",
        "providererror",
        "lasterror",
        "fault",
        "exception",
        "responsebody",
        "data",
        "result",
        "message",
        "upstream",
        "value",
    }
)
# A body with one of these is an answer: at HTTP 200 its text is the model's, not the provider's.
_ANSWERS = frozenset(
    {
        "choices",
        "content",
        "output",
        "candidates",
        "completion",
        "generatedtext",
        "outputtext",
        "role",
        "generations",
        "outputs",
        "delta",
        "object",
        "results",
        "response",
        "embedding",
        "data",
    }
)
_FAILED_EVENT = re.compile(r"error|exception|fail", re.IGNORECASE)
_FAILED_TYPES = frozenset({"error", "response.failed", "response.error", "exception"})
_NO_BODY = re.compile(r"\s*(?:error:?\s*)?(\d{3})?\s*(?:status code)?\s*\(no body\)\s*", re.IGNORECASE)
_STATUS = re.compile(
    r"^\W{0,4}([45]\d\d)\b|(?:error code|status[ _]?code|status|http)[:= ]{1,3}([45]\d\d)\b", re.IGNORECASE
)
_TAGS = re.compile(r"<[^<>]{0,300}>")
_SSE = re.compile(r"\s*(?:event|data|id|retry)\s*:|\s*:")
# An HTTP 200 body without any of these bytes is neither an error nor a stop at the window's edge.
_NEEDLES = (
    b"rror",
    b"_exceeded",
    b'"length"',
    b"incomplete",
    b'"max_tokens"',
    b'"code"',
    b"xception",
    b"ailed",
    b"finish_reason=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error sentence with what stood around it. `fields` are token counts stated beside it, by their role."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None
    fields: Mapping[str, int]
    model: str | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """How an answer ended. Token counts are those of its `usage`, None where absent; `silent`: it carries no text."""

    reason: str
    prompt: int | None = None
    output: int | None = None
    total: int | None = None
    silent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the answer is: an error with findings, an error without a body, or an answer with its stop."""

    findings: tuple[Finding, ...] = ()
    stop: Stop | None = None
    empty: bool = False


def unwrap(body: bytes, *, status: int | None = None, stream_event: str | None = None, usage: bool = False) -> Envelope:
    """Open a response body or the data of one SSE frame.

    `status` is the HTTP status (None: unknown), `stream_event` the frame's event name. `usage` asks for the stop of every
    HTTP 200 answer, also of one that ended normally (to compare its token counts).
    """
    failed = stream_event is not None and _FAILED_EVENT.search(stream_event) is not None
    success = status is not None and status < 400 and not failed
    if success and not usage and not any(needle in body for needle in _NEEDLES):
        return Envelope()
    text = body[:JSON_BYTES].decode("utf-8", "replace").strip().lstrip("\ufeff")
    if not text or (empty := _NO_BODY.fullmatch(text[:80])) is not None:
        return Envelope(empty=not success)
    if _SSE.match(text) is not None:
        return _frames(text[:TEXT_BYTES], success=success, status=status)
    return _document(_parse(text), text, success=success, status=status)


def _frames(text: str, *, success: bool, status: int | None) -> Envelope:
    """The first failed SSE frame of a body, or the last stop."""
    stop: Stop | None = None
    for frame in re.split(r"\r?\n\r?\n", text)[:MAX_NODES]:
        lines = [line.partition(":") for line in frame.splitlines()]
        event = next((value.strip() for key, _, value in lines if key.strip() == "event"), "")
        data = "\n".join(value.strip() for key, _, value in lines if key.strip() == "data")
        ok = success and _FAILED_EVENT.search(event) is None
        if not data or (ok and not any(needle.decode() in data for needle in _NEEDLES)):
            continue
        envelope = _document(_parse(data), data, success=ok, status=status)
        if envelope.findings:
            return envelope
        stop = envelope.stop or stop
    return Envelope(stop=stop)


def _document(value: object, text: str, *, success: bool, status: int | None) -> Envelope:
    """Classify one parsed document (None: `text` is no JSON)."""
    if value is None:
        if success:
            return _repr_stop(text)
        return Envelope(findings=tuple(_walk(_strip_html(text[:TEXT_BYTES]), status)))
    items = _list(value) or [value]
    entries = [entry for item in items[:MAX_NODES] if (entry := _dict(item)) is not None]
    answered = [entry for entry in entries if not _is_error(entry) and not _ANSWERS.isdisjoint(map(_key, entry))]
    if success or (status is None and answered):
        errors: list[object] = [entry for entry in entries if _is_error(entry)]
        if not errors:
            stops = [stop for entry in entries if (stop := _stop(entry)) is not None]
            return Envelope(stop=stops[-1] if stops else None)
        value = errors
    return Envelope(findings=tuple(_walk(value, status)))


def _is_error(entry: dict[str, object]) -> bool:
    """Does this object of an HTTP 200 answer say that it is an error?"""
    keys = {_key(name): content for name, content in entry.items()}
    if any(keys.get(name) for name in ("error", "errors", "iserror", "errormessage", "errorcode", "exception")):
        return True
    if (
        str(keys.get("type")) in _FAILED_TYPES
        or keys.get("object") == "error"
        or keys.get("status") in ("failed", "error")
    ):
        return True
    choices = _list(keys.get("choices"))
    if choices is not None:
        return any("error" in choice for item in choices[:4] if (choice := _dict(item)) is not None)
    return isinstance(keys.get("message"), str) and _ANSWERS.isdisjoint(
        name for name, content in keys.items() if content is not None
    )


def _walk(root: object, status: int | None) -> Iterator[Finding]:
    """Every error sentence under `root`, innermost first is not promised; iterative, so depth costs no stack."""
    stack: list[tuple[object, int, Finding]] = [(root, 0, Finding(message="", status=status, fields={}))]
    nodes = found = 0
    while stack and nodes < MAX_NODES and found < MAX_FINDINGS:
        value, depth, around = stack.pop()
        nodes += 1
        if isinstance(value, str):
            rest, inner = _embedded(value) if depth < MAX_DEPTH else (value, None)
            if inner is not None:
                stack.append((inner, depth + 1, around))
            if rest:
                found += 1
                own = _STATUS.search(rest[:200])
                yield _with(around, message=_clip(rest), status=int(own[1] or own[2]) if own else around.status)
        elif (items := _list(value)) is not None and depth < MAX_DEPTH:
            stack.extend((item, depth + 1, around) for item in reversed(items[:MAX_NODES]))
        elif (entry := _dict(value)) is not None and depth < MAX_DEPTH:
            here = _context(entry, around)
            children = [content for name, content in entry.items() if _is_child(_key(name), content)]
            if not any(isinstance(child, str) for child in children) and (here.codes != around.codes or here.fields):
                found += 1
                yield here
            stack.extend((child, depth + 1, here) for child in reversed(children))


def _is_child(key: str, content: object) -> bool:
    if isinstance(content, str):
        return key in _SENTENCES or key in ("error", "errors", "cause", "details", "value", "data")
    return key in _CONTAINERS or key == "choices"


def _context(entry: dict[str, object], around: Finding) -> Finding:
    """The codes, status, counts, model and provider of one object, added to those of the objects around it."""
    codes, fields = list(around.codes), dict(around.fields)
    status, model, provider = around.status, around.model, around.provider
    for name, content in list(entry.items())[:MAX_NODES]:
        key = _key(name)
        number = _int(content)
        if key in _CODES and isinstance(content, str | int) and not isinstance(content, bool):
            if number is not None and 100 <= number < 600:
                status = number
            elif len(str(content)) <= 80:
                codes.append(str(content).lower().replace("-", "_"))
        elif key == "model" and isinstance(content, str):
            model = content[:200]
        elif key == "providername" and isinstance(content, str):
            provider = content[:80].lower()
        elif name.lower() in FIELDS and number is not None and number > 0:
            fields.setdefault(FIELDS[name.lower()], number)
    return Finding(message="", codes=tuple(codes[:24]), status=status, fields=fields, model=model, provider=provider)


def _with(around: Finding, *, message: str, status: int | None) -> Finding:
    return Finding(
        message=message,
        codes=around.codes,
        status=status,
        fields=around.fields,
        model=around.model,
        provider=around.provider,
    )


def _embedded(text: str) -> tuple[str, object]:
    """Split a string into its own text and the JSON document in it (None: there is none)."""
    stripped = text.strip()
    for match in list(re.finditer(r"[\[{]", stripped[:TEXT_BYTES]))[:8]:
        start = match.start()
        try:
            value, end = json.JSONDecoder().raw_decode(stripped, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value:  # "[1, 8192]" in a sentence is no document
            return f"{stripped[:start]} {stripped[end:]}".strip(), cast("object", value)
        if isinstance(value, list) and isinstance(_first(value), dict):
            return f"{stripped[:start]} {stripped[end:]}".strip(), cast("object", value)
    if len(stripped) > 1 and stripped[0] == '"' and (inner := _parse(stripped)) is not None:
        return "", inner
    return text, None


def _stop(entry: dict[str, object]) -> Stop | None:
    """The stop of one answer or of one stream event, from its structured fields only."""
    response = _dict(entry.get("response")) or _dict(entry.get("message")) or {}
    choices = [choice for item in (_list(entry.get("choices")) or [])[:8] if (choice := _dict(item)) is not None]
    delta = _dict(entry.get("delta")) or {}
    details = _dict(entry.get("incomplete_details")) or _dict(response.get("incomplete_details")) or {}
    reasons = [choice.get("finish_reason") for choice in choices]
    reasons += [entry.get("stop_reason"), delta.get("stop_reason"), response.get("stop_reason"), details.get("reason")]
    usage = _dict(entry.get("usage")) or _dict(response.get("usage")) or {}
    prompt = _int(usage.get("prompt_tokens"))
    if prompt is None and (fresh := _int(usage.get("input_tokens"))) is not None:
        cached = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"))
        prompt = fresh + sum(_int(count) or 0 for count in cached)
    if prompt is None:
        prompt = _int(entry.get("prompt_eval_count"))  # Ollama's own API
    reason = next((reason for reason in reasons if isinstance(reason, str)), None)
    if reason is None and prompt is None:
        return None
    output = _int(usage.get("completion_tokens"))
    texts = [_dict(choice.get("message")) or _dict(choice.get("delta")) or choice for choice in choices] or [
        entry,
        delta,
        response,
    ]
    silent = not any(
        text.get(name) for text in texts for name in ("content", "text", "tool_calls", "output", "response")
    )
    return Stop(
        reason=(reason or "")[:80],
        prompt=prompt,
        output=_int(usage.get("output_tokens")) if output is None else output,
        total=_int(usage.get("total_tokens")),
        silent=silent,
    )


def _repr_stop(text: str) -> Envelope:
    """vLLM's offline API shows an empty output as a Python repr; any other plain text of an HTTP 200 is no error."""
    if re.match(r"\w{1,40}Output\([^'\"]{0,80}text=(?:''|\"\"), token_ids=\[\]", text) is None:
        return Envelope()
    reason = re.search(r"finish_reason='?(\w{1,40})", text[:2000])
    return Envelope(stop=Stop(reason=reason[1], output=0)) if reason is not None else Envelope()


def _parse(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _strip_html(text: str) -> str:
    lower = text[:200].lower()
    return html.unescape(_TAGS.sub(" ", text)) if "<html" in lower or "<!doctype" in lower else text


def _clip(text: str) -> str:
    """Head and tail of a long text: a relay puts the cause at either end."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1024]}\n\n{text[-1024:]}"


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _dict(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _first(value: list[object]) -> object:
    return value[0] if value else None


def _int(value: object) -> int | None:
    """A JSON number or a short string of digits as an int."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) < 10**12 else None
    return int(value) if isinstance(value, str) and len(value) <= 12 and value.isascii() and value.isdigit() else None
