"""Server-sent events; see ctxproxy.frames, which the clients share."""

from __future__ import annotations

from ctxproxy.frames import Frame, Frames, verdict_of

__all__ = ["Frame", "Frames", "verdict_of"]
