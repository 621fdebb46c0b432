"""What a terminal shows of a status: the budget block, the live view, a compaction's diff. Input is the status JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["bar", "block", "clean", "compaction", "money", "stats", "top"]

Status = Mapping[str, Any]
_STYLES = {"WARNING": "yellow", "COMPRESS": "yellow", "EMERGENCY": "red", "OVERFLOW": "bold red"}
_LABELS = {
    "system_instructions": "System",
    "tools": "Tools",
    "warmth": "Warmth",
    "plan": "Plan",
    "current_input": "Input",
    "history": "History",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def clean(text: object) -> str:
    """A text without what moves a terminal's cursor, changes its colours or turns the direction of writing."""
    return _CONTROL.sub("\ufffd", str(text))


def bar(fraction: float, *, cells: int, marks: Sequence[float], plain: bool = False) -> str:
    """A bar of the window, with a tick where each level begins; over the window it is full."""
    full, empty, tick = ("#", ".", "|") if plain else ("\u2588", "\u2591", "\u2502")
    filled = round(min(1.0, max(0.0, fraction)) * cells)
    found = [full if i < filled else empty for i in range(cells)]
    for mark in marks:
        at = round(mark * cells) - 1
        if 0 <= at < cells:
            found[at] = tick
    return "".join(found)


def block(talk: Mapping[str, Any], marks: Sequence[float], *, plain: bool = False) -> str:
    """The budget block of one conversation."""
    name = clean(talk["session"] or "unnamed") + (f" ({clean(talk['agent'])})" if talk["agent"] else "")
    lines = [
        f"Context Budget Status: {name}, {clean(talk['model'])}",
        ("-" if plain else "\u2500") * 21,
        f"Usage:   [{bar(talk['fraction'], cells=40, marks=marks, plain=plain)}] {talk['fraction']:.1%}",
        f"Level:   {talk['level']}",
        f"Total:   {talk['tokens']:,} / {talk['window']:,} tokens",
    ]
    for key, label in _LABELS.items():
        used, room = talk["by_category"].get(key, 0), talk["allocations"].get(key)
        if used or key in ("history", "plan", "warmth"):
            lines.append(f"{label + ':':<8} {used:,}{f' / {room:,}' if room else ''} tokens")
    if talk["note"]:
        lines += ["", f"Note: {talk['note']}"]
    cut = talk["last"]
    if cut:
        lines.append(f"Last compaction {_at(cut['at'])}: {cut['before']:,} -> {cut['after']:,} tokens, {cut['id']}")
    return "\n".join(lines)


def top(status: Status | None, *, url: str, height: int, plain: bool = False, message: str = "") -> RenderableType:
    """The live view. `message` says what is wrong where there is no contact."""
    head = Text(f"ctxproxy  {url}", style="bold", no_wrap=True, overflow="ellipsis")
    foot = Text(message or "q quits; bars have ticks at the levels; `ctxproxy show ID` says what was cut", style="dim")
    if status is None:
        return Group(head, Text(), foot)
    totals = status["totals"]
    share = f"{totals['cached'] / totals['input']:.0%}" if totals["input"] else "-"
    line = (
        f"{totals['requests']:,} requests  {totals['compactions']:,} compactions  "
        f"{totals['removed']:,} tokens removed  {money(totals['saved_usd'])}  cache {share}"
    )
    room = max(2, height - 8)
    cuts = list(status["compactions"])[: max(1, room // 3)]
    talks = list(status["conversations"])[: max(1, room - len(cuts))]
    parts: list[RenderableType] = [head, Text(line, no_wrap=True, overflow="ellipsis"), Text()]
    parts.append(_bars(talks, status["thresholds"], plain) if talks else Text("No request has come through yet."))
    parts += [Text(), _cuts(cuts) if cuts else Text("Nothing was compacted yet.", style="dim"), foot]
    return Group(*parts)


def _bars(talks: Sequence[Mapping[str, Any]], marks: Sequence[float], plain: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, show_header=True, header_style="dim")
    ticks = "/".join(f"{mark:.0%}".rstrip("%") for mark in marks)
    for name, width in (("CONVERSATION", 15), ("MODEL", 12), (f"TICKS AT {ticks} %", 30), ("FULL", 7), ("LEVEL", 9)):
        table.add_column(name, width=width, no_wrap=True, overflow="ellipsis")
    for talk in talks:
        name = clean(talk["session"] or "unnamed") + (f" {clean(talk['agent'])}" if talk["agent"] else "")
        style = _STYLES.get(talk["level"], "green")
        table.add_row(
            Text(name),
            Text(clean(talk["model"])),
            Text(bar(talk["fraction"], cells=30, marks=marks, plain=plain), style=style),
            Text(f"{talk['fraction']:.1%}"),
            Text(talk["level"], style=style),
        )
    return table


def _cuts(cuts: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, header_style="dim")
    for name, width in (("COMPACTED", 9), ("ID", 16), ("WHY", 9), ("TOKENS", 20), ("STEPS", 20)):
        table.add_column(name, width=width, no_wrap=True, overflow="ellipsis")
    for cut in cuts:
        tokens = f"{cut['before']:,} -> {cut['after']:,}"
        table.add_row(_at(cut["at"]), cut["id"], cut["reason"], tokens, Text("+".join(cut["strategies"])))
    return table


def compaction(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A compaction as lines with a style each: numbers, then each edit with its diff."""
    yield (
        f"{found['id']}  {_at(found['at'])}  {found['reason']} at {found['level']}: {found['tokens_before']:,} -> "
        f"{found['tokens_after']:,} tokens ({', '.join(found['strategies'])})",
        "bold",
    )
    if not found["edits"]:
        yield "Its texts are not kept any more: a newer compaction took its place, or the ledger was in memory.", "dim"
    for edit in found["edits"]:
        yield "", ""
        yield clean(edit["words"]), "bold"
        if edit.get("archive"):
            yield (f"original: ctxproxy restore {edit['archive']}" if edit["restorable"] else "original: gone"), "dim"
        for sign, line in edit["lines"]:
            style = {"-": "red", "+": "green", "~": "dim"}.get(sign, "")
            yield f"{'...' if sign == '~' else sign} {clean(line)}", style


def stats(found: Mapping[str, Any]) -> Iterator[str]:
    """The totals, one a line."""
    totals = found["totals"]
    rows = (
        ("requests", f"{totals['requests']:,} ({totals['failed']:,} failed)"),
        ("compactions", f"{totals['compactions']:,}"),
        ("  proactive", f"{totals['proactive']:,}"),
        ("  overflow", f"{totals['overflow']:,}"),
        ("  retry", f"{totals['retry']:,}"),
        ("refused by the provider", f"{totals['refused']:,}"),
        ("not sent: can't fit", f"{totals['blocked']:,}"),
        ("cut silently", f"{totals['truncated']:,}"),
        ("tokens removed", f"{totals['removed']:,}"),
        ("tokens not sent", f"{totals['spared']:,}"),
        ("input / output tokens", f"{totals['input']:,} / {totals['output']:,}"),
        ("cache share", f"{totals['cache_share']:.1%}"),
        ("money", money(totals["saved_usd"])),
    )
    for name, value in rows:
        yield f"{name:<24} {value}"
    for advice in found["advice"]:
        yield f"- {clean(advice['text'])}"


def money(value: float | None) -> str:
    """USD saved or lost, in words."""
    if value is None:
        return "prices unknown"
    return f"{'lost' if value < 0 else 'saved'} ${abs(value):.4f}"


def _at(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
