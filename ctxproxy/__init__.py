"""ctxproxy keeps an LLM conversation inside its context window.

The names below load what they need when they are first used: `import ctxproxy` alone loads no web, command line
or SDK package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxproxy.budget import Level, TokenBudget
    from ctxproxy.clients import http_client, last_report, runtime_of, wrap
    from ctxproxy.clients.anthropic import Anthropic, AsyncAnthropic
    from ctxproxy.clients.openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
    from ctxproxy.compaction import Compaction
    from ctxproxy.effects import Report
    from ctxproxy.errors import (
        ConfigError,
        ContextOverflowError,
        CtxProxyError,
        LedgerError,
        SummaryError,
        WireFormatError,
    )
    from ctxproxy.loop import compact, measure
    from ctxproxy.policy import Policy
    from ctxproxy.tokens.estimate import estimate_category_tokens, estimate_tokens

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "AsyncAnthropic",
    "AsyncAzureOpenAI",
    "AsyncOpenAI",
    "AzureOpenAI",
    "Compaction",
    "ConfigError",
    "ContextOverflowError",
    "CtxProxyError",
    "LedgerError",
    "Level",
    "OpenAI",
    "Policy",
    "Report",
    "SummaryError",
    "TokenBudget",
    "WireFormatError",
    "__version__",
    "compact",
    "estimate_category_tokens",
    "estimate_tokens",
    "http_client",
    "last_report",
    "measure",
    "runtime_of",
    "wrap",
]

_HOME = {
    "Anthropic": "clients.anthropic",
    "AsyncAnthropic": "clients.anthropic",
    "AsyncAzureOpenAI": "clients.openai",
    "AsyncOpenAI": "clients.openai",
    "AzureOpenAI": "clients.openai",
    "Compaction": "compaction",
    "ConfigError": "errors",
    "ContextOverflowError": "errors",
    "CtxProxyError": "errors",
    "LedgerError": "errors",
    "Level": "budget",
    "OpenAI": "clients.openai",
    "Policy": "policy",
    "Report": "effects",
    "SummaryError": "errors",
    "TokenBudget": "budget",
    "WireFormatError": "errors",
    "compact": "loop",
    "estimate_category_tokens": "tokens.estimate",
    "estimate_tokens": "tokens.estimate",
    "http_client": "clients",
    "last_report": "clients",
    "measure": "loop",
    "runtime_of": "clients",
    "wrap": "clients",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctxproxy' has no attribute {name!r}")
    value = getattr(import_module(f"ctxproxy.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
