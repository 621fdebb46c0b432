"""A session: the context of one agent in a loop of your own, and of the agents that it spawns.

session = ctxproxy.Session(model="gpt-4o")
messages = session.compact(messages)          # remembered: the next turn gets the same bytes
response = client.chat.completions.create(model="gpt-4o", messages=messages)
session.observe(response)
print(session.status())
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ctxproxy.budget import CATEGORIES, TokenBudget, Usage, level_of, usage_of
from ctxproxy.effects import Answer, Call, Outcome, Prepared, Report, drive
from ctxproxy.errors import ConfigError, ContextOverflowError, GateError
from ctxproxy.failures import usage_of as usage_in
from ctxproxy.gate import GateResult, handle_checkpoint_context, prepare_warmth_for_transfer
from ctxproxy.gating import Limit, Spawn, check_spawn, measured
from ctxproxy.messages import Asked, ask
from ctxproxy.models import ModelInfo
from ctxproxy.monitor import Event, Finished, Monitor, events_of
from ctxproxy.monitor.log import EventLog
from ctxproxy.policy import Policy, preset
from ctxproxy.runtime import Runtime
from ctxproxy.status import status_block

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checkpoint", "Session"]

_Client = TypeVar("_Client")
_ACCOUNT = "local"  # whose conversations they are: whoever runs the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint: `compressed_warmth` for the continuation, and `messages` with finished work archived, if given.

    Tokens are those of the messages, 0 where none were given. `at` is in seconds since the epoch.
    """

    label: str
    at: float
    session_id: str
    agent: str
    warmth: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    compressed_warmth: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    messages: tuple[Any, ...] | None = field(default=None, repr=False)
    tokens_before: int = 0
    tokens_after: int = 0


