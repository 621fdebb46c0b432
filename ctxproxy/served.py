"""What an upstream says that it serves: its window for a model, and which server it is.

No I/O here: `window_of` yields the questions and is sent the answers, `Served` remembers what came of them.
"""

from __future__ import annotations

import ipaddress
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

__all__ = ["ANSWER_BYTES", "SECONDS", "Fact", "Key", "Question", "Served", "asked", "root_of", "window_of"]

Server = Literal["llama.cpp", "vllm", "ollama", "lmstudio", "openrouter", ""]
Key = tuple[str, str]
"""(upstream, model)"""

SECONDS = 5.0
"""For all questions on one model together."""
ANSWER_BYTES = 4 << 20
"""Of one answer; a list of some 400 models with their descriptions has 0.7 MB."""

_MOST = 1_024  # models that are remembered, and wishes
_LEAST_WINDOW, _MOST_WINDOW = 256, 100_000_000  # tokens; anything else is no window

# These state no window in an OpenAI-style list of models, or sign requests in a way that a question can't have.
_SILENT = re.compile(
    r"(?:^|\.)(?:api\.openai\.com|api\.anthropic\.com|openai\.azure\.com|services\.ai\.azure\.com|"
    r"amazonaws\.com|googleapis\.com|chatgpt\.com)$"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A small request to an upstream; a POST of `body` where there is one."""

    url: str
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A window in tokens, None where it was not stated, and the server's kind, "" where it is not known."""

    window: int | None = None
    server: Server = ""


# --- asking


def asked(upstream: str) -> bool:
    """Whether a server at this base URL may have something to say."""
    host = urlsplit(upstream).hostname
    return bool(host) and not _SILENT.search(host)


def root_of(upstream: str) -> tuple[str, str]:
    """Where the OpenAI-style paths begin ("…/v1"), and where the server's own do."""
    base = upstream.partition("?")[0].rstrip("/")
    if not urlsplit(base).path:
        base += "/v1"
    return base, re.sub(r"/v1$", "", base)


def window_of(upstream: str, model: str) -> Generator[Question, bytes | None, Fact]:
    """Find out the window of a model. Each answer is a body, None for a failure of any kind."""
    base, own = root_of(upstream)
    listed = _object((yield Question(base + "/models")))
    entry = _entry(listed, model)
    owner = str(entry.get("owned_by", "")).lower()
    if owner == "llamacpp":
        # `meta.n_ctx` is younger than /props. `n_ctx_train` is what the model could do, not what is served.
        window = _number(_at(entry, "meta", "n_ctx"))
        if window is None:
            props = _object((yield Question(own + "/props")))
            window = _number(_at(props, "default_generation_settings", "n_ctx")) or _number(props.get("n_ctx"))
        return Fact(window=window, server="llama.cpp")
    if "max_model_len" in entry:
        return Fact(window=_number(entry["max_model_len"]), server="vllm" if owner == "vllm" else "")
    stated = _stated(entry)
    if stated is not None:
        return Fact(window=stated, server="openrouter" if "top_provider" in entry else "")
    if not listed or not _near(upstream):
        return Fact()
    # Ollama and LM Studio list models without a window. A model's largest context is not what they run it with:
    # Ollama runs it with 4,096 tokens unless told otherwise, and cuts longer prompts without a word.
    if owner == "organization_owner":
        listed = _object((yield Question(own + "/api/v0/models")))
        return Fact(window=_number(_entry(listed, model).get("loaded_context_length")), server="lmstudio")
    running = _object((yield Question(own + "/api/ps")))
    window = _number(_entry(running, model, alone=False).get("context_length"))
    if window is None and (owner == "library" or running.get("models") is not None):
        name = json.dumps({"model": model}).encode()
        shown = _object((yield Question(own + "/api/show", name)))
        found = re.search(r"^\s*num_ctx\s+(\d{1,9})\s*$", str(shown.get("parameters", "")), re.MULTILINE)
        window = _number(int(found[1])) if found else None
    return Fact(window=window, server="ollama" if running or owner == "library" else "")


def _stated(entry: Mapping[str, Any]) -> int | None:
    """The window in a row of a list of models; of several figures the smallest, since each is a limit."""
    found = [
        _number(entry.get(name))
        for name in ("context_length", "context_window", "max_context_length", "loaded_context_length")
    ]
    # OpenRouter lists the largest context among its providers and, apart, that of the one it prefers.
    found.append(_number(_at(entry, "top_provider", "context_length")))
    known = [window for window in found if window is not None]
    return min(known) if known else _number(entry.get("max_input_tokens"))


def _near(upstream: str) -> bool:
    """Whether the host is this machine or one of the same network: only there a server of one's own is looked for."""
    host = urlsplit(upstream).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))
    return address.is_private or address.is_loopback


