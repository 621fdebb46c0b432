"""What providers demand of the order of messages, by upstream host and model.

The strictest reading holds where nothing is known. Sources: the providers' API references, and public
reports of requests that they refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from ctxproxy.conversation import Api
from ctxproxy.edits import Rules

__all__ = ["PROFILES", "profile", "rules_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    name: str
    host: str = r"(?!)"
    model: str = r"(?!)"
    rules: Rules


# OpenAI and Anthropic take several user messages in a row; others' chat templates often do not.
_LENIENT = Rules(alternate=False)
PROFILES: tuple[_Profile, ...] = (
    _Profile(
        name="mistral", host=r"mistral\.ai$", model=r"mistral|mixtral|codestral|devstral|magistral", rules=Rules()
    ),
    _Profile(name="gemini", host=r"googleapis\.com$", model=r"gemini|gemma", rules=Rules()),
    _Profile(
        name="openai",
        host=r"(?:^|\.)openai\.(?:com|azure\.com)$",
        model=r"^(?:ft:)?(?:gpt-|o\d|chatgpt|codex)",
        rules=_LENIENT,
    ),
    _Profile(name="anthropic", host=r"(?:^|\.)anthropic\.com$", model=r"^claude", rules=_LENIENT),
    _Profile(name="deepseek", host=r"deepseek\.com$", model=r"deepseek", rules=_LENIENT),
)


def profile(name: str) -> Rules | None:
    """The rules of a profile by its name, None where there is none."""
    return next((p.rules for p in PROFILES if p.name == name), None)


def rules_for(*, api: Api, upstream: str = "", model: str = "") -> Rules:
    """The rules for a request: by the upstream's host, else by the model's name, else the strictest."""
    host = (urlsplit(upstream).hostname or "") if upstream else ""
    name = model.rsplit("/", 1)[-1].lower()
    adjacent = api != "responses"
    for known in PROFILES:
        if re.search(known.host, host):
            return _with(known.rules, adjacent)
    for known in PROFILES:
        if re.search(known.model, name):
            return _with(known.rules, adjacent)
    return Rules(adjacent=adjacent, alternate=api == "chat")


def _with(rules: Rules, adjacent: bool) -> Rules:
    return Rules(
        alternate=rules.alternate and adjacent,
        adjacent=adjacent,
        user_first=rules.user_first,
        max_markers=rules.max_markers,
    )
