"""The provider's settings, and what it makes of a well-formed request: refuse, cut, or answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .answers import Answer
from .faults import Fault
from .loopback import Request
from .wordings import WORDINGS, Numbers, Problem, problem_for, wire_error

__all__ = ["Settings", "Verdict", "asked_output", "judge"]

FaultLike = Fault | str | int | None


@dataclass(eq=False)
class Settings:
    """What the provider does. Every attribute may be changed while it runs; see the package's docstring for a tour.

    window        tokens that input and output share
    limit_input   tokens of input alone, where the provider states that apart
    wording       the family in WORDINGS whose words it uses
    profile       rule profile; None takes the wording's
    rules         False: accept requests that break the wire's rules (violations are still recorded)
    max_output    the model's output cap in tokens: a larger max_tokens is refused
    check_output  refuse input + max_tokens > window; None: as the wording's family does
    overflow      what happens to a prompt over the limit: an error; silent truncation; a window stop; nothing
    stream_overflow  a streamed request gets its overflow as 200 + an error event; None: as the family does
    fail_plan     faults of the next calls, in order; None entries are normal answers
    fault         the fault of every call after the plan: a fault, or a function of the request
    answer        what the model says: an Answer, a text, or a function of the request (see server.py)
    strict_thinking  reject thinking blocks whose signature this server did not make
    preserved     check thinking against its prefix; None: by the model's name
    crlf, chunk_bytes, pings, comments, compress  how the bytes of a response look
    max_body      bytes; a larger body gets 413
    api_key       if set, other credentials get 401
    cache         simulate a prompt cache and report cached tokens
    counted       what the counting endpoints say instead of the truth
    count_fault   the fault of every count
    models        what GET /models lists
    """

    window: int = 8192
    limit_input: int | None = None
    wording: str = "openai"
    profile: str | None = None
    rules: bool = True
    max_output: int | None = None
    check_output: bool | None = None
    overflow: Literal["error", "truncate", "stop", "ignore"] = "error"
    stream_overflow: bool | None = None
    fail_plan: Sequence[FaultLike] = ()
    counted: Any = None
    count_fault: FaultLike = None
    fault: FaultLike | Callable[[Request], FaultLike] = None
    answer: Answer | str | Callable[[Request], Any] | None = None
    strict_thinking: bool = False
    preserved: bool | None = None
    crlf: bool = False
    chunk_bytes: int | None = None
    pings: bool = False
    comments: bool = False
    compress: bool = False
    max_body: int = 32 << 20
    api_key: str | None = None
    cache: bool = False
    models: tuple[str, ...] = ("fake-model",)

    @property
    def limit(self) -> int:
        """Tokens that a prompt may have."""
        return self.window if self.limit_input is None else min(self.limit_input, self.window)

    @property
    def rule_profile(self) -> str:
        return self.profile or WORDINGS[self.wording].profile


@dataclass(frozen=True, slots=True)
class Verdict:
    """Refuse with `problem` (`in_stream`: as an event), or answer: `shown` prompt tokens, `room` for output."""

    problem: Problem | None = None
    in_stream: bool = False
    form: str = "failed"
    shown: int = 0
    room: int | None = None
    window_stop: bool = False


def asked_output(body: dict[str, Any], wire: str) -> int:
    """The output tokens that the request asks for; 0 if it does not say."""
    keys = {"chat": ("max_completion_tokens", "max_tokens"), "responses": ("max_output_tokens",)}
    for key in keys.get(wire, ("max_tokens",)):
        if isinstance(body.get(key), int):
            return int(body[key])
    return 0


def judge(s: Settings, wire: str, body: dict[str, Any], tokens: int, fault: Fault | None) -> Verdict:
    """Compare the prompt's tokens and max_tokens with the limits; a fault decides first."""
    asked, model = asked_output(body, wire), str(body.get("model") or "fake-model")
    limit = fault.window if fault and fault.window else s.limit
    kind = fault.kind if fault else ""
    streamed = bool(body.get("stream"))

    def refuse(numbers: Numbers, *, output: bool = False, in_stream: bool | None = None) -> Verdict:
        own = s.stream_overflow if s.stream_overflow is not None else wire in WORDINGS[s.wording].stream
        inside = streamed and (own if in_stream is None else in_stream)
        problem = problem_for(s.wording, numbers, wire, output=output)
        return Verdict(problem, inside, fault.form if fault else "failed")

    if kind in ("overflow", "overflow-stream"):
        prompt = fault.prompt if fault and fault.prompt else max(tokens, limit * 11 // 10)
        return refuse(Numbers(prompt, limit, asked, model), in_stream=True if kind == "overflow-stream" else None)
    if kind == "output-too-long":
        wanted = (fault.max_tokens if fault else None) or max(asked, s.window - tokens + 1)
        return refuse(Numbers(tokens, s.window, wanted, model), output=True)
    over = tokens > limit
    if kind == "truncate" or (over and s.overflow == "truncate"):
        return Verdict(shown=min(tokens, limit), room=asked or None)
    if kind == "window-stop" or (over and s.overflow == "stop"):
        return Verdict(shown=min(tokens, limit), window_stop=True)
    if over and s.overflow == "error":
        return refuse(Numbers(tokens, limit, asked, model))
    if s.max_output is not None and asked > s.max_output:
        return Verdict(_output_cap(wire, asked, s.max_output, model))
    checked = s.check_output if s.check_output is not None else WORDINGS[s.wording].output is not None
    if checked and asked and tokens + asked > s.window:
        return refuse(Numbers(tokens, s.window, asked, model), output=True)
    left = max(0, s.window - tokens) if s.overflow != "ignore" else None
    bounds = [n for n in (asked or None, left, s.max_output) if n is not None]
    room = min(bounds, default=None)
    return Verdict(shown=tokens, room=room, window_stop=room is not None and room == left and room != asked)


def _output_cap(wire: str, asked: int, cap: int, model: str) -> Problem:
    if wire == "messages":
        text = f"max_tokens: {asked} > {cap}, which is the maximum allowed number of output tokens for {model}"
        return wire_error(wire, 400, text)
    text = (
        f"max_tokens is too large: {asked}. This model supports at most {cap} "
        f"completion tokens, whereas you provided {asked}."
    )
    return wire_error(wire, 400, text, param="max_tokens", code="invalid_value")
