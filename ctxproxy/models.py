"""What is known about a model: its window and limits, tokenizer family and prices, and who said so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

__all__ = [
    "CatalogueEntry",
    "ModelInfo",
    "PriceTier",
    "Prices",
    "Source",
    "family_of",
    "find",
    "names_of",
    "resolve",
    "with_served",
]

Source = Literal["config", "learned", "served", "catalogue", "default"]
DEFAULT_WINDOW = 128_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTier:
    """Prices of the whole request once its prompt has more than `above` tokens; USD per million tokens."""

    above: int
    input: float
    output: float
    cache_read: float
    cache_write: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens. cache_read and cache_write are what such input tokens cost, not a surcharge."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    tiers: tuple[PriceTier, ...] = ()

    def at(self, prompt_tokens: int) -> Prices:
        """The prices that hold for a prompt of that size."""
        prices = self
        for tier in self.tiers:
            if prompt_tokens > tier.above:
                prices = Prices(
                    input=tier.input, output=tier.output, cache_read=tier.cache_read, cache_write=tier.cache_write
                )
        return prices


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One row of a catalogue; token limits, None where the catalogue does not say.

    context: input and output together. input_limit: stated only where it is a limit of its own.
    shared: output takes its room from the context, so that the window is the context.
    """

    context: int | None = None
    input_limit: int | None = None
    output_limit: int | None = None
    shared: bool = True
    prices: Prices | None = None
    min_cache_tokens: int | None = None
    origin: str = ""

    @property
    def window(self) -> int | None:
        """What the budget is measured against; None if unknown."""
        if self.shared:
            return self.context or self.input_limit
        return self.input_limit or self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model as the rest of the program sees it; limits in tokens.

    window: what the budget is measured against: the context where input and output share it, else the input limit.
    source: where the window comes from. matched: the catalogue row used, "" if none.
    """

    model: str
    context: int | None
    input_limit: int | None
    output_limit: int | None
    shared: bool
    family: str
    window: int
    source: Source
    prices: Prices | None = None
    min_cache_tokens: int | None = None
    matched: str = ""


# --- names ---

_DATE = re.compile(
    r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-\d\d|\d\d-20\d\d|0[1-9]\d\d|1[0-2]\d\d|2[4-9](?:0[1-9]|1[0-2]))$"
)
_TAIL = re.compile(r"(?:-v\d+(?::\d+)?(?::\d+k)?|-(?:latest|preview|exp|experimental|default)|@default)$")
_TAG = re.compile(r"(?::(?:free|beta|thinking|nitro|online|floor|extended|exacto|cloud|latest)|\[1m\])$")
_REGION = re.compile(r"^(?:us-gov|us|eu|apac|jp|au|ca|global)\.")
_VENDOR = re.compile(
    r"^(?:anthropic|openai|meta|mistral|amazon|deepseek|qwen|zai|moonshotai?|minimax|google|cohere|ai21|xai)\."
)
_VERSION = re.compile(r"(\d+)(?:[-.](\d{1,2}))?(?!\d)")


def names_of(model: str) -> Iterator[str]:
    """The names under which a catalogue may list the model, most specific first, each once."""
    seen: set[str] = set()
    for name in _spellings(model.strip().lower()):
        for form in (name, name.replace(".", "-") if "claude" in name else re.sub(r"(?<=\d)-(?=\d\b)", ".", name)):
            if form and form not in seen:
                seen.add(form)
                yield form


def _spellings(name: str) -> Iterator[str]:
    yield name
    if name.startswith("ft:"):  # ft:BASE:organisation:suffix:id
        name = name.split(":")[1]
        yield name
    # provider/vendor/name: each shorter path, so that the row of the provider wins over the bare model's.
    while True:
        shorter = name
        while (cut := _trim(shorter)) != shorter:
            shorter = cut
            yield shorter
        if "/" not in name:
            break
        name = name.partition("/")[2]
        yield name


def _trim(name: str) -> str:
    """The name without one of: a tag, a version or release word, a date, a region, a vendor."""
    for pattern in (_TAG, _TAIL, _DATE, _REGION, _VENDOR):
        shorter = pattern.sub("", name)
        if shorter != name:
            return shorter
    return name


def find(model: str, catalogue: Mapping[str, CatalogueEntry]) -> tuple[str, CatalogueEntry] | None:
    """The catalogue row of a model with its key: by any of its names, else by the longest known start.

    A deployment is often named after its model ("gpt-4o-prod-eu"), hence the starts; they end at a dash. A row
    without a window (litellm's table has some that only state prices) counts where there is no other.
    """
    rows = [(name, catalogue[name]) for name in _keys(list(names_of(model))) if name in catalogue]
    return next((row for row in rows if row[1].window), rows[0] if rows else None)


def _keys(names: Sequence[str]) -> Iterator[str]:
    yield from names
    for name in names[::-1]:
        start = name.rpartition("-")[0]
        while start and any(map(str.isdigit, start)):
            yield start
            start = start.rpartition("-")[0]


# Words in a bare model name -> tokenizer family; the first hit wins.
_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"distill-llama|nemotron|hermes", "llama"),
    (r"distill-qwen", "qwen"),
    (r"smollm", "smollm"),
    (r"gpt-?oss", "o200k"),
    (r"gemini|gemma|learnlm", "gemini"),
    (r"deepseek", "deepseek"),
    (r"qwen|qwq|qvq", "qwen"),
    (r"mi[sx]tral|codestral|devstral|ministral|magistral|pixtral|voxtral", "mistral"),
    (r"(?:^|\W)(?:chat)?glm", "glm"),
    (r"kimi|moonshot", "kimi"),
    (r"minimax|abab\d", "minimax"),
    (r"grok", "grok"),
    (r"llama", "llama"),
    (r"gpt-?4o|gpt-?4\.?[15]|gpt-?[5-9]|gpt-?realtime|gpt-?audio|chatgpt|codex|computer-use", "o200k"),
    (r"^o[1-9](?:$|-)", "o200k"),
    (r"gpt-?4|gpt-?3|davinci|babbage|text-embedding", "cl100k"),
)
_FAMILY_PATTERNS = tuple((re.compile(words), family) for words, family in _FAMILIES)


def family_of(model: str) -> str:
    """The tokenizer family of a model name; "unknown" if the name says nothing.

    Provider prefixes, dates, regions and fine-tune ids do not matter. Azure deployments with names of
    their own count as OpenAI models.
    """
    whole = model.strip().lower()
    if whole.startswith("ft:"):
        whole = whole.split(":")[1]
    name = whole.rpartition("/")[2]
    if "claude" in name or re.search(r"(?:^|\W)(?:opus|sonnet|haiku|fable|mythos)(?:\W|$)", name):
        return _claude_family(name)
    for text in (name, whole):
        for words, family in _FAMILY_PATTERNS:
            if words.search(text):
                return family
    return "o200k" if whole.startswith(("azure/", "azure_ai/")) else "unknown"


def _claude_family(name: str) -> str:
    """Claude's tokenizer changed with Opus 4.7 and again with 4.8; all else up to 4.6 uses the first."""
    found = _VERSION.search(re.sub(r"\d{6,}|:\d+|-v\d+", "", name))
    if found is None:
        return "claude-old" if "instant" in name else "claude"
    version = (int(found[1]), int(found[2] or 0))
    if version <= (4, 6):
        return "claude-old"
    return "claude-4.7" if version == (4, 7) else "claude"


# --- the decision ---

_LONG_CONTEXT = re.compile(r"sonnet-4(?:[-.]5)?(?:$|[-@:](?:20\d{6}|v\d|latest|default|preview))")
_LONG_WINDOW = 1_000_000


def resolve(
    model: str,
    *,
    config: int | None = None,
    learned: int | None = None,
    served: int | None = None,
    catalogue: Mapping[str, CatalogueEntry] | None = None,
    headers: Mapping[str, str] | None = None,
    default: int = DEFAULT_WINDOW,
) -> ModelInfo:
    """What is known about a model. The window is the first of: config, served, catalogue, default (tokens).

    `learned`, from an overflow error, is an upper bound: it lowers a served or catalogue figure and
    replaces the default, but never raises anything. Numbers below 1 count as not given.
    """
    row = find(model, catalogue) if catalogue else None
    matched, entry = row or ("", CatalogueEntry())
    if _asks_long_context(model, headers) and entry.shared and (entry.context or 0) < _LONG_WINDOW:
        entry = _with_window(entry, _LONG_WINDOW)

    window, source = _window(config, learned, served, entry.window, default)

    if source not in ("default", "catalogue"):
        entry = _with_window(entry, window)
    family = family_of(model)
    return ModelInfo(
        model=model,
        context=entry.context,
        input_limit=entry.input_limit,
        output_limit=entry.output_limit,
        shared=entry.shared,
        family=family_of(matched) if family == "unknown" and matched else family,
        window=window,
        source=source,
        prices=entry.prices,
        min_cache_tokens=entry.min_cache_tokens,
        matched=matched,
    )


def with_served(info: ModelInfo, served: int) -> ModelInfo:
    """What is known of a model once its server has stated a window in tokens: it goes over catalogue and default.

    A configured window stays, and so does a learned limit that is smaller.
    """
    if info.source == "config" or (info.source == "learned" and info.window <= served):
        return info
    output = min(info.output_limit, served) if info.output_limit and info.shared else info.output_limit
    return replace(
        info,
        window=served,
        source="served",
        context=served if info.shared else info.context,
        input_limit=info.input_limit if info.shared else served,
        output_limit=output,
    )


def _window(
    config: int | None, learned: int | None, served: int | None, catalogue: int | None, default: int
) -> tuple[int, Source]:
    if config and config > 0:
        return config, "config"
    window, source = default, cast("Source", "default")
    if served and served > 0:
        window, source = served, "served"
    elif catalogue:
        window, source = catalogue, "catalogue"
    if learned and learned > 0 and (source == "default" or learned < window):
        return learned, "learned"
    return window, source


def _with_window(entry: CatalogueEntry, window: int) -> CatalogueEntry:
    """The row with another window; where input and output share the context, that is the context."""
    output = entry.output_limit
    if entry.shared and output is not None:
        output = min(output, window)
    return CatalogueEntry(
        context=window if entry.shared else entry.context,
        input_limit=entry.input_limit if entry.shared else window,
        output_limit=output,
        shared=entry.shared,
        prices=entry.prices,
        min_cache_tokens=entry.min_cache_tokens,
        origin=entry.origin,
    )


def _asks_long_context(model: str, headers: Mapping[str, str] | None) -> bool:
    """Claude Sonnet 4 and 4.5 have 1M tokens only with the context-1m beta header (or Claude Code's [1m])."""
    name = model.strip().lower()
    if not _LONG_CONTEXT.search(name.removesuffix("[1m]")):
        return False
    betas = ",".join(value for key, value in (headers or {}).items() if key.lower() == "anthropic-beta")
    return name.endswith("[1m]") or any(beta.strip().startswith("context-1m") for beta in betas.split(","))
