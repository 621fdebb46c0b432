"""`ctxproxy replay`: a recording under another policy."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxproxy.errors import ConfigError, WireFormatError

if TYPE_CHECKING:
    from ctxproxy.config import Settings
    from ctxproxy.replaying import Recorded, Replay, Tally

__all__ = ["replay"]


def replay(
    log: Annotated[Path, typer.Argument(help="What `ctxproxy serve --record LOG` wrote.", metavar="LOG")],
    policy: Annotated[str | None, typer.Option(help="default, gentle, aggressive or grid.")] = None,
    window: Annotated[int | None, typer.Option(help="Context window; by default the recorded one.", min=1)] = None,
    target: Annotated[str | None, typer.Option(help="Compact down to this share of the window: 0.7 or 70%.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    config: Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")] = None,
) -> None:
    """Replay recorded requests under another policy.

    Nothing is sent and no model is called. Compares compactions, tokens, cost and the facts that were kept with the
    recording, and with no compaction at all.
    """
    from ctxproxy.config import load
    from ctxproxy.sections import Text

    flags = {
        "window": window,
        "policy.preset": policy,
        "policy.target": Text(target) if target is not None else None,
    }
    settings = load(config, overrides={key: value for key, value in flags.items() if value is not None})
    run = _replay(settings, window)
    problems = _run(run, log)
    if not run.sessions:
        raise WireFormatError(f"{log}: there is no request that can be replayed in it")
    if json:
        sys.stdout.write(_json(run, problems, policy=settings.policy.preset, window=window))
    else:
        sys.stdout.write(_words(run, policy=settings.policy.preset, window=window))


def _replay(settings: Settings, window: int | None) -> Replay:
    from ctxproxy.ledger import MemoryLedger
    from ctxproxy.monitor import Monitor
    from ctxproxy.replaying import Replay

    # A fixed secret: the same recording comes to the same figures on every run.
    runtime = settings.runtime(
        ledger=MemoryLedger(), archive=None, keep_originals=False, monitor=Monitor(), secret=b"replay", hint=None
    )
    names = {upstream.base_url: name for name, upstream in settings.upstreams.items()}

    def rules(request: Recorded) -> Any:
        return settings.policy_for(request.model, upstream=names.get(request.upstream))

    return Replay(runtime=runtime, policy=rules, window=window or settings.window)


def _run(run: Replay, log: Path) -> list[tuple[int, str]]:
    """Replay a file; the lines that could not be, each told on standard error, and why."""
    from ctxproxy.replaying import parse

    problems: list[tuple[int, str]] = []
    try:
        file = log.open("rb")
    except OSError as error:
        raise ConfigError(f"{log}: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                run.add(parse(line))
            except WireFormatError as error:
                told = " ".join(str(error).split())
                problems.append((number, told))
                sys.stderr.write(f"ctxproxy: {log}, line {number}: {told}; it is left out\n")
    return problems


def _json(run: Replay, problems: list[tuple[int, str]], *, policy: str, window: int | None) -> str:
    import json

    from ctxproxy.replaying import total

    found = {
        "policy": policy,
        "window": window,
        "sessions": [tally.as_dict() for tally in run.sessions],
        "total": {name: value for name, value in total(run.sessions).as_dict().items() if name != "session"},
        "problems": [{"line": number, "message": message} for number, message in problems],
    }
    return json.dumps(found, indent=2) + "\n"


def _words(run: Replay, *, policy: str, window: int | None) -> str:
    from ctxproxy.replaying import total

    of = f"a window of {window:,} tokens" if window else "the recorded windows"
    lines = [f"policy {policy}, {of}; no summaries, notes in their place"]
    for tally in run.sessions:
        lines += ["", f"session {_shown(tally.session) or '(without a name)'}", *_lines(tally)]
    if len(run.sessions) > 1:
        lines += ["", f"all {len(run.sessions)} sessions", *_lines(total(run.sessions))]
    return "\n".join(lines) + "\n"


def _lines(tally: Tally) -> list[str]:
    requests = f"{tally.requests:,}"
    if tally.over:
        requests += f", {tally.over:,} over the window as the client wrote them"
    if tally.refused:
        requests += f", {tally.refused:,} that no compaction makes fit"
    tokens = (
        f"recorded {tally.tokens_recorded:,}, without compaction {tally.tokens_none:,}, here {tally.tokens:,}"
        f"{_change(tally.tokens, tally.tokens_recorded)}"
    )
    cost = "not known"
    if tally.priced:
        cost = (
            f"recorded ${tally.cost_recorded:.4f}, without compaction about ${tally.cost_none:.4f}, "
            f"here about ${tally.cost:.4f}{_change(tally.cost, tally.cost_recorded)}"
        )
        if tally.priced < tally.requests:
            cost += f" ({tally.priced:,} of {tally.requests:,} requests)"
    share = tally.facts_kept
    kept = "none was used again" if share is None else f"{share:.1%} of {tally.used:,} that later messages use"
    found = [
        ("requests", requests),
        ("compactions", f"recorded {_counts(tally.compactions_recorded)}, here {_counts(tally.compactions)}"),
        ("tokens", tokens),
        ("cost", cost),
        ("facts kept", kept),
    ]
    return [f"  {name:<12} {value}" for name, value in found]


def _shown(name: str) -> str:
    """A name that its caller chose, for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in name[:200])


def _counts(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {reason}" for reason, count in counts.items()) or "none"


def _change(now: float, before: float) -> str:
    return f" ({(now - before) / before:+.0%})" if before else ""
