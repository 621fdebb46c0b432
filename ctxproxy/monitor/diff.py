"""What a compaction took out and put in, as lines: one list for each edit, bounded in length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any

from ctxproxy.compaction import Compaction

__all__ = ["explained", "lines_of"]

_MOST_LINES = 400  # of one edit: the rest is counted
_MOST_RUN = 24  # of one sign: a reader sees at once what stands there now
_MOST_CHARS = 2_000  # of one line
_MATCHED = 2_000  # lines on either side up to which a match is looked for line by line

Line = list[str]
"""`-`, `+`, ` ` or `~` (lines left out), and a text."""


def explained(compaction: Compaction, restore: Callable[[str], bytes | None]) -> list[dict[str, Any]]:
    """The edits, each with its words, whether the original is there, and the lines before and after."""
    found: list[dict[str, Any]] = []
    for edit in compaction.edits:
        id = edit.get("archive")
        data = restore(id) if isinstance(id, str) else None
        before = data.decode("utf-8", "replace") if data is not None else None
        after = str(edit.get("text") or "")
        found.append(
            {
                **{name: value for name, value in edit.items() if name != "text"},
                "words": _words(edit),
                "restorable": data is not None,
                "lines": lines_of(before, after),
            }
        )
    return found


def lines_of(before: str | None, after: str) -> list[Line]:
    """A diff of two texts; without the first one what came in alone."""
    old, new = (before or "").splitlines(), after.splitlines()
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    found = [[" ", line] for line in old[:start]]
    if max(len(middle_old), len(middle_new)) <= _MATCHED:
        for tag, a, b, c, d in SequenceMatcher(None, middle_old, middle_new, autojunk=True).get_opcodes():
            if tag == "equal":
                found += [[" ", line] for line in middle_old[a:b]]
            else:
                found += [["-", line] for line in middle_old[a:b]] + [["+", line] for line in middle_new[c:d]]
    else:
        found += [["-", line] for line in middle_old] + [["+", line] for line in middle_new]
    found += [[" ", line] for line in old[len(old) - end :]]
    return _bounded([[sign, line[:_MOST_CHARS]] for sign, line in found])


def _bounded(lines: list[Line]) -> list[Line]:
    """Long runs of one sign are cut in their middle, so that what came in is seen beside what went."""
    runs: list[list[Line]] = []
    for line in lines:
        if runs and runs[-1][0][0] == line[0]:
            runs[-1].append(line)
        else:
            runs.append([line])
    room = max(8, min(_MOST_RUN, _MOST_LINES // max(1, len(runs))))
    found: list[Line] = []
    for run in runs[:_MOST_LINES]:
        if len(run) <= room:
            found += run
            continue
        half = room // 2
        found += [*run[:half], ["~", f"{len(run) - 2 * half:,} more lines"], *run[len(run) - half :]]
    return found


def _words(edit: Mapping[str, Any]) -> str:
    cause = edit.get("cause", "")
    match edit.get("edit"):
        case "drop":
            start, stop = edit["messages"]
            which = f"message {start} was" if stop == start + 1 else f"messages {start} to {stop - 1} were"
            return f"{which} removed: {cause}"
        case "replace":
            return f"a text of message {edit['message']} was replaced: {cause}"
        case "note":
            return f"a note was put at message {edit['message']}: {cause}"
        case "strip":
            return f"{edit['parts']} parts of message {edit['message']} were removed: {cause}"
        case "param":
            return f"{edit['key']} became {edit['value']}: {cause}"
        case _:
            return str(cause)
