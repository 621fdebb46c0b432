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
    from ctxproxy.clients.gateway import GatewayCallback
    from ctxproxy.clients.litellm import (
        LiteLLM,
        acompletion,
        anthropic_messages,
        aresponses,
        atext_completion,
        completion,
        responses,
        text_completion,
    )
    from ctxproxy.clients.openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
    from ctxproxy.compaction import Compaction, CompactReason
    from ctxproxy.compressors import (
        TruncatedResult,
        calculate_fresh_tail_budget,
        calculate_priority_score,
        prioritized_compress,
        prune_tool_outputs,
        sliding_window_compress,
        summarize_compress,
        truncate_tool_output,
    )
    from ctxproxy.effects import Report
    from ctxproxy.errors import (
        ConfigError,
        ContextOverflowError,
        CtxProxyError,
        GateError,
        LedgerError,
        SummaryError,
        WireFormatError,
    )
    from ctxproxy.gate import (
        CompressResult,
        GateResult,
        TriggerResult,
        budget_gate,
        check_context_triggers,
        combined_gate_check,
        context_gate,
        handle_checkpoint_context,
        prepare_warmth_for_transfer,
    )
    from ctxproxy.guarding import guard
    from ctxproxy.loop import compact, measure
    from ctxproxy.policy import Policy
    from ctxproxy.session import Checkpoint, Session
    from ctxproxy.strategies.plan import compress_plan
    from ctxproxy.strategies.warmth import compress_warmth
    from ctxproxy.tokens.estimate import estimate_category_tokens, estimate_tokens

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "AsyncAnthropic",
    "AsyncAzureOpenAI",
    "AsyncOpenAI",
    "AzureOpenAI",
    "Checkpoint",
    "CompactReason",
    "Compaction",
    "CompressResult",
    "ConfigError",
    "ContextOverflowError",
    "CtxProxyError",
    "GateError",
    "GateResult",
    "GatewayCallback",
    "LedgerError",
    "Level",
    "LiteLLM",
    "OpenAI",
    "Policy",
    "Report",
    "Session",
    "SummaryError",
    "TokenBudget",
    "TriggerResult",
    "TruncatedResult",
    "WireFormatError",
    "__version__",
    "acompletion",
    "anthropic_messages",
    "aresponses",
    "atext_completion",
    "budget_gate",
    "calculate_fresh_tail_budget",
    "calculate_priority_score",
    "check_context_triggers",
    "combined_gate_check",
    "compact",
    "completion",
    "compress_plan",
    "compress_warmth",
    "context_gate",
    "estimate_category_tokens",
    "estimate_tokens",
    "guard",
    "handle_checkpoint_context",
    "http_client",
    "last_report",
    "measure",
    "prepare_warmth_for_transfer",
    "prioritized_compress",
    "prune_tool_outputs",
    "responses",
    "runtime_of",
    "sliding_window_compress",
    "summarize_compress",
    "text_completion",
    "truncate_tool_output",
    "wrap",
]

_HOME = {
    "Anthropic": "clients.anthropic",
    "AsyncAnthropic": "clients.anthropic",
    "AsyncAzureOpenAI": "clients.openai",
    "AsyncOpenAI": "clients.openai",
    "AzureOpenAI": "clients.openai",
    "Checkpoint": "session",
    "CompactReason": "compaction",
    "Compaction": "compaction",
    "CompressResult": "gate",
    "ConfigError": "errors",
    "ContextOverflowError": "errors",
    "CtxProxyError": "errors",
    "GateError": "errors",
    "GateResult": "gate",
    "GatewayCallback": "clients.gateway",
    "LedgerError": "errors",
    "Level": "budget",
    "LiteLLM": "clients.litellm",
    "OpenAI": "clients.openai",
    "Policy": "policy",
    "Report": "effects",
    "Session": "session",
    "SummaryError": "errors",
    "TokenBudget": "budget",
    "TriggerResult": "gate",
    "TruncatedResult": "compressors",
    "WireFormatError": "errors",
    "acompletion": "clients.litellm",
    "anthropic_messages": "clients.litellm",
    "aresponses": "clients.litellm",
    "atext_completion": "clients.litellm",
    "budget_gate": "gate",
    "calculate_fresh_tail_budget": "compressors",
    "calculate_priority_score": "compressors",
    "check_context_triggers": "gate",
    "combined_gate_check": "gate",
    "compact": "loop",
    "completion": "clients.litellm",
    "compress_plan": "strategies.plan",
    "compress_warmth": "strategies.warmth",
    "context_gate": "gate",
    "estimate_category_tokens": "tokens.estimate",
    "estimate_tokens": "tokens.estimate",
    "guard": "guarding",
    "handle_checkpoint_context": "gate",
    "http_client": "clients",
    "last_report": "clients",
    "measure": "loop",
    "prepare_warmth_for_transfer": "gate",
    "prioritized_compress": "compressors",
    "prune_tool_outputs": "compressors",
    "responses": "clients.litellm",
    "runtime_of": "clients",
    "sliding_window_compress": "compressors",
    "summarize_compress": "compressors",
    "text_completion": "clients.litellm",
    "truncate_tool_output": "compressors",
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
