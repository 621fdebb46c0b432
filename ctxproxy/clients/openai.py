"""openai's clients: wrapped, and under the same names with ctxproxy inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from ctxproxy.clients.dropin import drop_in, sdk_error

if TYPE_CHECKING:
    from ctxproxy.policy import Mode, Policy
    from ctxproxy.runtime import Runtime

__all__ = ["AsyncAzureOpenAI", "AsyncOpenAI", "AzureOpenAI", "OpenAI", "status_error"]


def status_error(response: Any) -> Exception:
    """The error that the SDK makes of a response with an error status, read."""
    return sdk_error(openai.OpenAI, response)


if TYPE_CHECKING:

    class OpenAI(openai.OpenAI):
        """openai.OpenAI with ctxproxy inside."""

        def __init__(
            self,
            *,
            policy: str | Policy | None = None,
            window: int | None = None,
            runtime: Runtime | None = None,
            mode: Mode | None = None,
            **options: Any,
        ) -> None: ...

    class AsyncOpenAI(openai.AsyncOpenAI):
        """openai.AsyncOpenAI with ctxproxy inside."""

        def __init__(
            self,
            *,
            policy: str | Policy | None = None,
            window: int | None = None,
            runtime: Runtime | None = None,
            mode: Mode | None = None,
            **options: Any,
        ) -> None: ...

    class AzureOpenAI(openai.AzureOpenAI):
        """openai.AzureOpenAI with ctxproxy inside."""

        def __init__(
            self,
            *,
            policy: str | Policy | None = None,
            window: int | None = None,
            runtime: Runtime | None = None,
            mode: Mode | None = None,
            **options: Any,
        ) -> None: ...

    class AsyncAzureOpenAI(openai.AsyncAzureOpenAI):
        """openai.AsyncAzureOpenAI with ctxproxy inside."""

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
    OpenAI = drop_in(openai.OpenAI, __name__)
    AsyncOpenAI = drop_in(openai.AsyncOpenAI, __name__)
    AzureOpenAI = drop_in(openai.AzureOpenAI, __name__)
    AsyncAzureOpenAI = drop_in(openai.AsyncAzureOpenAI, __name__)
