"""Stores that outlive the process: compactions, originals, learned limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ctxproxy.stores.calibrations import PersistentMeter
from ctxproxy.stores.disk import DiskArchive, References
from ctxproxy.stores.limits import PersistentLimits
from ctxproxy.stores.sqlite import SqliteStore, StoreStatus
from ctxproxy.stores.summaries import SharedSummaries

__all__ = [
    "DiskArchive",
    "PersistentLimits",
    "PersistentMeter",
    "References",
    "SharedSummaries",
    "SqliteStore",
    "StoreStatus",
    "state_folder",
]


def state_folder(env: Mapping[str, str] | None = None) -> Path:
    """Where stores lie by default: `$XDG_STATE_HOME/ctxproxy`, else `~/.local/state/ctxproxy`."""
    home = (os.environ if env is None else env).get("XDG_STATE_HOME", "")
    # The specification wants relative paths ignored.
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state") / "ctxproxy"
