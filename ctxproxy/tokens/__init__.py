"""Counting tokens: counters by tokenizer family, request overheads, media costs, calibration."""

from __future__ import annotations

from ctxproxy.tokens.calibration import Anchor, Calibration, Measurement, judge, predict
from ctxproxy.tokens.counter import counter
from ctxproxy.tokens.estimate import estimate_category_tokens, estimate_tokens
from ctxproxy.tokens.families import FAMILIES, Counter, byte_bound
from ctxproxy.tokens.media import audio_tokens, data_url_tokens, document_tokens, image_size, image_tokens
from ctxproxy.tokens.overhead import message_overhead, part_overhead, request_overhead, tools_tokens
from ctxproxy.tokens.spent import Spent, input_tokens_of, spent_of

__all__ = [
    "FAMILIES",
    "Anchor",
    "Calibration",
    "Counter",
    "Measurement",
    "Spent",
    "audio_tokens",
    "byte_bound",
    "counter",
    "data_url_tokens",
    "document_tokens",
    "estimate_category_tokens",
    "estimate_tokens",
    "image_size",
    "image_tokens",
    "input_tokens_of",
    "judge",
    "message_overhead",
    "part_overhead",
    "predict",
    "request_overhead",
    "spent_of",
    "tools_tokens",
]
