"""The demo's conversation: an agent that looks for a fault at a harbour office, with ever longer tool output.

The small model can't call tools, so the script supplies the tool calls and their results, and asks the model
for the text of every assistant message. Everything but that text is the same on each run.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["SYSTEM", "TOOLS", "Answer", "Call", "Entry", "Question", "Step", "Tool", "ToolResult", "conversation"]


@dataclass(frozen=True, slots=True)
class Question:
    """What the user typed."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of an assistant message."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """An assistant message: the model's text and, except for the last of a turn, the script's tool calls."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output of a tool call."""

    call_id: str
    text: str


Entry = Question | Answer | ToolResult


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call; `parameters` maps names to descriptions, all of them strings."""

    name: str
    description: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the model: the whole conversation up to here.

    task: number of the user's task, from 0. label: what is new, for the view.
    """

    task: int
    label: str
    entries: tuple[Entry, ...]


SYSTEM = (
    "You help the harbour office to keep its tide records. Use the tools to look things up, say in one short "
    "sentence what you found, and never change a record without being asked."
)

TOOLS = (
    Tool("read_log", "Read the log of one gauge, oldest line first.", {"gauge": "name of the gauge"}),
    Tool("read_notes", "Read the notes of the staff about a place.", {"place": "name of the place"}),
)

_TASKS = (
    "The weekly report left out the north quay. Go through the logs and the notes and find out why.",
    "Good. Decision: the spare gauge stays on the north quay until Friday. Is the pump house affected as well?",
    "Now the ferry stairs: the skipper says that the figures came late. Please check the records there.",
    "The grain wharf asks for a written reason. Look for the storm entries and for what was repaired.",
    "Please make sure that the old lock is fine before we close the matter.",
    "One more: the fish market wants to know when its gauge was last cleaned.",
)

_PLACES = (
    "north quay",
    "pump house",
    "ferry stairs",
    "grain wharf",
    "old lock",
    "fish market",
    "coal pier",
    "east mole",
)
_PEOPLE = ("Amber", "Birch", "Cedar", "Dahlia", "Elm", "Fern", "Hazel", "Ivy")
_EVENTS = (
    "the float moved freely and the reading was passed on to the office",
    "the reading came late because the line to the office was busy",
    "error: the gauge did not answer, the last good reading was kept",
    "the battery was changed and the clock was set again",
    "weed was removed from the pipe and the seal was found in order",
    "the storm shutter stayed closed, so no reading was taken",
    "a reading was entered by hand and signed in the book",
    "warning: the reading differs from the one of the next gauge",
)
_DETAILS = (
    "with a calm sea",
    "with a strong wind from the west",
    "shortly before high water",
    "shortly after low water",
    "while a barge was passing",
    "during the morning round",
    "during the evening round",
    "after a call from the pilot",
)

_TOKENS_PER_LINE = 28  # of either kind of output, by the demo model's tokenizer
_OPENING_STEPS = 18
_SMALL_STEPS = 4


def conversation(*, window: int = 2048) -> Generator[Step, str, None]:
    """Yield request after request; send the model's answer to each to get the next. It never ends by itself.

    window: context window in tokens, which sets the sizes. The first task has only small tool outputs, in sum
    about 1.4 windows. Every later one has a few small outputs and then a long one: 2 windows, then 3, and so on.
    """
    entries: tuple[Entry, ...] = ()
    call_ids = count(1)
    for task in count():
        question = Question(_TASKS[task % len(_TASKS)])
        entries = (*entries, question)
        label = "user: " + question.text
        for size in _sizes(task, window):
            number = next(call_ids)
            answer = yield Step(task, label, entries)
            call, result = _lookup(number, size)
            entries = (*entries, Answer(answer, (call,)), result)
            label = " ".join([*call.arguments.values(), call.name.removeprefix("read_")])
        answer = yield Step(task, label, entries)
        entries = (*entries, Answer(answer))


def _sizes(task: int, window: int) -> Iterator[int]:
    """Tokens of each tool output of a task."""
    small = window // 18
    if task == 0:
        yield from [small] * _OPENING_STEPS
    else:
        yield from [small] * _SMALL_STEPS
        yield window * (task + 1)


def _lookup(number: int, tokens: int) -> tuple[Call, ToolResult]:
    """The `number`th tool call and its output of about `tokens` tokens."""
    chance = random.Random(number)  # noqa: S311 - the same text on each run
    place = _PLACES[number % len(_PLACES)]
    logs = number % 2 == 1
    call_id = f"call_{number}"
    call = Call(call_id, "read_log", {"gauge": place}) if logs else Call(call_id, "read_notes", {"place": place})
    lines = [_line(chance, place, logs=logs) for _ in range(max(1, tokens // _TOKENS_PER_LINE))]
    return call, ToolResult(call_id, "\n".join(lines))


def _line(chance: random.Random, place: str, *, logs: bool) -> str:
    person, event, detail = chance.choice(_PEOPLE), chance.choice(_EVENTS), chance.choice(_DETAILS)
    if logs:
        return f"{place} gauge: {event}, {detail}, noted by {person}"
    return f"{person} writes about the {place}: {event}, {detail}."
