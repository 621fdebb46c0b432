"""What providers demand of a request's messages, by upstream host and model, or by name from the configuration.

The strictest reading holds where nothing is known. Sources: the providers' API references and validators (Mistral's is
public: mistral-common), and public reports of requests that they refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import urlsplit

from ctxproxy.conversation import Api
from ctxproxy.edits import Rules
from ctxproxy.wire.thinking import preserved

__all__ = ["PROFILES", "STRICTEST", "Profile", "profile", "rules_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Rules, and whom they belong to: patterns over the upstream's host and the model's bare name."""

    name: str
    host: str = r"(?!)"
    model: str = r"(?!)"
    rules: Rules


STRICTEST = Rules()
# Several user messages in a row and a user message after tool results are taken as they are.
_LENIENT = Rules(alternate=False, user_after_tool=True, thinking="free")

# Hosts are asked first, all of them: who serves a model decides, not who made it.
PROFILES: tuple[Profile, ...] = (
    # 500 images and 50 MB of them a request, says its guide to images.
    Profile(
        name="openai",
        host=r"(?:^|\.)openai\.(?:com|azure\.com)$|\.cognitiveservices\.azure\.com$",
        model=r"^(?:ft:)?(?:gpt-|o\d|chatgpt|codex|computer-use)",
        rules=replace(_LENIENT, prefill=True, blank=True, max_media=500, max_bytes=50 << 20),
    ),
    # Converse wants strict alternation, a user message first and no blank text.
    Profile(
        name="bedrock",
        host=r"bedrock.*\.amazonaws\.com$|\.aws\.dev$",
        model=r"^(?:(?:us|eu|apac|jp|au|ca|global|us-gov)\.)?"
        r"(?:anthropic|amazon|meta|mistral|cohere|ai21|deepseek|qwen|openai)\.[a-z0-9.-]+-v\d",
        rules=Rules(),
    ),
    # Consecutive messages of one role are merged; no prefill since 4.6; 32 MB, 100 images a request.
    Profile(
        name="anthropic",
        host=r"(?:^|\.)anthropic\.com$",
        model=r"^claude",
        rules=replace(_LENIENT, id_pattern=r"^[a-zA-Z0-9_-]+$", max_media=100, max_bytes=32 << 20),
    ),
    # Roles in strict order, no user after tool, ids of nine letters and digits, last a user or tool message.
    Profile(
        name="mistral",
        host=r"(?:^|\.)mistral\.ai$",
        model=r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral",
        rules=Rules(id_pattern=r"^[a-zA-Z0-9]{9}$"),
    ),
    # A call follows a user message or results; must not end with the model; no empty parts.
    Profile(
        name="gemini",
        host=r"generativelanguage\.googleapis\.com$",
        model=r"gemini|gemma",
        rules=Rules(max_bytes=20_000_000),
    ),
    # reasoning_content of a turn with calls comes back as it was, or goes with its turn.
    Profile(
        name="deepseek",
        host=r"(?:^|\.)deepseek\.com$",
        model=r"deepseek",
        rules=replace(_LENIENT, thinking="turn", prefill=True),
    ),
    Profile(
        name="xai",
        host=r"(?:^|\.)x\.ai$",
        model=r"^grok",
        rules=replace(_LENIENT, thinking="turn"),
    ),
    # Chat templates of open models that raise on two user messages in a row (vLLM, llama.cpp, GLM, Kimi).
    Profile(name="strict", rules=STRICTEST),
    Profile(name="lenient", rules=_LENIENT),
)


def profile(name: str) -> Rules | None:
    """The rules of a profile by its name, None where there is none."""
    return next((p.rules for p in PROFILES if p.name == name), None)


@lru_cache(maxsize=1_024)
def rules_for(*, api: Api, upstream: str = "", model: str = "", given: Rules | None = None) -> Rules:
    """The rules for a request: the `given` ones, else by the upstream's host, else by the model's name.

    What follows from the API and the model holds in any case: where results stand, and bound thinking.

    Args:
        api: the request's API; Responses pairs calls with results anywhere.
        upstream: the upstream's URL.
        model: the model's name as the request has it; a vendor before a slash does not count.
        given: the rules of a profile that the configuration names.
    """
    rules = given or _by_host(upstream) or _by_model(model) or STRICTEST
    thinking = rules.thinking
    if api == "messages" and preserved(model):
        thinking = "bound"
    elif api == "messages" and thinking == "turn" and "claude" in model:
        thinking = "free"  # older Claude models take a history whose earlier thinking is gone
    return replace(rules, adjacent=api != "responses", thinking=thinking)


def _by_host(upstream: str) -> Rules | None:
    host = (urlsplit(upstream).hostname or "") if upstream else ""
    return next((p.rules for p in PROFILES if re.search(p.host, host)), None)


def _by_model(model: str) -> Rules | None:
    name = model.rsplit("/", 1)[-1].lower()
    return next((p.rules for p in PROFILES if re.search(p.model, name)), None)
