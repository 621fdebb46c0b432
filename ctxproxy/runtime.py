"""The assembly of an engine with its stores, shared by every surface (CLI, proxy, clients).

An edge: it reads the clock and the model catalogue, and performs the effects that need no network.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ctxproxy import catalogue
from ctxproxy.compaction import Compaction
from ctxproxy.conversation import Api
from ctxproxy.edits import Rules
from ctxproxy.effects import Await, Call, Count, Effect, Keep, KeepForms, Recall, RecallForms, Remember, Summarize
from ctxproxy.engine import Engine, Observed
from ctxproxy.errors import LedgerError
from ctxproxy.ledger import Archive, Ledger, MemoryArchive, MemoryLedger
from ctxproxy.models import ModelInfo, family_of, resolve
from ctxproxy.monitor import Finished, Monitor, events_of, session_of
from ctxproxy.policy import Policy
from ctxproxy.served import Served
from ctxproxy.tokens import Counter, counter
from ctxproxy.wire import WIRES, Reader

__all__ = ["Runtime", "account_of"]

_log = logging.getLogger("ctxproxy")


class Runtime:
    """An engine, its stores and its settings.

    Args:
        policy: the rules where a request does not choose others.
        window: an explicit window in tokens for every model, None to look each up.
        windows: explicit windows in tokens by model name.
        ledger, archive: stores; in memory by default. `archive` None keeps no originals.
        hint: words for the reader of a prompt on how to get a cut text back, from its archive id.
        clock: seconds since the epoch.
        on_compaction: called with every compaction that took effect.
        monitor: keeps the events; a new one by default.
        recorder: called with every finished request, its body included, and its session.
        served: remembers what upstreams say of themselves, where someone asks them; None where nobody does.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        window: int | None = None,
        windows: Mapping[str, int] | None = None,
        ledger: Ledger | None = None,
        archive: Archive | None = None,
        keep_originals: bool = True,
        hint: Callable[[str], str] | None = None,
        clock: Callable[[], float] = time.time,
        on_compaction: Callable[[Compaction], None] | None = None,
        secret: bytes | None = None,
        rules: Rules | None = None,
        monitor: Monitor | None = None,
        served: Served | None = None,
        recorder: Callable[[Finished, str], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.window = window
        self.windows = dict(windows or {})
        self.ledger: Ledger = ledger if ledger is not None else MemoryLedger()
        self.archive: Archive | None = archive if archive is not None or not keep_originals else MemoryArchive()
        self.hint = hint
        self.clock = clock
        self.on_compaction = on_compaction
        self.secret = secret or secrets.token_bytes(32)
        self.rules = rules
        self.monitor = monitor or Monitor()
        self.recorder = recorder
        self.store_faults = 0
        self._catalogue: Mapping[str, Any] | None = None
        self._warned: set[str] = set()
        self._caching: set[tuple[str, str]] = set()
        self._infos: dict[tuple[object, ...], ModelInfo] = {}
        self._families: dict[str, tuple[str, Counter]] = {}
        self.engine = Engine(reader=Reader(counter_for=self.counter_for), models=self.model, served=served)

    def counter_for(self, model: str) -> tuple[str, Counter]:
        """The tokenizer family of a model and its counter."""
        known = self._families.get(model)
        if known is None:
            if len(self._families) > 1_024:
                self._families.clear()
            family = family_of(model)
            known = self._families[model] = (family, counter(family))
        return known

    def model(self, name: str, headers: Mapping[str, str], window: int | None, learned: int | None) -> ModelInfo:
        """What is known of a model. A provider's refusal bounds even an explicit window: it is a measured fact."""
        key = (name, window, learned, headers.get("anthropic-beta"))
        known = self._infos.get(key)
        if known is None:
            if len(self._infos) > 1_024:
                self._infos.clear()
            known = self._infos[key] = self._look_up(name, headers, window, learned)
        return known

    def _look_up(self, name: str, headers: Mapping[str, str], window: int | None, learned: int | None) -> ModelInfo:
        if self._catalogue is None:
            self._catalogue = catalogue.load()
        info = resolve(
            name,
            config=window or self.windows.get(name) or self.window,
            learned=learned,
            catalogue=self._catalogue,
            headers=headers,
        )
        if info.source == "default" and name not in self._warned:
            self._warned.add(name)
            _log.warning(
                "the window of model %r is not known: %s tokens are assumed and nothing is compacted before the "
                "provider refuses (setting: models.<name>.window)",
                name,
                f"{info.window:,}",
            )
        return info

    def call(
        self,
        *,
        api: Api,
        body: bytes,
        upstream: str = "",
        account: str = "",
        headers: Mapping[str, str] | None = None,
        policy: Policy | None = None,
        window: int | None = None,
        target_tokens: int | None = None,
        force: bool = False,
        rules: Rules | None = None,
    ) -> Call:
        """A request for the engine."""
        return Call(
            wire=WIRES[api],
            body=body,
            policy=policy or self.policy,
            rules=rules or self.rules,
            scope=f"{api}:{account}",
            upstream=upstream,
            headers=headers or {},
            window=window,
            target_tokens=target_tokens,
            force=force,
            now=self.clock(),
            archive_key=hashlib.blake2b(account.encode(), key=self.secret, digest_size=32).digest(),
            hint=self.hint,
        )

    def finished(
        self, finished: Finished, usage: Mapping[str, Any] | None = None, *, stop: str | None = None
    ) -> Observed:
        """Learn from a finished answer, its `usage` object and its stop reason, and record what happened.

        A fault here is logged and costs nothing else: the answer is the caller's already.
        """
        seen = Observed()
        try:
            if finished.outcome is not None:
                seen = self.engine.observe(finished.call, finished.outcome, usage, stop=stop)
            told = replace(finished, spent=seen.spent)
            session = session_of(told, secret=self.secret)
            self.monitor.emit(
                *events_of(
                    told,
                    session=session,
                    ended=self.clock(),
                    truncated=seen.truncated,
                    caches=self._caches(told),
                )
            )
            if self.recorder is not None:
                self.recorder(told, session)
        except Exception:
            _log.exception("a fault in ctxproxy; the usage of an answer is not used")
        if seen.truncated:
            self._warn_of_truncation(finished, seen)
        return seen

    def _caches(self, finished: Finished) -> bool:
        """Whether this model's prompts were ever found in a cache of this upstream."""
        report = finished.outcome.report if finished.outcome else None
        key = (finished.call.upstream, report.model if report else "")
        if (finished.spent.cached or finished.spent.written) and len(self._caching) < 1_024:
            self._caching.add(key)
        return key in self._caching

    def _warn_of_truncation(self, finished: Finished, seen: Observed) -> None:
        report = finished.outcome.report if finished.outcome else None
        key = f"{finished.call.upstream} {report.model if report else ''}"
        if key in self._warned:
            return
        self._warned.add(key)
        _log.warning(
            "%s read %s tokens of a prompt of %s: it cut the prompt without a word (setting: models.<name>.window)",
            finished.call.upstream,
            f"{seen.spent.input:,}",
            f"{report.tokens_after:,}" if report else "?",
        )

    @property
    def on_disk(self) -> bool:
        """Whether a store may wait for a file."""
        return not (isinstance(self.ledger, MemoryLedger) and isinstance(self.archive, MemoryArchive | None))

    def close(self) -> None:
        """Close the stores that have something to close."""
        for store in {id(s): s for s in (self.ledger, self.archive, self.recorder)}.values():
            close = getattr(store, "close", None)
            if close is not None:
                close()

    def perform(self, effect: Effect) -> Any:
        """Carry out an effect that needs no network. A store that fails costs its help, never the request."""
        try:
            match effect:
                case Recall():
                    return self.ledger.recall(effect.scope, effect.first)
                case Keep():
                    if self.archive is not None:
                        self.archive.keep(effect.scope, effect.originals)
                    return True
                case Remember():
                    self.ledger.remember(effect.entry)
                    if self.on_compaction is not None:
                        self.on_compaction(effect.entry.compaction)
                    return None
                case RecallForms():
                    return self.ledger.forms(effect.scope, effect.first, effect.keys)
                case KeepForms():
                    self.ledger.keep_forms(effect.scope, effect.first, effect.forms)
                    return None
                case Await():
                    return None  # whoever is waited for may need this very thread
                case Count() | Summarize():
                    return None  # no network here: the caller gets the deterministic notes, or our own count
                case _:
                    raise TypeError(f"{type(effect).__name__} needs a network")
        except LedgerError as error:
            self.store_faults += 1
            _log.warning("a store failed: %s", error)
            return () if isinstance(effect, Recall) else {} if isinstance(effect, RecallForms) else False


def account_of(headers: Mapping[str, str], *, secret: bytes) -> str:
    """Whose request it is, without keeping the key: a keyed hash of the credential; headers in lower case."""
    for name in ("x-api-key", "api-key", "authorization", "x-goog-api-key"):
        value = headers.get(name)
        if value:
            value = value.removeprefix("Bearer ").strip()
            return hashlib.blake2b(
                value.encode("utf-8", "surrogateescape"), key=secret[:64], digest_size=12
            ).hexdigest()
    return "anonymous"
