"""The classifier, one vector or more for each rule, figure and fingerprint of its table, and its invariants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxproxy.overflow import TABLE, Sent, Table, Verdict, classify, classify_line
from ctxproxy.overflow_rules import FIELDS, HEADERS, VOCABULARY

OVERFLOW, OUTPUT, PAYLOAD, RATE, OTHER = "token_overflow", "output_too_long", "payload_too_large", "rate_limit", "other"

ANY = "any rule"  # for vectors about a number or a provider
# (rule, class, body, what the verdict must state, how it is classified). Bodies are short, in the shape of a family.
Vector = tuple[str | None, str, str, dict[str, Any], dict[str, Any]]


def v(
    rule: str | None, kind: str, body: str | dict[str, Any], /, *, how: dict[str, Any] | None = None, **states: Any
) -> Vector:
    return rule, kind, body if isinstance(body, str) else json.dumps(body), states, how or {}


def window(
    tokens: int | None, asked: int | None = None, kind: str | None = None, output: int | None = None
) -> dict[str, Any]:
    return {"context_window": tokens, "requested_tokens": asked, "requested_kind": kind, "max_tokens": output}


RULE_VECTORS: list[Vector] = [
    v("text-bytes", OVERFLOW, "too many total text bytes: 9500000 > 9000000", **window(None), provider="anthropic"),
    v("titan-max-length", OVERFLOW, "Malformed input: expected maxLength: 300, actual: 411", **window(None),
      provider="bedrock"),
    v("size-in-tokens", OVERFLOW, "Request body too large. Max size: 7000 tokens.", how={"status": 413},
      **window(7000)),
    v("vllm-characters", OVERFLOW, "your prompt contains 90000 characters", **window(None), provider="vllm"),
    v("vllm-characters", OUTPUT, "This model's maximum context length is 9000 tokens. However, you requested 500"
      " output tokens and"
      " your prompt contains 30000 characters (more than 8, which is the upper bound for 9 input tokens)",
      **window(9000, output=500)),
    v("vllm-characters", OVERFLOW, "This model's maximum context length is 9000 tokens. However, you requested 500"
      " output tokens and"
      " your prompt contains 99000 characters", **window(9000, output=500)),
    v("negative-max-tokens", OVERFLOW, "max_tokens must be at least 1, got -57.", **window(None), provider="vllm"),
    v("negative-max-tokens", OTHER, "max_tokens must be at least 1, got -57.", how={"sent": Sent(max_tokens=-57)}),
    v("vllm-max-tokens", OUTPUT, "'max_tokens' is too large: 900. This model's maximum context length is 1000 tokens"
      " and your"
      " request has 300 input tokens (900 > 1000 - 300).", room_tokens=700, **window(1000, 300, "prompt", 900),
      provider="vllm"),
    v("rate-code", RATE, {"error": {"code": "insufficient_quota", "message": "Check your plan."}}),
    v("rate-code", RATE, {"error": {"type": "rate_limit_error", "message": "prompt is too long"}}),
    v("rate-per-time", RATE, "too many input tokens per minute"),
    v("rate-per-time", RATE, "Request too large on TPM: Limit 500, Requested 700", tpm_limit=500, requested_tokens=700),
    v("rate-per-time", RATE, "On tokens per min: Limit 500, Used 400, Requested 200", tpm_limit=None,
      requested_tokens=200),
    v("rate-per-time", RATE, "On tokens per min: Limit 500, Requested 200", tpm_limit=None, requested_tokens=200),
    v("rate-words", RATE, "Too many tokens, please wait before the next call"),
    v("quota-words", RATE, "Input tokens exceed the quota of this project"),
    v("rate-cjk", RATE, "请求过于频繁，输入过长"),
    v("string-length", OTHER, "Invalid input[3]: string too long. Expected a string with maximum length 90",
      **window(None)),
    v("media-limit", OTHER, "messages.2: image exceeds 5 MB maximum: 7000000 bytes > 5000000 bytes"),
    v("output-cap", OTHER, "max_tokens: 900 > 400, which is the maximum allowed number of output tokens for m",
      max_tokens=900),
    v("output-cap", OTHER, "thinking: budget_tokens exceeds max tokens"),
    v("output-param", OTHER, "max_tokens must be less than 800"),
    v("output-param", OTHER, "the number of completion tokens provided exceeds the model's limit of 800"),
    v("unsupported-param", OTHER, "Unsupported parameter: 'max_tokens'; the model's maximum context length is 900"),
    v("echo", OTHER, "Failed to parse tool call arguments as JSON: 'prompt is too long'"),
    v("tool-pairing", OTHER, "tool_use_id not found; the input exceeds the context window"),
    v("memory", OTHER, "Prefill needs 15 GB; reduce the prompt or the context length, maximum context length is 900"),
    v("batch-limit", OTHER, "Requested 900 tokens, max 500 tokens per request", requested_tokens=900),
    v("too-small", OTHER, "context window too small, maximum context length is 900"),
    v("client-text", OTHER, 'Compaction failed: 400 {"message":"prompt is too long"}', **window(None)),
    v("characters", OTHER, "message exceeds maximum context length of 900 characters"),
    v("byte-size", PAYLOAD, "Request payload size exceeds the limit: 900000 bytes.", how={"status": 413}),
    v("byte-size", PAYLOAD, "<html><head><title>413 Request Entity Too Large</title></head></html>",
      how={"status": 413}),
    v("string-value-length", PAYLOAD, "String value length (900) exceeds the maximum allowed (800)", **window(None)),
    v("anthropic-sum", OUTPUT, "input length and max_tokens exceed context limit, lower one", provider="anthropic"),
    v("anthropic-sum", OUTPUT, "input length and `max_tokens` exceed context limit: 700 + 400 > 1000, decrease one",
      room_tokens=300, **window(1000, 700, "prompt", 400)),
    v("anthropic-sum", OVERFLOW, "input length and `max_tokens` exceed context limit: 1700 + 400 > 1000, decrease one",
      room_tokens=None, **window(1000, 1700, "prompt", 400)),
    v("tgi-sum", OUTPUT, "`inputs` tokens + `max_new_tokens` must be <= 900. Given: 800 `inputs` tokens and 300"
      " `max_new_tokens`",
      **window(900, 800, "prompt", 300), provider="tgi"),
    v("tgi-inputs", OVERFLOW, "`inputs` must have less than 900 tokens. Given: 1200", how={"status": 422},
      limit_is_input=True,
      **window(900, 1200, "prompt")),
    v("minimax-window", OVERFLOW, "invalid params, context window exceeds limit (7777)", **window(None),
      provider="minimax"),
    v("volc-message-tokens", OVERFLOW, "Messages exceed max message tokens: 900", **window(None),
      provider="volcengine"),
    v("zhipu-1261", OVERFLOW, {"error": {"code": "1261", "message": "参数有误"}}, provider="zhipu"),
    v("ollama-delta", OVERFLOW, "prompt too long; exceeded max context length by 40 tokens", **window(None),
      provider="ollama"),
    v("sambanova-generation", OVERFLOW, "Requested generation length 5 is not possible! The provided prompt is 900"
      " tokens long, so"
      " generating 5 tokens requires 905, but the maximum supported sequence length is just 800!", **window(800,
      900, "prompt", 5), provider="sambanova"),
    v("snowflake-max-tokens", OVERFLOW, "max tokens of 900 exceeded", **window(900), provider="snowflake"),
    v("output-over-context", OUTPUT, "max_tokens would exceed context window"),
    v("sum-over-context", OVERFLOW, "total number of tokens (prompt and prediction) cannot exceed 900 - received 1200",
      **window(900, 1200, "total")),
    v("sum-over-context", OUTPUT, "total number of tokens (prompt and prediction) cannot exceed 900 - received 1200",
      how={"sent": Sent(max_tokens=500)}, **window(900, 1200, "total")),
    v("prompt-over-context", OVERFLOW, "Your input exceeds the context window of this model. Please adjust it."),
    v("prompt-over-context", OVERFLOW, "The input (1200 tokens) is longer than the model's context length (900"
      " tokens).",
      **window(900, 1200, "prompt")),
    v("length-over-maximum", OVERFLOW, "the length of input exceeds max_length"),
    v("length-over-maximum", OVERFLOW, "Messages exceed the max length"),
    v("request-over-context", OVERFLOW, "Requested token count exceeds the model's maximum context length of 900"
      " tokens.",
      **window(900)),
    v("request-over-context", OUTPUT, "Requested token count exceeds the model's maximum context length of 900"
      " tokens. You requested a"
      " total of 1200 tokens: 700 tokens from the input messages and 500 tokens for the completion.",
      prompt_tokens=700, room_tokens=200, **window(900, 1200, "total", 500)),
    v("count-over-limit", OVERFLOW, "prompt token count of 1200 exceeds the limit of 900", **window(900, 1200,
      "prompt")),
    v("count-in-range", OVERFLOW, "Range of input length should be [1, 900]", limit_is_input=True, **window(900)),
    v("over-context", OVERFLOW, "exceeds the max_seq_len"),
    v("context-exceeded", OVERFLOW, "Maximum context length exceeded"),
    v("context-exceeded", OUTPUT, "Maximum context length exceeded", how={"sent": Sent(tokens=500, max_tokens=700,
      window=1000)}),
    v("context-exceeded", OVERFLOW, "Maximum context length exceeded", how={"sent": Sent(tokens=1500,
      max_tokens=700, window=1000)}),
    v("context-exceeded", OUTPUT, "Maximum context length exceeded", how={"sent": Sent(max_tokens=700, window=1000)}),
    v("context-full", OVERFLOW, "Out of context space"),
    v("context-full", OVERFLOW, "No space left in context"),
    v("too-long", OVERFLOW, "Input is too long for requested model m."),
    v("too-long", OVERFLOW, "prompt is too long: 1200 tokens > 900 maximum", **window(900, 1200, "prompt")),
    v("too-many-tokens", OVERFLOW, "Too many input tokens."),
    v("too-long-cjk", OVERFLOW, "本次请求的 token 数超过模型的上下文"),
    v("too-long-cjk", OVERFLOW, "コンテキスト長の上限を超えています"),
    v("too-long-cjk", OVERFLOW, "입력 토큰이 최대 길이를 초과했습니다"),
    v("context-code", OVERFLOW, {"error": {"code": "context_length_exceeded", "message": "refused"}},
      how={"status": 500}),
    v("context-code", OVERFLOW, {"error": {"code": "context_length_exceeded", "message": "slow"}}, how={"status": 429}),
    v("prompt-code", OVERFLOW, {"message": "No.", "reason": "CONTENT_LENGTH_EXCEEDS_THRESHOLD"}),
    v("numbers", OVERFLOW, "Model context window is 9k tokens, you requested 12k tokens", **window(9000, 12000,
      "total")),
    v("numbers", OUTPUT, "This model's maximum context length is 900 tokens. However, you requested 1200 tokens (700"
      " in the"
      " messages, 500 in the completion).", room_tokens=200, **window(900, 1200, "total", 500)),
    v("numbers", OUTPUT, "This model's maximum context length is 900 tokens, however you requested 1200 tokens.",
      how={"sent": Sent(max_tokens=500)}, **window(900, 1200, "total")),
    v("reduce-length", OVERFLOW, "Please reduce the length of the messages."),
    v(None, OTHER, "Please reduce the length of the messages.", how={"status": 502}),
    v("limit-stated", OVERFLOW, "This model's maximum context length is 900 tokens", **window(900)),
    v(None, OTHER, "This model's maximum context length is 900 tokens", how={"status": 503}),
    v("limit-stated", OUTPUT, "This model's maximum context length is 9000 tokens. However, you requested 9000"
      " output tokens.",
      **window(9000, output=9000)),
    v("payload-code", PAYLOAD, {"type": "error", "error": {"type": "request_too_large", "message": "Too much."}},
      how={"status": 413}),
    v("too-long", OVERFLOW, {"error": {"type": "request_too_large",
      "message": "This prompt is far too long"}},
      how={"status": 413}),
    v("status-limited", RATE, "prompt is too long", how={"status": 429}),
    v("status-limited", RATE, "prompt is too long", how={"status": 402}),
    v(None, OTHER, "prompt is too long", how={"status": 401}),
    v(None, OTHER, "cannot compute the maximum context length", how={"status": 500}),
    v(None, OTHER, "context deadline exceeded", how={"status": 504}),
    v(None, OTHER, "too many tokens"),
    v(None, OTHER, "stop sequence exceeds maximum length"),
]  # fmt: skip

FIGURE_VECTORS: list[Vector] = [
    v(ANY, OVERFLOW, "Request length 1200 + 40 is greater than max_seq_len 900", **window(900, 1200, "prompt", 40)),
    v(ANY, OVERFLOW, "The prompt is over the context length (n_keep: 1200>= n_ctx: 900)", **window(900, 1200,
      "prompt")),
    v(ANY, OVERFLOW, "Context window exceeded: 1200 tokens exceeds the limit of 900", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Prompt 1200 > 900 maximum context length", **window(900, 1200, "prompt")),
    v(ANY, RATE, "Prompt tokens limit exceeded: 1200 > 900", how={"status": 402}, requested_tokens=1200,
      context_window=None),
    v(ANY, OVERFLOW, "Context Window exceeded for given call. Model=m, Max Input Tokens=900, Got=1200",
      limit_is_input=True, **window(900, 1200, "prompt")),
    v(ANY, OUTPUT, "You passed 5901 input tokens and requested 3100 output tokens. However, the model's context"
      " length is only"
      " 9000 tokens", **window(9000, 5901, "prompt_lower_bound", 3100)),
    v(ANY, OVERFLOW, "You passed 9950 input tokens and requested 3100 output tokens. However, the model's context"
      " length is only"
      " 9000 tokens", **window(9000, 9950, "prompt", 3100)),
    v(ANY, OUTPUT, "This model's maximum context length is 9000 tokens. However, you requested 3100 output tokens"
      " and your"
      " prompt contains at least 5901 input tokens, for a total of at least 9001 tokens.", **window(9000, 5901,
      "prompt_lower_bound", 3100)),
    v(ANY, OVERFLOW, "This model's maximum context length is 9000 tokens. However, you requested 100 output tokens"
      " and your"
      " prompt contains at least 8901 input tokens.", **window(9000, 8901, "prompt_lower_bound", 100)),
    v(ANY, OVERFLOW, "This model's maximum context length is 9000 tokens. However, you requested 3100 output tokens"
      " and your"
      " prompt contains at least 5901 input tokens.", how={"sent": Sent(tokens=9500)}, **window(9000, 5901,
      "prompt_lower_bound", 3100)),
    v(ANY, OVERFLOW, "This model's maximum context length is 900 tokens. However, you requested 0 output tokens and"
      " your prompt"
      " contains at least 901 input tokens", **window(900, 901, "prompt_lower_bound", 0)),
    v(ANY, OUTPUT, "Your request exceeds this model's maximum context length of 900 tokens. You requested ~1200"
      " tokens (700 input + 500 output).", prompt_tokens=700, **window(900, 1200, "total", 500)),
    v(ANY, OTHER, "it has a maxOutputTokens value of 900 but the supported range is from 1 to 801", max_tokens=900),
    v(ANY, OTHER, "integer above maximum value, expected a value <= 800, but got 900 instead", max_tokens=900),
    v(ANY, RATE, "This needs more credits. You requested up to 900 tokens.", how={"status": 402}, max_tokens=900),
    v(ANY, OVERFLOW, "maximum context length is 900 tokens (1200 in your prompt)", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Your request exceeded model token limit: 900 (requested: 1200)", **window(900, 1200, "total")),
    v(ANY, OVERFLOW, "The maximum context length of M-V3 is 900. However, your request will take 1200 tokens.",
      **window(900, 1200, "total")),
    v(ANY, OVERFLOW, "Current length is 1200 while limit is 900", **window(900, 1200, "total")),
    v(ANY, OVERFLOW, "This request's total token count is 1200, which exceeds the maximum context size of 900 tokens.",
      **window(900, 1200, "total")),
    v(ANY, OVERFLOW, "maximum context length is 900 tokens. However, your messages resulted in 1,200 tokens.",
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Provided 1,200 tokens, but the maximum allowed is 900.", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "maximum prompt length is 900 but the request contains 1200 tokens", limit_is_input=True,
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "The prompt is1200tokens and the context window is900!", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "length of prompt_tokens (1200) must be less than max_seq_len (900)", **window(900, 1200,
      "prompt")),
    v(ANY, OVERFLOW, "The decoder prompt (length 1200) is longer than the maximum model length of 900",
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Input length 1200 exceeds the maximum allowed input length of 900 tokens", limit_is_input=True,
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Context limit is 900 tokens; prompt=1200 leaves 0 output tokens", how={"status": 404},
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "The prompt is too long: 1200, model maximum context length: 900", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "The input token count exceeds the maximum number of tokens allowed 900.", limit_is_input=True,
      **window(900)),
    v(ANY, OVERFLOW, "Prompt contains 1200 tokens and 0 draft tokens, too large for model with 900 maximum context"
      " length",
      **window(900, 1200, "prompt")),
    v(ANY, OUTPUT, "max_tokens (800) plus prompt tokens (700) exceeds the context window (900)", **window(900, 700,
      "prompt", 800)),
    v(ANY, OVERFLOW, "The prompt (1,200 tokens) is larger than what m can handle (900 tokens).", **window(900, 1200,
      "prompt")),
    v(ANY, OVERFLOW, "Context overflow: your request is ~1,200 tokens, which exceeds the 900 token safety limit",
      **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "prompt tokens (1200) exceed model maximum (900)", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "it contains 1200 tokens and the model accepts at most 900", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "Requested 1200 tokens but the model only has a context of 900", **window(900, 1200, "total")),
    v(ANY, OVERFLOW, "Prompt too large: 1200 tokens; limit is 900 tokens", **window(900, 1200, "prompt")),
    v(ANY, OVERFLOW, "The input and maximum output tokens (1200) exceeded the context window limit (900).",
      **window(900, 1200, "total")),
    v(ANY, OUTPUT, "Output of 300 tokens does not fit: the prompt is 700 tokens and the context window is 900 tokens.",
      **window(900, 700, "prompt", 300)),
    v(ANY, OVERFLOW, "the number of input tokens 1200 cannot exceed the total tokens limit 900", **window(900, 1200,
      "prompt")),
    v(ANY, OVERFLOW, "input exceeds the model's limit of 64,000 tokens", **window(64000)),
]  # fmt: skip

FIELD_VECTORS: list[Vector] = [
    v("context-code", OVERFLOW, {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 1200, "n_ctx": 900}},
      provider="llama.cpp", **window(900, 1200, "prompt")),
    *(v("context-code", OVERFLOW, {"error": {"code": "context_window_exceeded", name: 900}},
        **(window(900) if role in ("window", "limit") else window(None, 900, role)), limit_is_input=role == "limit")
      for name, role in FIELDS.items()),
]  # fmt: skip

STOP_VECTORS: list[Vector] = [
    v("stop-window-exceeded", OVERFLOW, {"type": "message", "content": [],
      "stop_reason": "model_context_window_exceeded"},
      answered=True,
      how={"status": 200}),
    v("stop-length-at-edge", OVERFLOW, {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 995,
      "completion_tokens": 5}},
      answered=True, requested_tokens=995, how={"status": 200, "sent": Sent(window=1000, max_tokens=400)}),
    v(None, OTHER, {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 600,
      "completion_tokens": 400}},
      how={"status": 200, "sent": Sent(window=1000, max_tokens=400)}),
    v(None, OTHER, {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 300,
      "completion_tokens": 400}},
      how={"status": 200, "sent": Sent(window=1000)}),
    v("stop-length-empty", OVERFLOW, {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 40,
      "completion_tokens": 0}},
      how={"status": 200}),
    v("stop-length-empty", OVERFLOW, "CompletionOutput(index=0, text='', token_ids=[], finish_reason=length)",
      how={"status": 200}),
    v(None, OTHER, {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 40, "completion_tokens": 0}},
      how={"status": 200, "sent": Sent(max_tokens=0)}),
    v(None, OTHER, {"choices": [{"index": 0, "finish_reason": "length"}]}, how={"status": 200}),
    v(None, OTHER, {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
      how={"status": 200}),
    v("stop-length-at-edge", OVERFLOW, {"type": "response.incomplete",
      "response": {"incomplete_details": {"reason": "max_output_tokens"},
      "usage": {"input_tokens": 900, "output_tokens": 100}}}, how={"status": 200, "sent": Sent(window=1000,
      max_tokens=400)}),
    v("usage-contradiction", OVERFLOW, {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 900, "total_tokens": 90}}, how={"status": 200}),
    v("silent-truncation", OVERFLOW, {"response": "hm", "prompt_eval_count": 515}, how={"status": 200,
      "sent": Sent(tokens=5000, window=1024)}),
    v(None, OTHER, {"response": "hm", "prompt_eval_count": 515}, how={"status": 200}),
    v(None, OTHER, {"response": "hm", "prompt_eval_count": 950}, how={"status": 200, "sent": Sent(tokens=1030,
      window=1024)}),
    v("empty-body-full-window", OVERFLOW, "413 (no body)", how={"status": 413, "sent": Sent(tokens=980,
      window=1000)}),
    v(None, OTHER, "413 (no body)", how={"status": 413, "sent": Sent(tokens=500, window=1000)}),
    v(None, OTHER, "", how={"status": 400}),
]  # fmt: skip

QUOTE = "Error: 400 prompt is too long: 219000 tokens > 200000 maximum, context_length_exceeded"
QUOTES: list[Vector] = [
    v(None, OTHER, QUOTE, how={"status": 200}),
    v(None, OTHER, json.dumps(QUOTE), how={"status": 200}),
    v(None, OTHER, {"choices": [{"message": {"role": "assistant", "content": QUOTE}, "finish_reason": "stop"}]},
      how={"status": 200}),
    v(None, OTHER, {"choices": [{"text": QUOTE, "finish_reason": "stop"}]}, how={"status": None}),
    v(None, OTHER, {"type": "message", "content": [{"type": "text", "text": QUOTE}], "stop_reason": "end_turn"},
      how={"status": 200}),
    v(None, OTHER, {"object": "response", "status": "completed", "error": None, "metadata": {"message": QUOTE,
      "code": QUOTE},
                    "output": [{"type": "message", "content": [{"text": QUOTE}]}]}, how={"status": 200}),
    v(None, OTHER, {"type": "response.output_text.delta", "delta": QUOTE}, how={"status": 200,
      "stream_event": "response.output_text.delta"}),
    v(None, OTHER, 'data: {"choices":[{"delta":{"content":"prompt is too long: 9 tokens > 5 maximum'
      ' error"}}]}\n\ndata: [DONE]\n\n', how={"status": 200}),
    v(None, OTHER, {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required",
      "input": {"messages": QUOTE}}]},
      how={"status": 422}),
    v(None, OTHER, {"error": {"message": "Tool call failed", "failed_generation": QUOTE,
      "request": {"messages": [QUOTE]}}}),
]  # fmt: skip

PROVIDER_VECTORS: list[Vector] = [
    v(ANY, OVERFLOW, "This endpoint's maximum context length is 900 tokens.", provider="openrouter"),
    v(ANY, OVERFLOW, "Input is too long for requested model m", provider="bedrock"),
    v(ANY, OVERFLOW, "prompt is too long: 1200 tokens > 900 maximum", provider="anthropic"),
    v(ANY, OVERFLOW, "The input token count (1200) exceeds the maximum number of tokens allowed (900).",
      provider="gemini"),
    v(ANY, OVERFLOW, "maximum prompt length is 900 but the request contains 1200 tokens", provider="xai"),
    v(ANY, OVERFLOW, "prompt token count of 1200 exceeds the limit of 900", provider="copilot"),
    v(ANY, OVERFLOW, "request (1200 tokens) exceeds the available context size (900 tokens)", provider="llama.cpp"),
    v(ANY, OVERFLOW, "tokens to keep from the initial prompt is greater than the context length", provider="lmstudio"),
    v(ANY, OVERFLOW, "Prompt 1200 > 900 maximum context length", provider="mistral"),
    v(ANY, OVERFLOW, "maximum context length is 900 tokens (parameter=input_tokens, value=1)", provider="vllm"),
    v(ANY, OVERFLOW, "Your request exceeded model token limit: 900", provider="moonshot"),
    v(ANY, OVERFLOW, "Current length is 1200 while limit is 900", provider="cerebras"),
    v(ANY, OVERFLOW, "length of prompt_tokens (1200) must be less than max_seq_len (900)", provider="siliconflow"),
    v(ANY, OVERFLOW, "Groq: please reduce the length of the messages", provider="groq"),
    v(ANY, OVERFLOW, "total number of tokens in the prompt cannot exceed 900", provider="cohere"),
    v(ANY, OVERFLOW, {"message": "No.", "reason": "CONTENT_LENGTH_EXCEEDS_THRESHOLD"}, provider="kiro"),
    v(ANY, OVERFLOW, "Your input exceeds the context window of this model.", provider="openai"),
    v(ANY, OVERFLOW, "inputs must have less than 900 tokens. Given: 1200", provider="tgi"),
    v(ANY, OVERFLOW, {"error": {"metadata": {"raw": "prompt is too long", "provider_name": "Fast"}, "code": 400}},
      provider="fast"),
    *(v(ANY, OVERFLOW, "prompt is too long", how={"headers": {name.title(): "x"}}, provider=maker) for name,
      maker in HEADERS.items()),
]  # fmt: skip

VECTORS = RULE_VECTORS + FIGURE_VECTORS + FIELD_VECTORS + STOP_VECTORS + QUOTES + PROVIDER_VECTORS


def run(vector: Vector, table: Table = TABLE) -> Verdict:
    _, _, body, _, how = vector
    return classify(body=body.encode(), table=table, **({"status": 400} | how))


def differences(vector: Vector, table: Table = TABLE) -> dict[str, tuple[object, object]]:
    """What the verdict on a vector gets wrong: field -> (is, should be)."""
    rule, kind, _, states, _ = vector
    verdict = run(vector, table)
    wanted = {"rule": rule, "kind": kind} | states
    if rule == ANY:
        del wanted["rule"]
    return {name: (getattr(verdict, name), value) for name, value in wanted.items() if getattr(verdict, name) != value}


def failing(table: Table) -> Vector | None:
    """The first vector that a table gets wrong; what a mutation check needs."""
    return next((vector for vector in VECTORS if differences(vector, table)), None)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector[0]}: {vector[2][:50]}")
def test_vector(vector: Vector) -> None:
    assert differences(vector) == {}


def test_every_rule_has_a_vector() -> None:
    assert {rule.name for rule in TABLE.rules} <= {vector[0] for vector in RULE_VECTORS}
    assert {mark.provider for mark in TABLE.fingerprints} <= {vector[3].get("provider") for vector in PROVIDER_VECTORS}


def test_table_is_well_formed() -> None:
    names = [rule.name for rule in TABLE.rules]
    assert len(names) == len(set(names))
    assert all(rule.source for rule in TABLE.rules)
    for entry in (*TABLE.rules, *TABLE.figures, *TABLE.fingerprints):
        assert set(VOCABULARY) >= set(_placeholders(entry.pattern)), entry


def _placeholders(pattern: str) -> list[str]:
    parts = pattern.split("{")[1:]
    return [name for part in parts if (name := part.partition("}")[0]).isalpha()]


@pytest.mark.parametrize(("text", "tokens"), [
    ("131072", 131072), ("131,072", 131072), ("131_072", 131072), ("131.072", 131072), ("131\u202f072", 131072),
      ("128k", 128000),
    ("1.5M", 1500000), ("~4096", 4096),
])  # fmt: skip
def test_number_formats(text: str, tokens: int) -> None:
    body = f"This model's maximum context length is {text} tokens."
    assert classify(status=400, body=body.encode()).context_window == tokens


def test_stream_events() -> None:
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "context_length_exceeded", "message": "m"}},
    }
    assert classify(status=200, body=json.dumps(failed).encode(), stream_event="response.failed").kind == OVERFLOW
    text = b"This prompt is far too long"
    assert classify(status=200, body=text, stream_event="error").kind == OVERFLOW
    assert classify(status=200, body=text, stream_event="message").kind == OTHER
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "model_context_window_exceeded"},
        "usage": {"output_tokens": 9},
    }
    verdict = classify(status=200, body=json.dumps(delta).encode(), stream_event="message_delta", wire="messages")
    assert (verdict.kind, verdict.answered) == (OVERFLOW, True)
    stream = b'data: {"choices":[{"delta":{}}]}\n\ndata: {"error":{"message":"Input is too long."}}\n\ndata: [DONE]\n\n'
    assert classify(status=200, body=stream).kind == OVERFLOW
    assert classify(status=200, body=b'error: {"code":400,"message":"prompt is too long"}\n\n').kind == OVERFLOW


def test_the_gravest_of_several_errors_counts() -> None:
    body = {
        "error": {
            "message": "All failed",
            "attempts": [{"status": 429, "message": "slow down"}, {"message": "prompt is too long"}],
        }
    }
    verdict = classify(status=500, body=json.dumps(body).encode())
    assert (verdict.kind, verdict.message) == (OVERFLOW, "prompt is too long")


def test_message_is_the_providers_own_and_bounded() -> None:
    verdict = classify(
        status=400,
        body=json.dumps({"error": {"message": "prompt is too long\n" + "x" * 9000, "model": "m-1"}}).encode(),
    )
    assert verdict.message.startswith("prompt is too long x")
    assert len(verdict.message) == 500
    assert verdict.model == "m-1"


def test_a_default_window_does_not_turn_a_stated_overflow_around() -> None:
    sent = Sent(tokens=300, max_tokens=200, window=100_000)
    assert classify(status=400, body=b"prompt is too long: 1200 tokens > 900 maximum", sent=sent).kind == OVERFLOW
    assert classify(status=400, body=b"Input is too long.", sent=sent).kind == OVERFLOW
    assert classify(status=400, body=b"Input length 9000 exceeds model limit", sent=sent).kind == OVERFLOW
    stated = b"Requested tokens (700) exceed context window of 900"
    assert classify(status=400, body=stated, sent=Sent(max_tokens=100)).kind == OVERFLOW
    assert classify(status=400, body=stated, sent=Sent(max_tokens=300)).kind == OUTPUT


def test_classify_line() -> None:
    line = {"id": 7, "status": 400, "body": "Prompt 1200 > 900 maximum context length", "headers": {"x": "y"},
      "wire": "chat",
            "stream_event": None, "sent": {"tokens": 1100, "max_tokens": None, "window": "many"}}  # fmt: skip
    assert classify_line(line) == {
        "id": 7, "class": OVERFLOW, "context_window": 900, "requested_tokens": 1200, "requested_kind": "prompt",
        "max_tokens": None,
        "provider": "mistral", "rule": "prompt-over-context",
    }  # fmt: skip
    assert classify_line({"id": "a", "body": ""})["class"] == OTHER


@pytest.mark.parametrize("line", [
    {}, {"body": None}, {"body": 5}, {"body": "", "status": "400"}, {"body": "", "status": True}, {"body": "",
      "headers": []},
    {"body": "", "sent": 5}, {"body": "", "wire": 1}, {"body": "", "stream_event": {}},
])  # fmt: skip
def test_bad_line(line: dict[str, object]) -> None:
    answer = classify_line({"id": "z"} | line)
    assert set(answer) == {"id", "error"}
    assert answer["id"] == "z"


_WORDS = ["prompt", "input", "tokens", "exceeds", "maximum", "context", "length", "limit of", "too long",
  "max_tokens", "requested",
          "900", "1,200", ">", "+", "(", ")", "\\", '"', "{", "[", "\n", "\n\n", "data:", "error", "event: error",
          "429", "输入", "超过",
          "\ud800", "\x00", "&gt;", "<html>", "is", ".", ":", "_"]  # fmt: skip
_TEXT = st.one_of(st.text(max_size=300), st.lists(st.sampled_from(_WORDS), max_size=60).map(" ".join))
_KEYS = st.sampled_from(["error", "message", "code", "status", "type", "detail", "errors", "metadata", "raw",
  "choices", "usage",
                         "prompt_tokens", "finish_reason", "delta", "response", "n_ctx", "stop_reason",
                         "x"])  # fmt: skip
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=5), inner.map(json.dumps)
    ),
    max_leaves=12,
)
_BODIES = st.one_of(
    st.binary(max_size=300),
    _TEXT.map(lambda text: text.encode("utf-8", "replace")),
    _JSON.map(lambda value: json.dumps(value).encode()),
)
_COUNTS = st.one_of(st.none(), st.integers(-5, 10**9))
_SENT = st.one_of(st.none(), st.builds(Sent, tokens=_COUNTS, max_tokens=_COUNTS, window=_COUNTS))


@settings(deadline=None)
@given(
    body=_BODIES,
    status=st.sampled_from([None, 200, 400, 402, 404, 413, 422, 429, 500, 503]),
    stream_event=st.sampled_from([None, "error", "response.failed", "message_delta", ""]),
    sent=_SENT,
)
def test_no_input_raises(body: bytes, status: int | None, stream_event: str | None, sent: Sent | None) -> None:
    verdict = classify(status=status, body=body, stream_event=stream_event, sent=sent)
    assert len(verdict.message) <= 500
    for name in ("context_window", "requested_tokens", "max_tokens", "prompt_tokens", "total_tokens", "tpm_limit"):
        count = getattr(verdict, name)
        assert count is None or 0 <= count < 10**12
    assert (verdict.requested_tokens is None) == (verdict.requested_kind is None)
    assert verdict.room_tokens is None or verdict.room_tokens > 0


@settings(deadline=None)
@given(text=_TEXT, kind=st.sampled_from(["chat", "messages", "plain"]))
def test_an_answer_is_never_an_error(text: str, kind: str) -> None:
    bodies = {
        "chat": json.dumps({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}),
        "messages": json.dumps(
            {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        ),
        "plain": json.dumps({"content": text, "message": text}),
    }
    assert classify(status=200, body=bodies[kind].encode()).kind == OTHER


@pytest.mark.parametrize("body", [
    b"[" * 200_000, b'{"error":' * 100_000, json.dumps({"error": {"message": "prompt exceeds " * 50_000}}).encode(),
    b"\\" * 100_000, b'{"error": {"message": ' + b"9" * 5000 + b"}}", b"data: {" * 20_000, b"<html>" + b"<" * 100_000,
    json.dumps({"errors": [{"message": "maximum context length of the "}] * 5000}).encode(), b"\xff" * 70_000,
], ids=range(9))  # fmt: skip
def test_hostile_bodies_are_survived(body: bytes) -> None:
    assert classify(status=400, body=body).kind in (OVERFLOW, OTHER)
