"""Unwrap what an upstream answered into the sentences and codes that are really *its error*, or into its stop reason.

Providers and relays wrap errors in each other: objects in objects, JSON in strings, strings with a prefix, SSE frames,
arrays, HTML. `unwrap` opens them and returns flat `Finding` values. Text that is not an error is never returned: an
answer that quotes one, the request echoed by a validator, a field that no error envelope has.

Nothing here raises on any input, and every step is bounded (bytes, depth, nodes): a body is untrusted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from ctxproxy.overflow_rules import FIELDS

__all__ = ["Envelope", "Finding", "Stop", "unwrap"]

# Bytes of a body: parsed at most; searched at most when it is no JSON; searched at each end of a successful answer.
JSON_BYTES, TEXT_BYTES, ENDS = 4 << 20, 1 << 16, 4096
MAX_DEPTH, MAX_NODES, MAX_FINDINGS, MAX_TEXT = 32, 256, 8, 2560

# fmt: off
# Keys by their role in an error object; lower case, without "-" and "_" (so AWS's "__type" is a type).
_SENTENCES = frozenset({
    "message", "msg", "error", "errors", "errormessage", "errormsg", "errmsg", "errordescription", "errordetail",
    "description", "detail", "details", "title", "exception", "cause", "raw", "result", "responsebody", "reason",
})
_CODES = frozenset({
    "code", "type", "status", "reason", "errorcode", "errortype", "errorname", "errtype", "errcode", "name", "kind",
    "statuscode", "httpstatus", "httpstatuscode", "rawstatuscode",
})
_CONTAINERS = frozenset({
    "error", "errors", "detail", "details", "raw", "attempts", "response", "cause", "innererror", "inner",
    "originalerror", "upstreamerror", "providererror", "lasterror", "fault", "exception", "responsebody", "data",
    "result", "message", "upstream", "choices",
})
# A body with one of these is an answer: at HTTP 200 its text is the model's, not the provider's.
_ANSWERS = frozenset({
    "choices", "content", "output", "outputs", "outputtext", "candidates", "completion", "generatedtext", "generations",
    "role", "delta", "object", "results", "response", "embedding", "data",
})
# An HTTP 200 body without any of these is neither an error nor an answer that stopped at the window's edge.
_NEEDLES = (
    "rror", "_exceeded", '"length"', "incomplete", '"max_tokens"', '"code"', "xception", "ailed", "finish_reason=",
    '"content":""', '"content": ""',
)
# fmt: on
_NEEDLE_BYTES = tuple(needle.encode() for needle in _NEEDLES)
_FAILED_EVENT = re.compile(r"error|exception|fail", re.IGNORECASE)
_FAILED_TYPES = ("error", "exception", "response.failed", "response.error")
_NO_BODY = re.compile(r"(?:error:? ?)?(?:\d{3})? ?(?:status code)? ?\(no body\)", re.IGNORECASE)
_STATUS = re.compile(
    r"^\W{0,4}([45]\d\d)\b(?! tokens)|(?:error code|status[ _]?code|status|http)[:= ]{1,3}([45]\d\d)\b"
)
_SSE = re.compile(r"(?:event|data|id|retry|error) ?:|:")


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
    """What the answer is: an error with findings, an error without a body (`empty`), or an answer with its stop."""

    findings: tuple[Finding, ...] = ()
    stop: Stop | None = None
    empty: bool = False


_NOTHING = Envelope()


def unwrap(body: bytes, *, status: int | None = None, stream_event: str | None = None, usage: bool = False) -> Envelope:
    """Open a response body, or the data of one SSE frame whose event name is `stream_event`.

    `status` is the HTTP status (None: unknown). `usage` asks for the stop of every HTTP 200 answer, also of one that
    ended normally, because its token counts are to be compared.
    """
    failed = stream_event is not None and _FAILED_EVENT.search(stream_event) is not None
    success = status is not None and status < 400 and not failed
    if success and not usage:
        # Of a long answer only the ends: an error body is short, and a stop reason stands before or after the content.
        ends = body if len(body) <= 4 * ENDS else body[:ENDS] + body[-ENDS:]
        for needle in _NEEDLE_BYTES:  # not any(...): this runs for every answer
            if needle in ends:
                break
        else:
            return _NOTHING
    text = body[:JSON_BYTES].decode("utf-8", "replace").strip("\ufeff \t\r\n")
    if not text or (len(text) < 80 and _NO_BODY.fullmatch(text) is not None):
        return Envelope(empty=not success)
    if _SSE.match(text) is not None:
        return _frames(text[:TEXT_BYTES], success=success, status=status)
    return _document(_parse(text), text[: MAX_TEXT if len(body) > JSON_BYTES else TEXT_BYTES], success, status)


def _frames(text: str, *, success: bool, status: int | None) -> Envelope:
    """The first failed SSE frame of a body, else the last stop."""
    stop: Stop | None = None
    for frame in re.split(r"\r?\n\r?\n", text)[:MAX_NODES]:
        lines = [
            (name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in frame.splitlines())
        ]
        event = next((value for name, value in lines if name == "event"), "")
        data = "\n".join(
            value for name, value in lines if name in ("data", "error")
        )  # llama.cpp once sent "error: {...}"
        ok = success and _FAILED_EVENT.search(event) is None and ("error" not in dict(lines))
        if not data or (ok and not any(needle in data for needle in _NEEDLES)):
            continue
        envelope = _document(_parse(data), data, ok, status)
        if envelope.findings:
            return envelope
        stop = envelope.stop or stop
    return Envelope(stop=stop)


def _document(value: object, text: str, success: bool, status: int | None) -> Envelope:
    """One parsed document; `value` None: `text` is no JSON."""
    if value is None:
        return _repr_stop(text) if success else Envelope(findings=tuple(_walk(_strip_html(text), status)))
    for _ in range(3):  # a relay that encodes twice
        value = _parse(value) if isinstance(value, str) and value[:1] in ('"', "{", "[") else value
    entries = [entry for item in (_list(value) or [value])[:MAX_NODES] if (entry := _dict(item)) is not None]
    errors: list[object] = [entry for entry in entries if _is_error(entry)]
    answered = any(not _ANSWERS.isdisjoint(map(_key, entry)) for entry in entries)
    if errors:
        value = errors
    elif success or (status is None and answered):
        stops = [stop for entry in entries if (stop := _stop(entry)) is not None]
        return Envelope(stop=stops[-1] if stops else None)
    return Envelope(findings=tuple(_walk(value, status)))


def _is_error(entry: dict[str, object]) -> bool:
    """Does this object say that it is an error, whatever the HTTP status?"""
    keys = {_key(name): content for name, content in entry.items()}
    if any(keys.get(name) for name in ("error", "errors", "iserror", "errormessage", "errorcode", "exception")):
        return True
    if keys.get("type") in _FAILED_TYPES or keys.get("object") == "error" or keys.get("status") in ("failed", "error"):
        return True
    if (choices := _list(keys.get("choices"))) is not None:
        return any("error" in choice for item in choices[:4] if (choice := _dict(item)) is not None)
    stated = (name for name, content in keys.items() if content is not None)
    return isinstance(keys.get("message"), str) and _ANSWERS.isdisjoint(stated)


def _walk(root: object, status: int | None) -> Iterator[Finding]:
    """Every error sentence under `root`, outer before inner. Iterative, so that depth costs no stack."""
    stack: list[tuple[object, int, Finding]] = [(root, 0, Finding(message="", status=status, fields={}))]
    nodes = found = 0
    while stack and nodes < MAX_NODES and found < MAX_FINDINGS:
        value, depth, around = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            continue
        if isinstance(value, str):
            rest, inner = _embedded(value)
            stack.extend([(inner, depth + 1, around)] if inner is not None else [])
            if rest.strip():
                found += 1
                own = _STATUS.search(rest[:200].lower())
                yield replace(around, message=_clip(rest), status=int(own[1] or own[2]) if own else around.status)
        elif (items := _list(value)) is not None:
            stack.extend((item, depth + 1, around) for item in reversed(items[:MAX_NODES]))
        elif (entry := _dict(value)) is not None:
            here = _context(entry, around)
            children = [content for name, content in entry.items() if _is_child(_key(name), content, entry)]
            if not any(children) and (here.codes or here.fields):
                found += 1
                yield here
            stack.extend((child, depth + 1, here) for child in reversed(children))


def _is_child(key: str, content: object, entry: dict[str, object]) -> bool:
    if isinstance(content, str):
        return key in _SENTENCES
    if key == "metadata":  # OpenRouter's, inside an error; elsewhere it is the caller's own
        return "message" in entry or "code" in entry
    return key in _CONTAINERS


def _context(entry: dict[str, object], around: Finding) -> Finding:
    """The codes, status, counts, model and provider of one object, added to those of the objects around it."""
    codes, fields = list(around.codes), dict(around.fields)
    status, model, provider = around.status, around.model, around.provider
    for name, content in list(entry.items())[:MAX_NODES]:
        key, number = _key(name), _int(content)
        if key in _CODES and isinstance(content, str | int) and not isinstance(content, bool):
            if number is not None and 100 <= number < 600:
                status = number
            elif len(str(content)) <= 80:
                codes.append(str(content).lower().replace("-", "_"))
        elif key == "model" and isinstance(content, str):
            model = content[:200]
        elif key == "providername" and isinstance(content, str):
            provider = content[:80].lower()
        elif name in FIELDS and number is not None and number > 0:
            fields.setdefault(FIELDS[name], number)
    return Finding(message="", codes=tuple(codes[:24]), status=status, fields=fields, model=model, provider=provider)


def _embedded(text: str) -> tuple[str, object]:
    """Split a string into its own text and the JSON document in it (None: there is none)."""
    stripped = text.strip()
    if stripped[:1] == '"' and (inner := _parse(stripped)) is not None:
        return "", inner
    for match, _ in zip(re.finditer(r"[\[{]", stripped), range(8), strict=False):
        try:
            value, end = cast("tuple[object, int]", json.JSONDecoder().raw_decode(stripped, match.start()))
        except (ValueError, RecursionError):
            continue
        if _dict(value) or any(_dict(item) for item in (_list(value) or [])[:1]):  # "[1, 8192]" is no document
            return f"{stripped[: match.start()].rstrip()} {stripped[end:].lstrip()}", value
    return text, None


def _stop(entry: dict[str, object]) -> Stop | None:
    """The stop of one answer or of one stream event, from its structured fields only."""
    inner = _dict(entry.get("response")) or _dict(entry.get("message")) or {}
    choices = [choice for item in (_list(entry.get("choices")) or [])[:8] if (choice := _dict(item)) is not None]
    delta = _dict(entry.get("delta")) or {}
    details = _dict(entry.get("incomplete_details")) or _dict(inner.get("incomplete_details")) or {}
    usage = _dict(entry.get("usage")) or _dict(inner.get("usage")) or {}
    reasons = [choice.get("finish_reason") for choice in choices]
    reasons += [entry.get("stop_reason"), delta.get("stop_reason"), inner.get("stop_reason"), details.get("reason")]
    reason = next((reason for reason in reasons if isinstance(reason, str)), "")
    prompt, output = _int(usage.get("prompt_tokens")), _int(usage.get("completion_tokens"))
    if prompt is None and (prompt := _int(usage.get("input_tokens"))) is not None:
        cached = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"))
        prompt += sum(_int(count) or 0 for count in cached)
    if prompt is None:
        prompt = _int(entry.get("prompt_eval_count"))  # Ollama's own API
    if not reason and prompt is None:
        return None
    bodies = [_dict(choice.get("message")) or _dict(choice.get("delta")) or choice for choice in choices]
    shown = ("content", "text", "tool_calls", "output", "response", "reasoning_content")
    texts = [item.get(name) for item in (bodies or [entry, delta, inner]) for name in shown]
    silent = not any(text and _dict(text) is None for text in texts)
    output = _int(usage.get("output_tokens")) if output is None else output
    return Stop(reason=reason[:80], prompt=prompt, output=output, total=_int(usage.get("total_tokens")), silent=silent)


def _repr_stop(text: str) -> Envelope:
    """vLLM's offline API shows an empty output as a Python repr; any other plain text of an HTTP 200 is no error."""
    reason = re.search(r"finish_reason='?(\w{1,40})", text[:2000])
    if reason is None or re.match(r"\w{1,40}Output\([^'\"]{0,80}text=(?:''|\"\"), token_ids=\[\]", text) is None:
        return Envelope()
    return Envelope(stop=Stop(reason=reason[1], output=0))


def _parse(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


def _strip_html(text: str) -> str:
    page = re.search(r"<(?:html|!doctype)", text[:200], re.IGNORECASE) is not None
    return html.unescape(re.sub(r"<[^<>]{0,300}>", " ", text)) if page else text


def _clip(text: str) -> str:
    """Head and tail of a long text: a relay puts the cause at either end."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1000]}\n\n{text[-1000:]}"


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _dict(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def _int(value: object) -> int | None:
    """A JSON number, or a short string of digits, as an int."""
    if isinstance(value, int):
        return value if not isinstance(value, bool) and abs(value) < 10**12 else None
    return int(value) if isinstance(value, str) and len(value) <= 12 and value.isascii() and value.isdigit() else None
