"""`ctxproxy demo`: a conversation of ten windows with a real model server."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    api: Annotated[str, typer.Option(help="chat, responses or messages.")] = "chat",
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers instead of the live view.")] = False,
    window: Annotated[int, typer.Option(help="The model's context window, in tokens.")] = 2048,
    turns: Annotated[int | None, typer.Option(help="End after so many requests.")] = None,
) -> None:
    """Show it on a real model.

    A conversation of ten windows, without ctxproxy and then with it.
    """
    from rich.console import Console

    from ctxproxy.demo.run import run_demo

    raise typer.Exit(run_demo(api=api, as_json=as_json, window=window, turns=turns, console=Console()))
