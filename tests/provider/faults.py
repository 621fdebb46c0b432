"""What can go wrong at the provider, as values: a plan of them, a header or a function chooses one per call.

Spelling: a kind, or `kind;key=value;...`, as in `429;retry_after=2`. Kinds:

  overflow          the prompt is refused in the family's wording (numbers: the larger of the real count and 110 % of
                    the limit; `window=` and `prompt=` say others)
  overflow-stream   the same as HTTP 200 and an error event before the first content (`form=error` on Responses:
                    an `error` event in place of `response.failed`)
  output-too-long   max_tokens is refused, the prompt fits
  truncate          the prompt is cut silently: 200, the usage says at most the window
  window-stop       200 and half the answer, with the stop reason of a full window
  error-stream      200, some content, then an error event
  drop              the connection closes before an answer
  drop-body         it closes in the middle of the body (plain) or of the events (stream)
  hold              waits for release() before the head
  hold-first        waits after the head and the events that carry no content (plain: after the head)
  hold-content      waits after the first event with content (plain: after the first half of the body)
  garbage           200 and bytes that are no JSON
  html, empty       502 and a web page; 400 and no body
  413 429 500 503 529 ...  that status in the wire's error envelope (`retry_after=` in seconds, `message=`)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["KINDS", "Fault", "as_fault"]

KINDS = frozenset(
    [
        *("overflow", "overflow-stream", "output-too-long", "truncate", "window-stop", "error-stream"),
        *("drop", "drop-body", "hold", "hold-first", "hold-content", "garbage", "html", "empty"),
    ]
)
_NUMBERS = frozenset({"window", "prompt", "max_tokens", "retry_after", "after"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; the numbers are tokens, `retry_after` seconds, `after` the content events before it strikes."""

    kind: str
    window: int | None = None
    prompt: int | None = None
    max_tokens: int | None = None
    retry_after: int | None = None
    after: int = 1
    form: str = "failed"
    message: str = ""

    @property
    def status(self) -> int | None:
        return int(self.kind) if self.kind.isdigit() else None


def as_fault(value: Fault | str | int | None) -> Fault | None:
    """A fault from its spelling; None, "" and "ok" mean no fault. ValueError on an unknown kind or key."""
    if value is None or value in ("", "ok"):
        return None
    if isinstance(value, Fault):
        return value
    kind, *pairs = str(value).split(";")
    if kind not in KINDS and not (kind.isdigit() and 400 <= int(kind) <= 599):
        raise ValueError(f"unknown fault {kind!r}; one of {', '.join(sorted(KINDS))} or a status")
    fault = Fault(kind)
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in _NUMBERS | {"form", "message"}:
            raise ValueError(f"unknown key {key!r} of fault {kind!r}")
        settings: dict[str, Any] = {key: int(text) if key in _NUMBERS else text}
        fault = replace(fault, **settings)
    return fault
