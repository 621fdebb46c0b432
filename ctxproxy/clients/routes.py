"""Which model's window counts for a call: behind a router's name stand deployments, behind those fallbacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ctxproxy.runtime import Runtime

__all__ = ["Route", "route_of"]


@dataclass(frozen=True, slots=True)
class Route:
    """The model whose window counts, that window in tokens where the router states it, and the address.

    `falls_back`: a fallback is named for a window that is too small.
    """

    model: str
    upstream: str
    window: int | None = None
    falls_back: bool = False


def route_of(runtime: Runtime, kwargs: Mapping[str, Any], router: Any = None, *, window: int | None = None) -> Route:
    """The route of a call by its arguments, with the settings of a litellm.Router.

    `window`, in tokens, is one that was chosen for all models.

    Of the deployments of one name the smallest window counts, since any of them may get the call; of the fallbacks
    for a window that is too small the largest, since litellm tries those first, and they cut nothing.
    """
    model = str(kwargs.get("model") or "")
    upstream = "router" if router is not None else _upstream(model, kwargs)
    names = [model, *_fallbacks(model, kwargs, router)]
    if router is None and len(names) == 1:
        return Route(model=model, upstream=upstream)
    found = [_smallest(runtime, name, router, window) for name in names]
    best = max(found, key=lambda each: each[2])
    return Route(model=best[0], upstream=upstream, window=best[1], falls_back=len(names) > 1)


def _upstream(model: str, kwargs: Mapping[str, Any]) -> str:
    address = kwargs.get("api_base") or kwargs.get("base_url")
    return str(address or kwargs.get("custom_llm_provider") or model.rpartition("/")[0] or "litellm")


def _fallbacks(model: str, kwargs: Mapping[str, Any], router: Any) -> list[str]:
    """The models that litellm tries when this one's window is too small, and those after them."""
    rules: list[Any] = [kwargs.get("context_window_fallback_dict")]
    if router is not None:
        given = kwargs.get("context_window_fallbacks")
        listed = given if given is not None else getattr(router, "context_window_fallbacks", None)
        rules = list(cast("Iterable[Any]", listed)) if isinstance(listed, list | tuple) else []
    found: list[str] = []
    for rule in rules:
        named: Any = cast("dict[str, Any]", rule).get(model) if isinstance(rule, dict) else None
        found += [named] if isinstance(named, str) else [name for name in named or () if isinstance(name, str)]
    return found


def _smallest(runtime: Runtime, name: str, router: Any, window: int | None) -> tuple[str, int | None, float]:
    """The model, its stated window and its window for a comparison: one that nobody knows may hold anything."""
    known: list[tuple[str, int | None, float]] = []
    for model, stated in _deployments(name, router):
        info = runtime.model(model, {}, window or stated, None)
        if info.source != "default":
            known.append((model, stated, info.window))
    if known:
        return min(known, key=lambda each: each[2])
    return next(iter(_deployments(name, router)), (name, None))[0], None, float("inf")


def _deployments(name: str, router: Any) -> list[tuple[str, int | None]]:
    """The models behind a name, each with the window that the router's configuration states."""
    if router is None:
        return [(name, None)]
    found: list[tuple[str, int | None]] = []
    for deployment in router.get_model_list(model_name=name) or ():
        info: Any = deployment.get("model_info") or {}
        params: Any = deployment.get("litellm_params") or {}
        stated: Any = info.get("max_input_tokens")
        name_of = str(info.get("base_model") or params.get("model") or name)
        found.append((name_of, stated if isinstance(stated, int) else None))
    return found or [(name, None)]