# --- reading


def _object(body: bytes | None) -> dict[str, Any]:
    """A JSON object; {} for anything else."""
    if not body or len(body) > ANSWER_BYTES:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _entry(listed: Mapping[str, Any], model: str, *, alone: bool = True) -> dict[str, Any]:
    """The row of a model in a list of models; with `alone` a server's only model counts under every name."""
    rows = [cast("dict[str, Any]", row) for row in _rows(listed) if isinstance(row, dict)]
    wanted = model.lower()
    for name in dict.fromkeys((wanted, wanted + ":latest", wanted.rpartition("/")[2])):
        for row in rows:
            if name in _names(row):
                return row
    return rows[0] if alone and len(rows) == 1 else {}


def _rows(listed: Mapping[str, Any]) -> list[Any]:
    for key in ("data", "models"):
        rows = listed.get(key)
        if isinstance(rows, list):
            return cast("list[Any]", rows)
    return [listed] if "id" in listed else []


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    aliases = row.get("aliases")
    more = cast("list[object]", aliases) if isinstance(aliases, list) else []
    for name in (row.get("id"), row.get("model"), row.get("name"), *more):
        if isinstance(name, str):
            yield name.lower()


def _at(value: Mapping[str, Any], *path: str) -> object:
    found: object = value
    for key in path:
        if not isinstance(found, dict):
            return None
        found = cast("dict[str, object]", found).get(key)
    return found


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if _LEAST_WINDOW <= value <= _MOST_WINDOW else None


# --- remembering


@dataclass(slots=True)
class _Known:
    fact: Fact
    due: float


class Served:
    """Facts by (upstream, model), and the wishes for more: a `get` of what is not known, or old, is one.

    Whoever can ask takes the wishes. A fact that is asked for again holds until the answer, and a failure
    leaves it as it is. Times are seconds since the epoch.

    Args:
        ttl: seconds after which a fact is asked for again.
        retry: the same where nothing was stated: a model that is loaded on demand states its window then.
    """

    def __init__(self, *, ttl: float = 600.0, retry: float = 60.0) -> None:
        self._ttl = ttl
        self._retry = retry
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._wanted: dict[Key, None] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, *, now: float) -> Fact:
        """What is known; a wish where that is nothing, or old."""
        known = self._known.get(key)
        if (known is None or not known.due - self._ttl <= now < known.due) and asked(key[0]) and key[1]:
            with self._lock:
                if len(self._wanted) < _MOST:
                    self._wanted[key] = None
        return known.fact if known else Fact()

    def take(self, upstream: str, *, now: float, most: int = _MOST) -> tuple[Key, ...]:
        """Wishes for an upstream that nobody has taken yet; taken ones are due again after `retry` seconds."""
        if not self._wanted:
            return ()
        with self._lock:
            taken = tuple([key for key in self._wanted if key[0] == upstream][: max(0, most)])
            for key in taken:
                del self._wanted[key]
                known = self._known.get(key)
                self._set(key, known.fact if known else Fact(), now + self._retry)
        return taken

    def put(self, key: Key, fact: Fact, *, now: float) -> bool:
        """Remember what came of asking; whether the window is another one than before."""
        with self._lock:
            known = self._known.get(key)
            if fact.window is None:
                kept = known.fact if known and known.fact.window else fact
                self._set(key, kept, now + self._retry)
                return False
            self._set(key, fact, now + self._ttl)
            return known is None or known.fact.window != fact.window

    def _set(self, key: Key, fact: Fact, due: float) -> None:
        self._known[key] = _Known(fact, due)
        self._known.move_to_end(key)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
