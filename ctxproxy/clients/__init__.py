"""SDK clients and HTTP clients with ctxproxy inside.

    client = ctxproxy.wrap(openai.OpenAI())            # any client that you have
    from ctxproxy import OpenAI, AsyncAnthropic        # or change the import
    http_client = ctxproxy.http_client()               # or for a framework that takes one

Nothing here imports an SDK or an HTTP library: they are known by the modules of the objects that are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ctxproxy.clients.seam import Seam
from ctxproxy.clients.transport import is_http_client, new_client, seam_of, through

if TYPE_CHECKING:
    from ctxproxy.effects import Report
    from ctxproxy.policy import Mode, Policy
    from ctxproxy.runtime import Runtime

__all__ = ["http_client", "last_report", "runtime_of", "wrap"]

_Client = TypeVar("_Client")
_SDKS = ("openai", "anthropic")


def wrap(
    client: _Client,
    *,
    policy: str | Policy | None = None,
    window: int | None = None,
    runtime: Runtime | None = None,
    mode: Mode | None = None,
    session: str = "",
    agent: str = "",
) -> _Client:
    """A client of the same class that keeps its conversations inside the model's window.

    The given client stays as it is and shares its connections with the result; closing one closes both. Its base
    URL, credentials, HTTP client, timeouts and retries are kept. `with_options()` and `copy()` of the result share
    its memory of compactions.

    Args:
        client: OpenAI, AsyncOpenAI, AzureOpenAI, AsyncAzureOpenAI, Anthropic, AsyncAnthropic or a subclass; a
            Client or AsyncClient of httpx2 or httpx; or a Router of litellm.
        policy: the rules, or the name of a preset (`default`, `gentle`, `aggressive`, `grid`).
        window: tokens of the model's window; None to look it up by the model's name.
        runtime: memory, archive and settings to share with other clients; a new one by default.
        mode: `off`, `observe` (measure and report only) or `compact`.
        session, agent: names in the event log; without a session name each conversation is one.

    Raises:
        TypeError: it is none of these clients.
        ConfigError: there is no such preset.
    """
    if is_http_client(client):
        seam = Seam(policy=policy, window=window, runtime=runtime, mode=mode, session=session, agent=agent)
        return through(client, seam)
    roots = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    if any(kind.__name__ == "Router" and kind.__module__.startswith("litellm.") for kind in client.__class__.__mro__):
        from ctxproxy.clients.litellm import wrap_router

        return wrap_router(client, Seam(policy=policy, window=window, runtime=runtime, mode=mode))
    sdk = next((name for name in _SDKS if name in roots), None)
    if sdk is None or not is_http_client(getattr(client, "_client", None)):
        raise TypeError(
            f"wrap() takes a client of openai or anthropic, of httpx2 or httpx, or a router of litellm, not "
            f"{type(client).__module__}.{type(client).__qualname__}"
        )
    from ctxproxy.clients.dropin import rewrapped

    seam = Seam(policy=policy, window=window, runtime=runtime, mode=mode, sdk=sdk, session=session, agent=agent)
    return rewrapped(client, seam)


def http_client(
    *,
    asynchronous: bool = False,
    library: Literal["httpx2", "httpx"] | None = None,
    policy: str | Policy | None = None,
    window: int | None = None,
    runtime: Runtime | None = None,
    mode: Mode | None = None,
    **options: Any,
) -> Any:
    """An HTTP client with ctxproxy inside, for a framework that takes one.

    langchain-openai takes both kinds (`http_client`, `http_async_client`), pydantic-ai and the AsyncOpenAI of
    openai-agents and strands an asynchronous one, whether or not they are called synchronously.

    A prompt that does not fit raises the error of the SDK that the framework uses. Give the sync and the async
    client of one program the same `runtime`, so that they share their memory.

    Args:
        asynchronous: an AsyncClient instead of a Client.
        library: httpx2 or httpx; the one that the installed SDKs use by default.
        policy, window, runtime, mode: as in `wrap`.
        options: of the client itself (`proxy`, `verify`, `timeout` in seconds, ...). Timeout, limits and redirects
            are those of the SDKs' own clients unless given.

    Raises:
        ConfigError: there is no such preset or library.
    """
    seam = Seam(policy=policy, window=window, runtime=runtime, mode=mode)
    return through(new_client(asynchronous=asynchronous, library=library, options=options), seam)


def runtime_of(client: object) -> Runtime | None:
    """The runtime of a wrapped client: its ledger, its archive of what was cut. None where it is not wrapped."""
    own = getattr(client, "_ctxproxy_seam", None)  # of litellm's functions and routers
    seam = own if isinstance(own, Seam) else seam_of(client) or seam_of(getattr(client, "_client", None))
    return seam.runtime if seam else None


def last_report(response: object) -> Report | None:
    """What was done for a response: an HTTP response, a raw response or stream of an SDK, or one of its errors; or
    an answer or stream of litellm.

    None where the request was not measured. The headers `x-ctxproxy-*` of the response say the same.
    """
    hidden = getattr(response, "_hidden_params", None)
    if isinstance(hidden, dict):
        return cast("dict[str, Any]", hidden).get("ctxproxy")
    for name in ("http_response", "response"):
        response = getattr(response, name, response)
    return getattr(response, "extensions", {}).get("ctxproxy")