class Session:
    """Keeps the context of an agent inside its window, remembers what was compacted, and says what happened.

    It calls no model: what is dropped leaves notes of its facts. Safe to use from several threads.

    Args:
        model: its name tells tokenizer, window and prices.
        window: tokens of the model's window, None to look it up.
        policy: the rules, or the name of a preset (`default`, `gentle`, `aggressive`, `grid`).
        cost_limit: USD that the session may cost, all its agents together; the gate blocks over it.
        session_id: its name in the event log; made of the time by default.
        agent: the name of the agent in the event log.
        api: what the messages are of: chat, responses or messages.
        system, tools: what stands outside the messages in each request; they count and stay.
        upstream: the provider's base URL, where its rules for the order of messages are special.
        runtime: memory and settings to share; a new one by default.
        log_file: an event log to write to.

    Raises:
        ConfigError: there is no such preset or API, or the window is no positive number.
    """

    def __init__(
        self,
        *,
        model: str = "",
        window: int | None = None,
        policy: Policy | str | None = None,
        cost_limit: float | None = None,
        session_id: str | None = None,
        agent: str = "",
        api: str = "chat",
        system: Any = None,
        tools: Iterable[Any] | None = None,
        upstream: str = "",
        runtime: Runtime | None = None,
        log_file: str | Path | None = None,
    ) -> None:
        if window is not None and window < 1:
            raise ConfigError(f"window: {window} is not allowed; it is a number of tokens over 0", key="window")
        ask((), api=api)
        self.runtime = runtime or Runtime()
        rules = preset(policy) if isinstance(policy, str) else policy or self.runtime.policy
        self.policy = replace(rules, summaries=False)
        self.model = model
        self.window = window
        self.cost_limit = cost_limit
        self.agent_limit: float | None = None
        now = datetime.fromtimestamp(self.runtime.clock(), UTC)
        self.session_id = session_id or f"sess-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self.agent = agent
        self.api = api
        self.system = system
        self.tools = None if tools is None else list(tools)
        self.upstream = upstream
        self.warmth: Mapping[str, Any] = MappingProxyType({})
        self.plan: str | None = None
        self._lock = RLock()
        self._usage: Usage | None = None
        self._due: float | None = None
        self._newest: tuple[Call, Outcome] | None = None
        if log_file is not None:
            self.runtime.monitor.listen(EventLog(log_file))

    def __repr__(self) -> str:
        return f"Session(session_id={self.session_id!r}, agent={self.agent!r}, model={self.model!r})"

    # -- messages

    def compact(self, messages: Iterable[Any], *, model: str | None = None) -> list[Any]:
        """The messages to send: as they are while they fit comfortably, else smaller. Always a new list.

        Give it the whole history on every turn: what was cut once is replaced by the same bytes again, so that the
        provider's prompt cache keeps working. Messages that stay are the same objects.

        Raises:
            ContextOverflowError: they certainly can't fit.
            WireFormatError: a message is not of the session's API.
        """
        asked, call = self.call(messages, model=model)
        try:
            prepared = drive(self.runtime.engine.prepare(call), self.runtime.perform)
        except ContextOverflowError as error:
            self._tell(call, None, error)
            raise
        outcome = Outcome(answer=Answer(status=0), report=prepared.report, prepared=prepared)
        with self._lock:
            self._newest = call, outcome
        self.seen(call, prepared)
        self._tell(call, replace(outcome, compaction=prepared.compaction), None)
        return asked.own(prepared.body)

    def observe(self, response: Any) -> None:
        """Learn from the response to the newest `compact`: an SDK's object or a dict with `usage`.

        It makes later measures exact, and is a request in the event log.
        """
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            call, outcome = newest
            self.finished(call, outcome, status=200, result=response)

    def measure(self, messages: Iterable[Any], *, model: str | None = None) -> Report:
        """How large a request with these messages is, with what is remembered of them replaced, and its level.

        Raises:
            WireFormatError: a message is not of the session's API.
        """
        _, call = self.call(messages, model=model, due=False)
        prepared = measured(self.runtime, call)
        report = prepared.report
        level = level_of(report.tokens_after / report.window, self.policy.thresholds)
        report = replace(report, level=level.name, tokens_before=report.tokens_after)
        self.seen(call, replace(prepared, report=report))
        return report

    @property
    def usage(self) -> Usage:
        """The newest measure: tokens by category, of the total."""
        with self._lock:
            if self._usage is not None:
                return self._usage
        split: Mapping[str, int] = MappingProxyType({str(name): 0 for name in CATEGORIES})
        return Usage(value=0, margin=0, basis="counted", by_category=split, total=self.info().window)

    @property
    def budget(self) -> TokenBudget:
        """The window, split by the policy's shares."""
        return TokenBudget(total=self.usage.total, shares=self.policy.shares)

    @property
    def events(self) -> Sequence[Event]:
        """What happened in the session, all its agents together, oldest first."""
        return self.runtime.monitor.events(session=self.session_id)

    @property
    def monitor(self) -> Monitor:
        return self.runtime.monitor

    def spent(self, agent: str | None = None) -> float:
        """USD of the session's requests so far, or of one agent's, by the provider's figures and known prices."""
        return self.runtime.monitor.spent(self.session_id, agent)

    def status(self) -> str:
        """The Context Budget Status: a bar, the level, tokens by category of their allocations, and a note."""
        return status_block(self.usage, thresholds=self.policy.thresholds, shares=self.policy.shares)

    def restore(self, id: str) -> str | None:
        """What was cut, by its id in `events`; None where it is not kept."""
        archive = self.runtime.archive
        data = archive.restore(f"{self.api}:{_ACCOUNT}", id) if archive is not None else None
        return None if data is None else data.decode("utf-8", "replace")

    # -- agents

    def gate(
        self,
        messages: Iterable[Any] | None = None,
        *,
        agent: str = "",
        estimated_tokens: int | None = None,
        model: str | None = None,
        output_tokens: int | None = None,
        estimated_cost: float | None = None,
        warmth: Mapping[str, Any] | None = None,
        plan: str | None = None,
    ) -> GateResult:
        """Whether an agent may be spawned: first by cost, then by context. Recorded as events.

        Args:
            messages: the context that is checked, and compacted where due; else `estimated_tokens`, else the
                newest measure.
            agent: the name of the agent to spawn.
            model: its model; the session's by default.
            output_tokens: expected output, for the cost; the budget's reserve by default.
            estimated_cost: USD, in place of the estimate by the catalogue's prices.
            warmth, plan: what is handed over. They count besides; the result has them, within their allocations
                where the context is compressed (under `grid` always).

        Raises:
            WireFormatError: a message is not of the session's API.
        """
        call = None
        tokens = self.usage.value if estimated_tokens is None else estimated_tokens
        if tokens < 0:
            raise ConfigError(f"estimated_tokens: {tokens} is not allowed; tokens can't be negative")
        if messages is not None:
            _, call = self.call(messages, model=model, due=False)
        return check_spawn(
            self.runtime,
            Spawn(
                session=self.session_id,
                agent=agent,
                policy=self.policy,
                info=self.info(model),
                call=call,
                tokens=tokens,
                warmth=warmth,
                plan=plan,
                output=output_tokens,
                cost=estimated_cost,
                limits=(Limit(spent=self.spent(), limit=self.cost_limit), self._agent_budget()),
            ),
        )

    def spawn(
        self,
        *,
        agent: str,
        warmth: Mapping[str, Any] | None = None,
        plan: str | None = None,
        model: str | None = None,
        window: int | None = None,
        cost_limit: float | None = None,
        messages: Iterable[Any] | None = None,
        **options: Any,
    ) -> Session:
        """A session for a sub-agent, behind the gate: same session id and memory, a context of its own.

        Its `warmth` and `plan` are what to hand over, within their allocations.

        Args:
            cost_limit: USD that this agent alone may cost.
            messages: this agent's context, which the gate checks; its newest measure by default.
            options: api, system, tools, policy, where they differ.

        Raises:
            GateError: the gate does not allow it; its `result` says why.
        """
        result = self.gate(messages, agent=agent, model=model, warmth=warmth, plan=plan)
        if not result.allowed:
            raise GateError(result.message or "the gate does not allow it", result=result)
        settled: dict[str, Any] = {"api": self.api, "policy": self.policy, "upstream": self.upstream, **options}
        child = Session(
            model=self.model if model is None else model,
            window=window or (self.window if model is None else None),
            cost_limit=self.cost_limit,
            session_id=self.session_id,
            agent=agent,
            runtime=self.runtime,
            **settled,
        )
        child.agent_limit = cost_limit
        budget = TokenBudget(total=child.info().window, shares=child.policy.shares)
        count = self.runtime.counter_for(child.model)[1].count
        handed = result.warmth or {}
        child.warmth = prepare_warmth_for_transfer(handed, budget=budget.allocation("warmth"), count=count)
        child.plan = result.plan
        return child

    def checkpoint(
        self,
        label: str,
        *,
        warmth: Mapping[str, Any] | None = None,
        messages: Iterable[Any] | None = None,
        target: float | None = None,
    ) -> Checkpoint:
        """Mark a checkpoint: finished work goes into the notes, and warmth is compressed for the continuation.

        Args:
            warmth: what was learned; at most 8,000 tokens of it stay (a smaller window: its share less a fifth).
            messages: the history; the result has it compacted. Without it the next `compact` or guarded call is.
            target: share of the window down to which it is compacted; half of the policy's target by default.

        Raises:
            ConfigError: `target` is no share.
            WireFormatError: a message is not of the session's API.
        """
        share = self.policy.target / 2 if target is None else target
        if not 0 < share <= 1:
            raise ConfigError(f"target: {share} is not allowed; it is a share of the window, as 0.35", key="target")
        budget = TokenBudget(total=self.info().window, shares=self.policy.shares)
        found: list[Any] | None = None
        before = after = 0

        def archive() -> None:
            nonlocal found, before, after
            with self._lock:
                self._due = share
            if messages is not None:
                given = list(messages)
                before = self.measure(given).tokens_before
                found = self.compact(given)
                after = self.usage.value

        done = handle_checkpoint_context(
            {"label": label, "warmth": warmth or {}},
            archive=archive,
            target_tokens=min(8_000, int(budget.allocation("warmth") * 0.8)),
            count=self.runtime.counter_for(self.model)[1].count,
        )
        made = Checkpoint(
            label=label,
            at=self.runtime.clock(),
            session_id=self.session_id,
            agent=self.agent,
            warmth=MappingProxyType(dict(warmth or {})),
            compressed_warmth=done["compressed_warmth"],
            messages=None if found is None else tuple(found),
            tokens_before=before,
            tokens_after=after,
        )
        usage = self.usage
        self.runtime.monitor.emit(
            Event(
                type="checkpoint",
                at=made.at,
                id=secrets.token_hex(8),
                session=self.session_id,
                agent=self.agent,
                api=self.api,
                model=self.model,
                window=usage.total,
                level=level_of(usage.fraction, self.policy.thresholds).name,
                before=before or usage.value,
                after=after or usage.value,
                label=label,
            )
        )
        return made

    # -- ways in

    def guard(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """`ctxproxy.guard` for a function of this session."""
        from ctxproxy.guarding import guard

        decorate = guard(session=self, **options)
        return decorate if function is None else decorate(function)

    def wrap(self, client: _Client) -> _Client:
        """`ctxproxy.wrap` with this session's runtime, rules and names."""
        from ctxproxy.clients import wrap

        return wrap(
            client,
            policy=self.policy,
            window=self.window,
            runtime=self.runtime,
            session=self.session_id,
            agent=self.agent,
        )

    # -- for the guard

    def info(self, model: str | None = None) -> ModelInfo:
        """What is known of a model, the session's by default."""
        name = self.model if model is None else model
        return self.runtime.model(name, {}, self.window if name == self.model else None, None)

    def call(
        self,
        messages: Iterable[Any],
        *,
        model: str | None = None,
        system: Any = None,
        tools: Iterable[Any] | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
        due: bool = True,
    ) -> tuple[Asked, Call]:
        """The request that messages make, for the engine. With `due`, a checkpoint's compaction is part of it."""
        asked = ask(
            messages,
            model=self.model if model is None else model,
            system=self.system if system is None else system,
            tools=self.tools if tools is None else tools,
            api=self.api,
            more=more,
        )
        policy, force = self.policy, False
        with self._lock:
            if due and self._due is not None:
                share = min(self._due, policy.target)
                policy = replace(
                    policy, target=share, emergency_target=share, overflow_target=share, relative_reduction=None,
                    literal_window=False,
                )  # fmt: skip
                force, self._due = True, None
        call = self.runtime.call(
            api=self.api,
            body=asked.body,
            upstream=self.upstream,
            account=_ACCOUNT,
            policy=policy,
            window=self.window,
            force=force,
        )
        return asked, call

    def seen(self, call: Call, prepared: Prepared) -> None:
        """Note the newest measure."""
        report = prepared.report
        usage = usage_of(
            replace(prepared.conversation, messages=prepared.sent or prepared.conversation.messages),
            total=report.window,
            value=report.tokens_after,
            margin=report.margin,
            tags={"plan": call.policy.tags.plan, "warmth": call.policy.tags.warmth},
        )
        with self._lock:
            self._usage = usage

    def finished(
        self,
        call: Call,
        outcome: Outcome | None,
        *,
        status: int,
        result: Any = None,
        error: ContextOverflowError | None = None,
        overhead: float = 0.0,
    ) -> None:
        """Record a request, and learn from what its function returned."""
        usage, stop = usage_in(result) if result is not None else (None, None)
        done = self._done(call, outcome, error, status=status, overhead=overhead)
        self.runtime.finished(done, usage, stop=stop)

    def _done(
        self,
        call: Call,
        outcome: Outcome | None,
        error: ContextOverflowError | None,
        *,
        status: int = 0,
        overhead: float = 0.0,
    ) -> Finished:
        return Finished(
            id=secrets.token_hex(8),
            call=call,
            outcome=outcome,
            error=error,
            status=status,
            account=_ACCOUNT,
            session=self.session_id,
            agent=self.agent,
            upstream=self.upstream,
            overhead=overhead,
        )

    def _tell(self, call: Call, outcome: Outcome | None, error: ContextOverflowError | None) -> None:
        """Record what `compact` did; no request has been sent by it."""
        events = events_of(self._done(call, outcome, error), session=self.session_id)
        self.runtime.monitor.emit(*(event for event in events if event.type != "request"))

    def _agent_budget(self) -> Limit:
        return Limit(spent=self.spent(self.agent) if self.agent_limit is not None else 0.0, limit=self.agent_limit)
