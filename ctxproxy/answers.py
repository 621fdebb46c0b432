"""What ctxproxy itself says to a caller: errors in the format of the caller's API, and headers about what was done.

The proxy sends them over the network; the clients hand them to the SDK in the same process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ctxproxy.conversation import Api
from ctxproxy.effects import Report

__all__ = ["error_body", "report_headers"]

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}


def error_body(
    api: Api, status: int, message: str, *, code: str | None = None, fields: Mapping[str, Any] | None = None
) -> bytes:
    """An error body as the API's own server writes it; `fields` are added under `ctxproxy`."""
    text = f"ctxproxy: {message}"
    if api == "messages":
        if code == "context_length_exceeded":
            # Anthropic's clients know an overflow by these words.
            text = f"prompt is too long: {text}"
        value: dict[str, Any] = {
            "type": "error",
            "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": text},
            "request_id": None,
        }
    else:
        if code == "context_length_exceeded":
            # The openai SDK shows only the message, and LangChain looks for the code in it.
            text = f"{code}: {text}"
        kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
        value = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    if fields:
        value["ctxproxy"] = dict(fields)
    return json.dumps(value, ensure_ascii=False).encode()


def report_headers(report: Report | None, *, id: str, overhead_ms: float) -> dict[str, str]:
    """The response headers that say what ctxproxy did; `overhead_ms` are the milliseconds that it took."""
    found: dict[str, str] = {"id": id}
    if report is not None:
        found["level"] = report.level
        if report.reason:
            found["reason"] = report.reason
        found["tokens-before"] = str(report.tokens_before)
        found["tokens-after"] = str(report.tokens_after)
        found["window"] = str(report.window)
        if report.strategies:
            found["strategies"] = ",".join(report.strategies)
        if report.replayed:
            found["replayed"] = "1"
        if report.cost_saved is not None and report.changed:
            found["cost-saved"] = f"{report.cost_saved:.6f}"
    found["overhead-ms"] = f"{overhead_ms:.2f}"
    return {f"x-ctxproxy-{name}": value for name, value in found.items()}
