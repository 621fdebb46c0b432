"""anthropic's clients: wrapped, and under the same names with ctxproxy inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic

from ctxproxy.clients.dropin import drop_in, sdk_error

if TYPE_CHECKING:
    from ctxproxy.policy import Mode, Policy
    from ctxproxy.runtime import Runtime

__all__ = ["Anthropic", "AsyncAnthropic", "status_error"]


def status_error(response: Any) -> Exception:
    """The error that the SDK makes of a response with an error status, read."""
    return sdk_error(anthropic.Anthropic, response)


if TYPE_CHECKING:

    class Anthropic(anthropic.Anthropic):
        """anthropic.Anthropic with ctxproxy inside."""

        def __init__(
            self,
            *,
            policy: str | Policy | None = None,
            window: int | None = None,
            runtime: Runtime | None = None,
            mode: Mode | None = None,
            **options: Any,
        ) -> None: ...

    class AsyncAnthropic(anthropic.AsyncAnthropic):
        """anthropic.AsyncAnthropic with ctxproxy inside."""

        def __init__(
            self,
            *,
            policy: str | Policy | None = None,
            window: int | None = None,
            runtime: Runtime | None = None,
            mode: Mode | None = None,
            **options: Any,
        ) -> None: ...

else:
    Anthropic = drop_in(anthropic.Anthropic, __name__)
    AsyncAnthropic = drop_in(anthropic.AsyncAnthropic, __name__)
