"""How each provider family says that a prompt is too long: status, headers and JSON body, built from numbers.

A `Wording` has up to two sentences: `overflow` (the prompt alone is too long) and `output` (the prompt fits, but not
together with max_tokens); a family without the second does not refuse that. The sentences are the providers' own forms
as their users report them; the numbers are always ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["WORDINGS", "Numbers", "Problem", "Wording", "problem_for", "wire_error"]

Json = Any
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the refused request asked for, in tokens; `max_tokens` is 0 where none was sent."""

    prompt: int
    window: int
    max_tokens: int = 0
    model: str = "fake-model"

    def fields(self) -> dict[str, Any]:
        total = self.prompt + self.max_tokens
        # vLLM only knows a lower bound of the prompt: it stops counting where the prompt cannot fit any more
        least = min(self.prompt, self.window - self.max_tokens + 1) if self.max_tokens else self.prompt
        return {
            "prompt": self.prompt,
            "window": self.window,
            "max": self.max_tokens,
            "model": self.model,
            "total": total,
            "least": least,
            "least_total": least + self.max_tokens,
            "room": max(0, self.window - self.prompt),
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer: the body is JSON, or text where it is bytes."""

    status: int
    body: Json
    headers: Headers = ()

    def encoded(self) -> tuple[bytes, str]:
        """(body bytes, content type)."""
        if isinstance(self.body, bytes):
            return self.body, "text/html" if self.body.startswith(b"<") else "text/plain"
        return json.dumps(self.body, ensure_ascii=False).encode(), "application/json"


Envelope = Callable[[str, dict[str, Any]], Json]


def _openai(
    code: Any = "context_length_exceeded", kind: str = "invalid_request_error", param: Any = "messages"
) -> Envelope:
    return lambda text, n: {"error": {"message": text, "type": kind, "param": param, "code": code}}


def _anthropic(text: str, n: dict[str, Any]) -> Json:
    error = {"type": "invalid_request_error", "message": text}
    return {"type": "error", "error": error, "request_id": "req_011fake"}


def _flat(kind: str = "BadRequestError", code: Any = 400, **more: Any) -> Envelope:
    return lambda text, n: {"object": "error", "message": text, "type": kind, "param": None, "code": code, **more}


def _google(text: str, n: dict[str, Any]) -> Json:
    return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}


def _llama(status: int) -> Envelope:
    def envelope(text: str, n: dict[str, Any]) -> Json:
        counts = {"n_prompt_tokens": n["prompt"], "n_ctx": n["window"]}
        return {"error": {"code": status, "message": text, "type": "exceed_context_size_error", **counts}}

    return envelope


def _router(text: str, n: dict[str, Any]) -> Json:
    return {"error": {"message": text, "code": 400, "metadata": {"provider_name": None}}}


def _keys(key: str = "message", **more: Any) -> Envelope:
    return lambda text, n: {key: text, **more}


def _string(text: str, n: dict[str, Any]) -> Json:
    return text


def _litellm(text: str, n: dict[str, Any]) -> Json:
    prefix = "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - "
    return {"error": {"message": prefix + text, "type": None, "param": None, "code": "400"}}


def _databricks(text: str, n: dict[str, Any]) -> Json:
    return {"error_code": "BAD_REQUEST", "message": json.dumps({"message": text}) + "\n"}


def _bytes(text: str, n: dict[str, Any]) -> Json:
    return text.encode()


@dataclass(frozen=True, slots=True)
class Wording:
    """One family. `stream` names the wires on which a streamed request gets HTTP 200 and the error as an event."""

    overflow: str
    envelope: Envelope
    output: str | None = None
    status: int = 400
    stream: frozenset[str] = frozenset()
    profile: str = "default"
    output_envelope: Envelope | None = None


_MAX_LEN = "This model's maximum context length is {window} tokens. "
_SPLIT = (
    "However, you requested {total} tokens ({prompt} in the messages, {max} in the completion). "
    "Please reduce the length of the messages or completion."
)
_OPENAI = _MAX_LEN + "However, your messages resulted in {prompt} tokens. Please reduce the length of the messages."
_OPENAI_RESPONSES = "Your input exceeds the context window of this model. Please adjust your input and try again."
_ANTHROPIC = "prompt is too long: {prompt} tokens > {window} maximum"
_ANTHROPIC_SUM = (
    "input length and `max_tokens` exceed context limit: {prompt} + {max} > {window}, "
    "decrease input length or `max_tokens` and try again"
)
_GEMINI = "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})."
_VLLM = (
    "However, you requested {max} output tokens and your prompt contains at least {least} input tokens, for a total of "
    "at least {least_total} tokens. Please reduce the length of the input prompt or the number of "
    "requested output tokens."
)
_VLLM_INPUT = "However, your request has {prompt} input tokens. Please reduce the length of the input messages."
_ROUTER = "This endpoint's maximum context length is {window} tokens. However, you requested about {total} tokens "
_ROUTER_END = " Please reduce the length of either one, or use the context-compression plugin to compress your prompt."
_TGI = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: "
    "{prompt} `inputs` tokens and {max} `max_new_tokens`"
)
_LLAMA = "request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
_SGLANG = (
    "Requested token count exceeds the model's maximum context length of {window} tokens. You requested "
    "a total of {total} "
    "tokens: {prompt} tokens from the input messages and {max} tokens for the completion."
)
_TGI_TYPE = _keys("error", error_type="validation")
_RESPONSES = frozenset({"responses"})

WORDINGS: dict[str, Wording] = {
    "openai": Wording(_OPENAI, _openai(), _MAX_LEN + _SPLIT, stream=_RESPONSES),
    "azure": Wording(_OPENAI, _openai(), _MAX_LEN + _SPLIT),
    "openai-input": Wording(
        "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in {prompt} tokens.",
        _openai(),
    ),
    "anthropic": Wording(_ANTHROPIC, _anthropic, _ANTHROPIC_SUM),
    "anthropic-413": Wording("Request size exceeds model context window", _anthropic, status=413),
    "bedrock": Wording(
        "The model returned the following errors: Input is too long for requested model.", _keys(), profile="bedrock"
    ),
    "bedrock-claude": Wording("The model returned the following errors: " + _ANTHROPIC, _keys(), profile="bedrock"),
    "bedrock-mantle": Wording("prompt tokens ({prompt}) exceed model maximum ({window})", _openai(None)),
    "gemini": Wording(_GEMINI, _google, profile="gemini"),
    "gemini-nested": Wording(
        _GEMINI, lambda t, n: {"error": {"message": json.dumps(_google(t, n), indent=2), "code": 400}}
    ),
    "gemini-array": Wording(_GEMINI, lambda t, n: [_google(t, n)], profile="gemini"),
    "mistral": Wording(
        "Prompt contains {prompt} tokens and 0 draft tokens, too large for model with {window} maximum context length",
        _flat("invalid_request_error", "3051", raw_status_code=400),
        profile="mistral",
    ),
    "mistral-new": Wording(
        "Prompt {prompt} > {window} maximum context length",
        _flat("invalid_request_prompt_too_long", "3059"),
        profile="mistral",
    ),
    "xai": Wording(
        "This model's maximum prompt length is {window} but the request contains {prompt} tokens.",
        _keys("error", code="Client specified an invalid argument"),
    ),
    "xai-string": Wording(
        "This model's maximum prompt length is {window} but the request contains {prompt} tokens.", _string
    ),
    "groq": Wording("Please reduce the length of the messages or completion.", _openai()),
    "deepseek": Wording(
        _MAX_LEN + _SPLIT, _openai("invalid_request_error", param=None), _MAX_LEN + _SPLIT, profile="deepseek"
    ),
    "kimi": Wording(
        "Invalid request: Your request exceeded model token limit: {window} (requested: {total})",
        _openai(None, param=None),
    ),
    "cerebras": Wording(
        "Please reduce the length of the messages or completion. Current length is {total} while limit is {window}",
        _keys(code="context_length_exceeded"),
    ),
    "sambanova": Wording(
        "The maximum context length of {model} is {window}. However, answering your request will take {total} tokens. "
        "Please reduce the length of the messages or the specified max_completion_tokens value.",
        _openai(None),
    ),
    "openrouter": Wording(
        _ROUTER + "({prompt} of text input, {max} in the output)." + _ROUTER_END,
        _router,
        _ROUTER + "({prompt} of text input, {max} in the output)." + _ROUTER_END,
    ),
    "openrouter-200": Wording(
        _ROUTER + "({prompt} of text input)." + _ROUTER_END,
        _router,
        status=200,
        stream=frozenset({"chat", "responses", "messages"}),
    ),
    "copilot": Wording(
        "prompt token count of {prompt} exceeds the limit of {window}",
        lambda t, n: {"error": {"message": t, "code": "model_max_prompt_tokens_exceeded"}},
    ),
    "github-models": Wording(
        "Request body too large for {model} model. Max size: {window} tokens.",
        lambda t, n: {"error": {"code": "tokens_limit_reached", "message": t}},
        status=413,
    ),
    "vllm": Wording(
        _MAX_LEN + _VLLM_INPUT, _openai(400, "BadRequestError", "input_tokens"), _MAX_LEN + _VLLM, profile="strict-args"
    ),
    "vllm-old": Wording(_MAX_LEN + _SPLIT, _flat(), _MAX_LEN + _SPLIT),
    "vllm-bound": Wording(_MAX_LEN + _VLLM, _openai(400, "BadRequestError", "input_tokens"), _MAX_LEN + _VLLM),
    "sglang": Wording(
        "The input ({prompt} tokens) is longer than the model's context length ({window} tokens).", _flat(), _SGLANG
    ),
    "llama.cpp": Wording(_LLAMA, _llama(400)),
    "llama.cpp-500": Wording(
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        _llama(500),
        status=500,
    ),
    "ollama-cloud": Wording("The prompt is too long: {prompt}, model maximum context length: {window}", _keys("error")),
    "lmstudio": Wording(
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: "
        "{prompt}>= n_ctx: {window}). "
        "Try to load the model with a larger context length, or provide a shorter input.",
        _keys("error"),
        stream=frozenset({"chat"}),
    ),
    "tgi": Wording(
        "Input validation error: `inputs` must have less than {window} tokens. Given: {prompt}",
        _TGI_TYPE,
        _TGI,
        status=422,
    ),
    "tgi-stream": Wording(
        _TGI, lambda t, n: {"error": {"message": t, "http_status_code": 422}}, status=422, stream=frozenset({"chat"})
    ),
    "siliconflow": Wording(
        "length of prompt_tokens ({prompt}) must be less than max_seq_len ({window}).", _keys(code=20015, data=None)
    ),
    "deepinfra": Wording(
        "Requested input length {prompt} exceeds maximum input length {window}",
        lambda t, n: {"error": {"message": t}},
        status=500,
    ),
    "together": Wording(_TGI, _openai(None, param=None), _TGI, status=422),
    "dashscope": Wording(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, {window}]",
        _openai("invalid_parameter_error", param=None),
    ),
    "zai": Wording("Prompt exceeds max length", lambda t, n: {"error": {"code": "1261", "message": t}}),
    "minimax": Wording("invalid params, context window exceeds limit (2013)", _anthropic),
    "watsonx": Wording(
        "input token count ({prompt}) is above the limit ({window})",
        lambda t, n: {"errors": [{"code": "token_quantity_exceeded", "message": t}]},
    ),
    "kiro": Wording("Input is too long.", _keys(reason="CONTENT_LENGTH_EXCEEDS_THRESHOLD")),
    "databricks": Wording("prompt is too long: {prompt} tokens > {window} maximum", _databricks),
    "litellm": Wording(_OPENAI, _litellm, _MAX_LEN + _SPLIT),
    "litellm-503": Wording(
        "litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: OpenAIException - Requested token "
        "count exceeds "
        "the model's maximum context length of {window} tokens.",
        _openai(None),
        status=503,
    ),
    "zed": Wording(
        "Context window exceeded: {prompt} tokens exceeds the limit of {window} tokens",
        _keys(code="http_403"),
        status=403,
    ),
    "mlx": Wording(
        "Context limit is {window} tokens; prompt={prompt} leaves {room} output tokens, below the minimum 16",
        _bytes,
        status=404,
    ),
    "commas": Wording("prompt too long: {prompt:,} tokens > {window:,} token limit", _openai(None)),
}


def problem_for(name: str, numbers: Numbers, wire: str, *, output: bool = False) -> Problem:
    """How family `name` refuses these numbers; `output`: the prompt fits and only max_tokens is too much."""
    wording = WORDINGS[name]
    sentence = wording.output or wording.overflow if output else wording.overflow
    envelope = wording.output_envelope or wording.envelope if output else wording.envelope
    fields = numbers.fields()
    if name == "openai" and wire == "responses":
        sentence, envelope = _OPENAI_RESPONSES, _openai(param="input")
    if name in ("openai", "azure", "litellm") and wire == "messages":
        name, sentence, envelope = "anthropic", _ANTHROPIC_SUM if output else _ANTHROPIC, _anthropic
    return Problem(wording.status, envelope(sentence.format(**fields), fields), _headers(wire))


def _headers(wire: str) -> Headers:
    name = "request-id" if wire == "messages" else "x-request-id"
    return ((name, "req_011fake"),)


def wire_error(wire: str, status: int, message: str, *, kind: str = "", code: Any = None, param: Any = None) -> Problem:
    """An error in the wire's own envelope, for everything that is not about the window."""
    kinds = {
        401: "authentication_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    }
    if wire == "messages":
        error = {"type": kind or kinds.get(status, "invalid_request_error"), "message": message}
        return Problem(status, {"type": "error", "error": error, "request_id": "req_011fake"}, _headers(wire))
    fallback = "server_error" if status >= 500 else "requests" if status == 429 else "invalid_request_error"
    error = {"message": message, "type": kind or fallback, "param": param, "code": code}
    return Problem(status, {"error": error}, _headers(wire))
