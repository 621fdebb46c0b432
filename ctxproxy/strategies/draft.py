"""A draft: a conversation, the edits so far, and what each message costs after them.

Strategies take a draft and return a draft. Sizes are kept up to date by counting what an edit puts in and
subtracting what it takes out, so that "does it fit now?" costs a sum, not a reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ctxproxy.conversation import Conversation, Exchange, Message, Part, exchanges, first_typed, last_typed, texts_of
from ctxproxy.edits import Drop, Edit, Note, Replace, Rules, Strip
from ctxproxy.policy import Policy
from ctxproxy.strategies.facts import Fact, Passage, extract

__all__ = ["Draft", "passages_of", "start"]


Extractor = Callable[[Passage], tuple[Fact, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A conversation on its way down to `target` tokens.

    `keep` are messages that no strategy drops; from message `tail` on everything stays verbatim.
    `given` are edits that any other edit brings with it, `whole` the sizes with only these.
    `locate` gives the words that tell a reader where a cut text can be got back, "" where it can't.
    """

    conversation: Conversation
    window: int
    target: int
    policy: Policy
    rules: Rules
    count: Callable[[str], int] = field(repr=False)
    locate: Callable[[str], str] = field(repr=False)
    groups: tuple[Exchange, ...] = field(repr=False)
    keep: frozenset[int] = frozenset()
    tail: int = 0
    sizes: tuple[int, ...] = field(repr=False)
    whole: tuple[int, ...] = field(repr=False)
    given: tuple[Edit, ...] = ()
    notes_tokens: int = 0
    edits: tuple[Edit, ...] = ()
    steps: tuple[str, ...] = ()
    summary: str | None = None
    extract: Extractor = field(default=extract, repr=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.conversation.messages

    @property
    def tokens(self) -> int:
        return self.conversation.fixed.tokens + sum(self.sizes) + self.notes_tokens

    @property
    def fits(self) -> bool:
        return self.tokens <= self.target

    @property
    def dropped(self) -> frozenset[int]:
        return frozenset(i for edit in self.edits if isinstance(edit, Drop) for i in range(edit.start, edit.stop))

    def done(self, step: str) -> Draft:
        """The same draft, with `step` noted as one that changed something."""
        return self if step in self.steps else replace(self, steps=(*self.steps, step))

    def rewrite(self, index: int, part: Part, text: str, cause: str) -> Draft:
        """Replace the text of one part."""
        sizes = list(self.sizes)
        before = self._part_tokens(index, part)
        sizes[index] += self.count(text) + (0 if part.kind == "media" else part.frame) - before
        edit = Replace(index, part.path, text, cause, as_block=part.kind == "media")
        kept = tuple(e for e in self.edits if not (isinstance(e, Replace) and e.index == index and e.path == part.path))
        return replace(self, edits=(*kept, edit), sizes=tuple(sizes))

    def drop(self, group: Exchange, cause: str) -> Draft:
        """Drop one exchange; earlier edits inside it go with it."""
        return self.drop_all((group,), cause)

    def drop_all(self, groups: tuple[Exchange, ...] | list[Exchange], cause: str) -> Draft:
        """Drop many exchanges at once; neighbours become one edit."""
        gone = {i for group in groups for i in group}
        kept = tuple(e for e in self.edits if not (isinstance(e, (Replace, Strip)) and e.index in gone))
        ranges: list[Drop] = []
        for group in groups:
            if ranges and ranges[-1].stop == group.start:
                ranges[-1] = Drop(ranges[-1].start, group.stop, cause)
            else:
                ranges.append(Drop(group.start, group.stop, cause))
        sizes = tuple(0 if i in gone else size for i, size in enumerate(self.sizes))
        return replace(self, edits=(*kept, *ranges), sizes=sizes)

    def add_note(self, note: Note) -> Draft:
        """Add a message or an attached text of ours."""
        tokens = self.count(note.text) + (2 if note.attach else 4)
        return replace(self, edits=(*self.edits, note), notes_tokens=self.notes_tokens + tokens)

    def text(self, index: int, part: Part) -> str:
        """The text of a part as it stands after the edits so far."""
        for edit in self.edits:
            if isinstance(edit, Replace) and edit.index == index and edit.path == part.path:
                return edit.text
        message = self.messages[index]
        return texts_of(message)[message.parts.index(part)]

    def _part_tokens(self, index: int, part: Part) -> int:
        for edit in self.edits:
            if isinstance(edit, Replace) and edit.index == index and edit.path == part.path:
                return self.count(edit.text) + (0 if part.kind == "media" else part.frame)
        return part.tokens


def start(
    conversation: Conversation,
    *,
    window: int,
    target: int,
    policy: Policy,
    rules: Rules,
    count: Callable[[str], int],
    locate: Callable[[str], str] = lambda _: "",
    pinned: frozenset[int] = frozenset(),
    given: tuple[Edit, ...] = (),
    summary: str | None = None,
    extract: Extractor = extract,
) -> Draft:
    """A draft with no edits but the `given` ones, with what must stay and where the fresh tail begins.

    Always kept: system and developer messages, entries nobody may touch, the first and the newest typed user
    message, the last exchange (the model has yet to answer to it), and pins.
    """
    messages = conversation.messages
    groups = exchanges(messages)
    keep = {i for i, m in enumerate(messages) if m.role in ("system", "developer") or m.opaque} | pinned
    for index in (first_typed(messages), last_typed(messages)):
        if index is not None:
            keep.add(index)
    if groups:
        keep.update(groups[-1])
    keep.update(i for group in groups if group.open for i in group)
    whole = {i for group in groups if keep.intersection(group) for i in group}
    sizes = _sizes(messages, given, count)
    draft = Draft(
        conversation=conversation,
        window=window,
        target=target,
        policy=policy,
        rules=rules,
        count=count,
        locate=locate,
        groups=groups,
        keep=frozenset(whole),
        tail=len(messages),
        sizes=sizes,
        whole=sizes,
        given=given,
        edits=given,
        summary=summary,
        extract=extract,
    )
    return replace(draft, tail=_tail(draft))


def _sizes(messages: tuple[Message, ...], given: tuple[Edit, ...], count: Callable[[str], int]) -> tuple[int, ...]:
    sizes = [m.tokens for m in messages]
    for edit in given:
        if isinstance(edit, (Replace, Strip)):
            paths = (edit.path,) if isinstance(edit, Replace) else edit.paths
            sizes[edit.index] -= sum(p.tokens for p in messages[edit.index].parts if p.path in paths)
            sizes[edit.index] += count(edit.text) if isinstance(edit, Replace) else 0
    return tuple(sizes)


def _tail(draft: Draft) -> int:
    """Where the fresh tail begins: the newest whole exchanges within its budget."""
    fixed = (
        draft.conversation.fixed.tokens
        + sum(m.tokens for i, m in enumerate(draft.messages) if i in draft.keep and i < draft.groups[-1].start)
        if draft.groups
        else 0
    )
    left = max(0, draft.target - fixed)
    room = draft.policy.tail.budget(usable=draft.target, left=left)
    at = len(draft.messages)
    for group in reversed(draft.groups):
        room -= sum(draft.sizes[i] for i in group)
        if room < 0 and at < len(draft.messages):
            break
        at = group.start
        if room < 0:
            break
    return at


def passages_of(draft: Draft, indexes: tuple[int, ...] | list[int]) -> list[Passage]:
    """The texts of some messages, as they came, for notes and summaries."""
    names: dict[str, str] = {}
    found: list[Passage] = []
    wanted = set(indexes)
    for i, message in enumerate(draft.messages):
        for part in message.of("tool_call"):
            if part.id and part.name:
                names[part.id] = part.name
        if i not in wanted:
            continue
        texts = texts_of(message)
        for part, text in zip(message.parts, texts, strict=True):
            if part.kind in ("text", "tool_call", "tool_result") and text.strip():
                found.append(
                    Passage(
                        index=i,
                        role="note" if message.note else message.role,
                        kind=part.kind,
                        name=part.name or names.get(part.id or ""),
                        text=text,
                        error=part.error,
                    )
                )
    return found
