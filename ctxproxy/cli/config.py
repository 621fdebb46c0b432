"""`ctxproxy config`: check the settings, show those in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ctxproxy.errors import ConfigError

if TYPE_CHECKING:
    from ctxproxy.config import Settings

__all__ = ["app"]

app = typer.Typer(help="Check the settings, or show those in force.", no_args_is_help=True, rich_markup_mode=None)

File = Annotated[str | None, typer.Option("--config", help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")]


@app.command()
def check(config: File = None) -> None:
    """Say what is wrong in the settings, one line a problem; exit code 2 if anything is."""
    from ctxproxy.config import load

    try:
        load(config)
    except ConfigError as error:
        for line in (str(error), *getattr(error, "__notes__", ())):
            typer.echo(line, err=True)
        raise typer.Exit(2) from None
    typer.echo("no problems found")


@app.command()
def show(
    config: File = None,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"values", "sources"} as JSON.')] = False,
) -> None:
    """Print the values in force, each with where it comes from. Keys and tokens are hidden."""
    import json

    from ctxproxy.config import load

    settings = load(config)
    values = settings.values()
    if as_json:
        typer.echo(json.dumps({"values": values, "sources": settings.sources}, ensure_ascii=False))
        return
    for line in _lines(values, settings):
        typer.echo(line)


def _lines(values: dict[str, Any], settings: Settings, prefix: str = "", indent: str = "") -> Iterator[str]:
    """The values as YAML, with a comment behind each."""
    import yaml

    for name, value in values.items():
        key = prefix + name
        told = yaml.safe_dump(name, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
        if isinstance(value, dict) and value:
            yield f"{indent}{told}:"
            yield from _lines(cast("dict[str, Any]", value), settings, f"{key}.", indent + "  ")
            continue
        text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
        source = settings.source(key)
        if source == "default" and key.startswith("policy.") and settings.policy.preset != "default":
            source = f"preset {settings.policy.preset}"
        yield f"{indent}{told}: {text.removesuffix('...' + chr(10)).strip()}".ljust(44) + f"  # {source}"
