"""The forms in which messages were first sent, through the engine; tests/proxy/test_sticks.py does it with bytes."""

from __future__ import annotations

import json
from typing import Any

from flipping import Client, array, common

from ctxproxy.effects import Answer, Effect, KeepForms, RecallForms, Send, drive
from ctxproxy.forms import keys_of
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime


class Upstream:
    """Answers with the statuses of a plan, then 200; notes what was sent and kept."""

    def __init__(self, *plan: int) -> None:
        self.runtime = Runtime(policy=Policy(summaries=False), window=4_000, clock=lambda: 1_000.0)
        self.plan = list(plan)
        self.sent: list[bytes] = []
        self.kept: list[KeepForms] = []
        self.asked = 0

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            self.sent.append(effect.body)
            return Answer(status=self.plan.pop(0) if self.plan else 200, body=b"")
        self.asked += isinstance(effect, RecallForms)
        if isinstance(effect, KeepForms):
            self.kept.append(effect)
        return self.runtime.perform(effect)

    def turn(self, client: Client) -> Any:
        call = self.runtime.call(api=client.api, body=client.body(), account="a", upstream="http://u")
        return drive(self.runtime.engine.run(call), self)


def compacted(upstream: Upstream, client: Client) -> None:
    while True:
        client.grow()
        if upstream.turn(client).compaction is not None:
            return


def test_no_form_is_looked_up_or_kept_before_a_compaction() -> None:
    upstream, client = Upstream(), Client("chat", words=3)
    for _ in range(4):
        client.grow()
        upstream.turn(client)
    assert upstream.asked == 0
    assert not upstream.kept


def test_only_what_is_new_is_kept_on_a_turn_after_one() -> None:
    upstream, client = Upstream(), Client("messages")
    compacted(upstream, client)
    client.grow()
    upstream.turn(client)
    assert len(upstream.kept[-1].forms) <= 2
    assert b"cache_control" not in b"".join(form for _, form in upstream.kept[-1].forms)


def test_a_refused_form_is_not_kept() -> None:
    upstream, client = Upstream(), Client("chat")
    compacted(upstream, client)
    kept = len(upstream.kept)
    upstream.plan = [500]
    client.grow()
    upstream.turn(client)
    assert len(upstream.kept) == kept


def test_a_system_prompt_that_changes_is_sent_as_it_is() -> None:
    upstream, client = Upstream(), Client("messages")
    client.nonce = True
    compacted(upstream, client)
    for _ in range(3):
        client.grow()
        upstream.turn(client)
        sent = json.loads(upstream.sent[-1])
        assert sent["system"] == json.loads(client.body())["system"]
        assert common(array(upstream.sent[-1])[1:], array(upstream.sent[-2])[1:]) >= len(array(upstream.sent[-2])) - 1


def test_keys_tell_conversations_apart_that_share_a_message() -> None:
    runtime = Upstream().runtime
    one = runtime.engine.reader.read(Client("chat").body(), runtime.call(api="chat", body=b"").wire)
    other = Client("chat", task="Something else.")
    other.entries.append({"kind": "user", "text": "Find the leak in the cache."})
    two = runtime.engine.reader.read(other.body(), runtime.call(api="chat", body=b"").wire)
    assert one.messages[1].digest == two.messages[2].digest
    assert keys_of(one, [1])[1] != keys_of(two, [2])[2]
    assert keys_of(one, [0])[0] == keys_of(two, [0])[0]  # the system prompt stands for itself
