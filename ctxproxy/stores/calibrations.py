"""What was learned about how providers count, beyond the process that learned it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import asdict, fields
from typing import Any, cast

from ctxproxy.errors import LedgerError
from ctxproxy.meter import Meter
from ctxproxy.stores.sqlite import SqliteStore
from ctxproxy.tokens.calibration import FACTOR_RANGE, Calibration

__all__ = ["PersistentMeter"]

_log = logging.getLogger("ctxproxy")

_KIND = "calibration"
_VERSION = 1  # of the record: what another version learned may mean something else
_MOST = 4_096  # models in memory
_EARLY = 5  # samples up to which each is written: the first ones change the most


class PersistentMeter(Meter):
    """A `Meter` whose calibrations lie in a store: read at a model's first use, written at most every `every` seconds.

    A store that fails costs what was learned elsewhere, never the call; a record that can't be right is none.

    Args:
        ttl: seconds that a calibration outlives its last use.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        store: SqliteStore,
        *,
        ttl: float = 30 * 86_400.0,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.faults = 0
        self._store = store
        self._life = ttl
        self._every = every
        self._now = clock
        self._written: OrderedDict[Hashable, float] = OrderedDict()

    def calibration(self, model: Hashable) -> Calibration | None:
        known = super().calibration(model)
        if known is None and model not in self._written:
            self._note(model, -math.inf)
            try:
                known = _read(self._store.get(_KIND, _name(model)))
            except LedgerError as error:
                self._failed(error)
            if known is not None:
                super().keep(model, known)
        return known

    def keep(self, model: Hashable, calibration: Calibration) -> None:
        if calibration != super().calibration(model):
            last, now = self._written.get(model, -math.inf), self._now()
            if calibration.samples <= _EARLY or not 0 <= now - last < self._every:
                self._write(model, calibration)
                self._note(model, now)
        super().keep(model, calibration)

    def _write(self, model: Hashable, calibration: Calibration) -> None:
        def change(old: bytes | None) -> bytes:
            # Of two processes the one that saw more is right; neither can add the other's samples to its own.
            other = _read(old)
            best = other if other is not None and other.samples > calibration.samples else calibration
            return json.dumps({"version": _VERSION, **asdict(best)}).encode()

        try:
            self._store.update(_KIND, _name(model), change, ttl=self._life)
        except LedgerError as error:
            self._failed(error)

    def _note(self, model: Hashable, when: float) -> None:
        self._written[model] = when
        self._written.move_to_end(model)
        while len(self._written) > _MOST:
            self._written.popitem(last=False)

    def _failed(self, error: LedgerError) -> None:
        self.faults += 1
        _log.warning("what was learned about a model's tokens was not shared: %s", error)


def _name(model: Hashable) -> str:
    return json.dumps(model, default=repr)


_RANGES = {
    "factor": FACTOR_RANGE,
    "recent": FACTOR_RANGE,
    "additive": (0.0, 10_000.0),
    "dropped": (0.0, 1.0),
    "calls_dropped": (0.0, 1.0),
    "spread": (0.0, 10.0),
}


def _read(value: bytes | None) -> Calibration | None:
    """A stored calibration; None where there is none, or one that can't be right."""
    try:
        record: object = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    found = cast("dict[str, Any]", record)
    if found.pop("version", None) != _VERSION or found.keys() != {f.name for f in fields(Calibration)}:
        return None
    for name, number in found.items():
        whole = name in ("starts", "tooled", "samples")
        if isinstance(number, bool) or not isinstance(number, int if whole else int | float):
            return None
        low, high = _RANGES.get(name, (0, 1 << 40))
        if not low <= number <= high:  # NaN is in no range
            return None
    return Calibration(**found)
