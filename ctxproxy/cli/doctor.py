"""`ctxproxy doctor`: is everything in place?"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Annotated

import typer

__all__ = ["doctor"]

_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    upstream: Annotated[str | None, typer.Option(help="Look at this server only.", metavar="URL")] = None,
    config: Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")] = None,
) -> None:
    """Check settings, stores, upstreams and windows.

    One line for each check. Exit code: 0, or 1 if a check failed; a warning is no failure.
    """
    from ctxproxy.cli.checks import Check, local_checks
    from ctxproxy.cli.reach import remote_checks
    from ctxproxy.config import load

    overrides = {} if upstream is None else {"upstreams": {"upstream": {"base_url": upstream}}}
    settings = load(config, overrides=overrides)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def tell(check: Check) -> Check:
        if not as_json:
            word = f"{check.status:4}"
            word = f"\033[{_COLOURS[check.status]}m{word}\033[0m" if colour else word
            typer.echo(f"{word}  {check.name:20}  {check.message}")
        return check

    async def all_of_it() -> list[Check]:
        found = [tell(check) for check in local_checks(settings, env=os.environ, config=config)]
        return found + [tell(check) async for check in remote_checks(settings)]

    logger = logging.getLogger("ctxproxy")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # what would be logged is what is checked
    try:
        found = asyncio.run(all_of_it())
    finally:
        logger.setLevel(before)
    failed = sum(check.status == "fail" for check in found)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [check.as_dict() for check in found]}, indent=2))
    raise typer.Exit(1 if failed else 0)
