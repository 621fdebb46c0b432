"""How the demo looks in a terminal: a line for every turn, and below them a live bar of the window."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from ctxproxy.demo.result import REASONS, Outcome, Turn

__all__ = ["View", "bar"]

TICKS = (80, 90, 95, 100)
_LEVEL_STYLES = {
    "NORMAL": "green",
    "WARNING": "yellow",
    "COMPRESS": "dark_orange",
    "EMERGENCY": "red",
    "OVERFLOW": "bold red",
}
_STRATEGIES = {
    "truncate": "long tool outputs cut to a preview",
    "prune": "old tool outputs replaced by a stub",
    "window": "the oldest messages left out",
    "facts": "a digest of their facts kept",
    "summarize": "the oldest messages summarized",
    "prioritize": "the least important messages left out",
}
_COLUMNS = 43  # of a turn's line beside its label and its bar


def bar(tokens: int, window: int, *, cells: int, before: int | None = None, style: str = "green") -> Text:
    """A bar of `cells` cells for 0 to 100 % of the window, with its four ticks.

    tokens: the prompt that was sent. before: its size before a compaction; the part that was cut is shaded, and an
    arrow at the end says that it was longer than the window.
    """
    text = Text()
    before = max(tokens, before or 0)
    ticks = {min(cells - 1, round(tick / 100 * cells) - 1) for tick in TICKS}
    for cell in range(cells):
        reached = (cell + 1) * window  # compared with tokens * cells: a cell is full when the prompt reaches its end
        tick = cell in ticks
        if reached <= tokens * cells:
            text.append("┃" if tick else "█", style=f"reverse {style}" if tick else style)
        elif reached <= before * cells:
            text.append("┃" if tick else "░", style="red")
        else:
            text.append("│" if tick else "·", style="default" if tick else "dim")
    text.append("▶" if before >= window else " ", style="bold red")
    return text


class View:
    """Prints the run as it goes. Where the console is no terminal there is no live part, only the lines."""

    def __init__(self, console: Console, *, window: int, goal: int) -> None:
        """window: the model's, in tokens. goal: raw tokens at which the run ends."""
        self._console = console
        self._window = window
        self._goal = goal
        self._last: Turn | None = None
        self._counts: dict[str, int] = dict.fromkeys(REASONS, 0)
        spare = max(37, min(75, console.width - _COLUMNS))
        self._bar = max(18, spare // 2)
        self._label = spare - self._bar
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def part(self, title: str, note: str) -> None:
        """Head of a part of the run."""
        self._console.print()
        self._console.print(Rule(Text(title, style="bold"), align="left", characters="-"))
        self._console.print(Text(note, style="dim"))
        head = f"{'turn':>4}  {'newest entry':<{self._label}} {'raw':>7} {'sent':>7}  "
        ticks = ", ".join(str(tick) for tick in TICKS) + " %"
        head += f"{ticks:>{self._bar}}   {'level':<9} {'cached':>6}"
        self._console.print(Text(head, style="bold dim"), soft_wrap=True)

    def turn(self, turn: Turn) -> None:
        """One answered, or refused, request."""
        self._console.print(self._line(turn), soft_wrap=True)
        if turn.reason is not None:
            self._last = turn
            self._counts[turn.reason] = self._counts.get(turn.reason, 0) + 1
            self._console.print(_compaction(turn), soft_wrap=True)
        if turn.error is not None:
            self._console.print(Text(f"      {turn.error}", style="bold red"), soft_wrap=True)
        if self._live is not None:
            self._live.update(self._panel(turn), refresh=True)

    def end(self, outcome: Outcome) -> None:
        """The cache series, what went wrong if anything did, and the summary line."""
        if self._live is not None:
            self._live.stop()
        series = " ".join(f"{number}:{share:.1%}" for number, share in outcome.cached)
        self._console.print()
        self._console.print(
            Text("Share of the previous prompt that came from the server's cache, on turns without a compaction:")
        )
        self._console.print(Padding(Text(series or "none", style="dim"), (0, 0, 0, 2)))
        problems = outcome.problems()
        for problem in problems:
            self._console.print(Text(f"failed: {problem}", style="bold red"))
        style = "bold red" if problems else "bold green"
        self._console.print(Text(f"ctxproxy demo: {outcome.summary()}", style=style), soft_wrap=True)

    def _line(self, turn: Turn) -> Text:
        style = _LEVEL_STYLES.get(turn.level, "green")
        label = turn.label if len(turn.label) <= self._label else turn.label[: self._label - 3] + "..."
        sent = "refused" if turn.sent is None else f"{turn.sent:,}"
        text = Text(f"{turn.number:>4}  {label:<{self._label}} {turn.raw:>7,} {sent:>7}  ")
        before = _before(turn)
        text.append_text(bar(turn.sent or 0, self._window, cells=self._bar, before=before, style=style))
        text.append(f"  {turn.level:<9}", style=style)
        text.append(f" {turn.cached:>6,}" if turn.cached is not None else "")
        return text

    def _panel(self, turn: Turn) -> Group:
        sent = turn.sent or 0
        style = _LEVEL_STYLES.get(turn.level, "green")
        head = Text(f"{sent:,} of {self._window:,} tokens  ", style="bold")
        before = _before(turn)
        cells = max(20, min(100, self._console.width - len(head.plain) - 2))
        head.append_text(bar(sent, self._window, cells=cells, before=before, style=style))
        raw = turn.raw / self._window
        counts = ", ".join(f"{count} {reason}" for reason, count in self._counts.items())
        state = Text(f"history {raw:.1f} of {self._goal / self._window:.0f} windows; compactions: {counts}")
        lines = [Text(), head, state]
        if self._last is not None:
            lines.append(_compaction(self._last, prefix=f"last, turn {self._last.number}: "))
        return Group(*lines)


def _before(turn: Turn) -> int | None:
    """The prompt's size without what was cut on this turn, or without the refusal."""
    if turn.error is not None:
        return turn.raw
    return turn.before if turn.reason else None


def _compaction(turn: Turn, *, prefix: str = "      ") -> Text:
    text = Text(prefix)
    text.append(turn.reason or "", style="bold magenta")
    if turn.before is not None and turn.after is not None:
        text.append(f" {turn.before:,} -> {turn.after:,} tokens", style="magenta")
    if turn.strategies:
        words = "; ".join(_STRATEGIES.get(name, name) for name in turn.strategies)
        text.append(f": {words}", style="magenta")
    return text
