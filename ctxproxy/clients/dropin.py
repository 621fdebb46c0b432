"""SDK clients with a wrapped HTTP client: copies of given ones, and classes that make new ones."""

from __future__ import annotations

import copy
import inspect
from functools import cached_property
from typing import Any

from ctxproxy.clients.seam import Seam
from ctxproxy.clients.transport import seam_of, through

__all__ = ["attach", "drop_in", "rewrapped", "sdk_error"]

_SETTINGS = ("policy", "window", "runtime", "mode")


def sdk_error(kind: Any, response: Any) -> Exception:
    """The error that an SDK client of class `kind` makes of a response: its own method, which uses no state."""
    return kind._make_status_error_from_response(object.__new__(kind), response)


def attach(client: Any, seam: Seam) -> None:
    """Wrap the HTTP client of an SDK client that nobody else holds yet."""
    client._client = through(client._client, seam)


def rewrapped(client: Any, seam: Seam) -> Any:
    """A copy of an SDK client with a wrapped HTTP client; the given one stays as it is."""
    http_client = through(client._client, seam)
    try:
        made = client.copy(http_client=http_client)
    except TypeError:
        if type(client).__module__.partition(".")[0] in ("openai", "anthropic"):
            raise
        return _shallow(client, http_client)  # a subclass whose constructor takes other arguments
    made._strict_response_validation = client._strict_response_validation  # not among what `copy` passes on
    return made


def _shallow(client: Any, http_client: Any) -> Any:
    made: Any = copy.copy(client)
    kind: type = made.__class__
    state: dict[str, Any] = made.__dict__
    for name in tuple(state):
        # Resources that were used hold the client that they were made for.
        if isinstance(getattr(kind, name, None), cached_property):
            del state[name]
    made._client = http_client
    if hasattr(made, "_build_middleware_chain"):
        made._middleware_chain = made._build_middleware_chain()
    return made


class _DropIn(type):
    """Makes a genuine client of the SDK and wraps its HTTP client.

    The client is of the SDK's own class, not of a subclass: the SDKs treat subclasses otherwise (anthropic's find no
    credentials in the environment's profiles). A subclass of a drop-in is made as usual.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        settings = {name: options.pop(name) for name in _SETTINGS if name in options}
        sdk = cls.__dict__.get("_ctxproxy_sdk_class")
        client = type.__call__(cls, *args, **options) if sdk is None else sdk(*args, **options)
        if settings or seam_of(client._client) is None:  # `copy` of a wrapped client brings its HTTP client along
            attach(client, Seam(**settings, sdk=_root(cls)))
        return client

    def __instancecheck__(cls, instance: Any) -> bool:
        sdk = cls.__dict__.get("_ctxproxy_sdk_class")
        if sdk is None:
            return type.__instancecheck__(cls, instance)
        return isinstance(instance, sdk) and seam_of(getattr(instance, "_client", None)) is not None


def _root(cls: type) -> str:
    return next(root for kind in cls.__mro__ if (root := kind.__module__.partition(".")[0]) in ("openai", "anthropic"))


def drop_in(sdk_class: Any, module: str) -> Any:
    """The class to import in place of `sdk_class`: the same arguments, and those of `wrap`."""
    settings = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _SETTINGS]
    own = inspect.signature(sdk_class)
    doc = f"{sdk_class.__module__.partition('.')[0]}.{sdk_class.__name__} with ctxproxy inside; see ctxproxy.wrap."
    return _DropIn(
        sdk_class.__name__,
        (sdk_class,),
        {
            "__module__": module,
            "__doc__": doc,
            "__signature__": own.replace(parameters=[*own.parameters.values(), *settings]),
            "_ctxproxy_sdk_class": sdk_class,
        },
    )
