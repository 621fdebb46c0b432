"""The form in which a message was first sent, so that a client that writes it in another form later changes no bytes.

Clients write equal content in different bytes from turn to turn: a string becomes a list of one text block and back,
keys change their order. Once a compaction is in force, what it keeps and what follows it is sent again in the bytes
that the provider got first, so that the prompt only grows at its end. Before the first one nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ctxproxy import rawjson
from ctxproxy.conversation import Conversation
from ctxproxy.edits import Item, splice
from ctxproxy.effects import Call, Effect, KeepForms, Prepared, RecallForms
from ctxproxy.errors import WireFormatError
from ctxproxy.markers import bare, carry
from ctxproxy.planning import replay
from ctxproxy.wire.base import canonical

__all__ = ["keep_forms", "keys_of", "settle", "unsettled"]


def keys_of(conversation: Conversation, indexes: Sequence[int]) -> dict[int, bytes]:
    """The keys of some messages' forms: the digest of the conversation up to and with each.

    Messages of the head stand for themselves: the ledger's chains begin behind it.
    """
    head, wanted = conversation.head, frozenset(indexes)
    found: dict[int, bytes] = {}
    chain = hashlib.blake2b(digest_size=16)
    for i, message in enumerate(conversation.messages):
        if i >= head:
            chain.update(message.digest)
        if i in wanted:
            one = hashlib.blake2b(b"head" + message.digest, digest_size=16) if i < head else chain.copy()
            found[i] = one.digest()
    return found


def settle(call: Call, prepared: Prepared) -> Generator[Effect, Any, Prepared]:
    """The request with every message that stays as the client sends it in the form in which it was sent first."""
    entry, conversation = prepared.entry, prepared.conversation
    if entry is None or call.target_tokens is not None:
        return prepared
    items = replay(entry, conversation)
    keys = keys_of(conversation, [item for item in items if isinstance(item, int)])
    system = _system(call)
    wanted = (*keys.values(), *([system[0]] if system else ()))
    known: Mapping[bytes, bytes] = (yield RecallForms(call.scope, entry.first, wanted)) or {}
    new: dict[bytes, bytes] = {}
    # The head changes on every turn in some clients: only what the compaction itself was sent with is kept.
    first = prepared.compaction is not None

    def placed(key: bytes, raw: bytes, *, keep: bool) -> bytes:
        form = known.get(key)
        sent = raw if form is None else carry(form, raw)
        if keep:
            new[key] = bare(sent)
        return sent

    array: list[Item] = []
    head = conversation.head
    for at, item in enumerate(items):
        if isinstance(item, bytes):
            array.append(at)
            continue
        raw = conversation.messages[item].raw
        sent = placed(keys[item], raw, keep=first or item >= head)
        array.append(at if sent is raw else sent)
    body = prepared.body
    if any(isinstance(item, bytes) for item in array):
        body = splice(body, call.wire.array, array)
    if system is not None:
        sent = placed(*system, keep=first)
        if sent is not system[1]:
            body = rawjson.put(body, "system", rawjson.at(sent, ("content",)))
    changed = tuple((key, form) for key, form in new.items() if known.get(key) != form)
    return replace(prepared, body=body, forms=changed, unsettled=None if body is prepared.body else prepared.body)


def unsettled(prepared: Prepared) -> Prepared | None:
    """The same request in the forms of its client, None where it is in those.

    For a provider that refuses it: another server behind the same conversation may want the new form.
    """
    if prepared.unsettled is None or prepared.entry is None:
        return None
    conversation = prepared.conversation
    items = [item for item in replay(prepared.entry, conversation) if isinstance(item, int)]
    forms = tuple((key, bare(conversation.messages[i].raw)) for i, key in keys_of(conversation, items).items())
    return replace(prepared, body=prepared.unsettled, unsettled=None, forms=forms)


def keep_forms(call: Call, prepared: Prepared) -> Generator[Effect, Any, None]:
    """Remember the forms of what the provider has accepted."""
    if prepared.forms and prepared.entry is not None:
        yield KeepForms(call.scope, prepared.entry.first, prepared.forms)


def _system(call: Call) -> tuple[bytes, bytes] | None:
    """The key of a system prompt outside the array, and the prompt as the content of a message."""
    if "system" not in call.wire.fixed_keys:
        return None
    value = rawjson.views(call.body).get("system")
    if value is None:
        return None
    raw = b'{"content":' + bytes(value) + b"}"
    try:
        return hashlib.blake2b(b"system" + canonical(rawjson.load(raw)), digest_size=16).digest(), raw
    except (WireFormatError, RecursionError):
        return None
