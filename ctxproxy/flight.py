"""One guarded call on its way through the engine, without calling the function itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.effects import Answer, Call, Effect, Outcome, Send
from ctxproxy.errors import ContextOverflowError, WireFormatError
from ctxproxy.failures import answer_of, raised
from ctxproxy.messages import Asked
from ctxproxy.parameters import Bound, Shape
from ctxproxy.session import Session

__all__ = ["Flight"]

_log = logging.getLogger("ctxproxy")
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_SYSTEM = {"chat": "system", "responses": "instructions", "messages": "system"}

Step = Send | Outcome | ContextOverflowError


class Flight:
    """One guarded call on its way through the engine: `step` says what is next."""

    def __init__(self, session: Session, bound: Bound, asked: Asked, call: Call) -> None:
        self._session = session
        self._bound = bound
        self._asked = asked
        self._call = call
        self._steps: Generator[Effect, Any, Outcome] | None = session.runtime.engine.run(call)
        self._spent = 0.0
        self._answer: Answer | None = None
        self.step: Step = self._advance(lambda steps: next(steps))

    @classmethod
    def begin(
        cls, session: Session, shape: Shape, args: Any, options: Any, *, model: str | None, retries: int
    ) -> Flight | None:
        """None where there is nothing to look after: then the function is called as it is."""
        bound = shape.bind(args, options)
        if bound is None:
            return None
        named = bound.get("model")
        try:
            asked, call = session.call(
                bound.messages,
                model=named if isinstance(named, str) and named else model,
                system=bound.get(_SYSTEM[session.api]),
                tools=_listed(bound.get("tools")),
                more={name: bound.get(name) for name in _LIMITS if isinstance(bound.get(name), int)},
            )
        except (WireFormatError, TypeError) as error:
            _log.warning("messages are passed on as they are: %s", error)
            return None
        call = replace(call, policy=replace(call.policy, max_retries=retries))
        return cls(session, bound, asked, call)

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the next attempt."""
        assert isinstance(self.step, Send)
        body = self.step.body
        if body is self._call.body:
            return self._bound.arguments(None, {})
        members = rawjson.members(body)
        limits = {name: rawjson.load(members[name]) for name in _LIMITS if name in members}
        return self._bound.arguments(self._asked.own(body), limits)

    def answered(self, result: Any) -> None:
        self._go_on(Answer(status=200, handle=result))

    def failed(self, error: Exception) -> None:
        """The function raised. An error that says that it is ours has been looked after further in."""
        if isinstance(error, ContextOverflowError):
            self._go_on(Answer(status=200, handle=Raised(error)))
            return
        answer = answer_of(error)
        self._go_on(Answer(status=answer.status, headers=answer.headers, body=answer.body, handle=Raised(error)))

    def result(self) -> Any:
        """What the function returned, or the error for the caller, raised."""
        step = self.step
        if isinstance(step, ContextOverflowError):
            self._done(None, status=0, error=step)
            raise step
        assert isinstance(step, Outcome)
        result = step.answer.handle
        if not isinstance(result, Raised):
            self._done(step, status=200, result=result)
            return result
        self._done(step, status=step.answer.status)
        if step.error is not None:
            raise raised(result.error, step.error)
        raise result.error

    def _go_on(self, answer: Answer) -> None:
        self._answer = answer
        if self._steps is None:
            self.step = Outcome(answer=answer, report=None)
        else:
            self.step = self._advance(lambda steps: steps.send(answer))

    def _advance(self, first: Callable[[Generator[Effect, Any, Outcome]], Effect]) -> Step:
        """Run the engine until the function has to be called, or all is done."""
        steps = self._steps
        assert steps is not None
        began = time.perf_counter()
        try:
            effect = first(steps)
            while not isinstance(effect, Send):
                effect = steps.send(self._session.runtime.perform(effect))
            return effect
        except StopIteration as stop:
            return stop.value
        except ContextOverflowError as error:
            return error
        except Exception:
            # Fail open: a bug of ours must not cost the user the call. An answer that is here already counts.
            _log.exception("a fault in ctxproxy; the function is called as if it were not there")
            self._steps = None
            return Outcome(answer=self._answer, report=None) if self._answer else Send(self._call.body, 1)
        finally:
            self._spent += time.perf_counter() - began

    def _done(
        self, outcome: Outcome | None, *, status: int, result: Any = None, error: ContextOverflowError | None = None
    ) -> None:
        if outcome is not None and outcome.prepared is not None:
            self._session.seen(self._call, outcome.prepared)
        self._session.finished(self._call, outcome, status=status, result=result, error=error, overhead=self._spent)


@dataclass(frozen=True, slots=True)
class Raised:
    error: Exception


def _listed(value: Any) -> list[Any] | None:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple) else None
