"""The offline commands: JSON in, JSON out. Nothing is sent, and nothing is written to disk but to `--archive DIR`.

With `--jsonl` each input line is a request and each output line its answer, flushed as it is made; one engine
serves them all, so that what it knows of a message is found again in the next request that holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO

import typer

from ctxproxy.errors import ContextOverflowError, WireFormatError

if TYPE_CHECKING:
    from ctxproxy.cli.batch import Batch, Task

__all__ = ["classify", "compact", "explain", "measure"]

_Api = Annotated[str | None, typer.Option(help="The request's API: chat, responses or messages.")]
_Model = Annotated[str | None, typer.Option(help="Measure as if for this model.")]
_Window = Annotated[int | None, typer.Option(help="Context window, in tokens.", min=1)]
_Target = Annotated[str | None, typer.Option(help="Compact down to this share of the window: 0.7 or 70%.")]
_Tokens = Annotated[int | None, typer.Option(help="Compact down to this many tokens.", min=1)]
_NoModel = Annotated[bool, typer.Option("--no-model", help="Call no model: offline commands never do.")]
_Policy = Annotated[str | None, typer.Option(help="default, gentle, aggressive or grid.")]
_Config = Annotated[str | None, typer.Option(help="Settings in YAML [env: CTXPROXY_CONFIG].", metavar="FILE")]
_Archive = Annotated[Path | None, typer.Option(help="Keep the originals of what is cut there.", metavar="DIR")]
_Jsonl = Annotated[bool, typer.Option("--jsonl", help="One request a line: id, api, body, window?, target_tokens?.")]


def measure(
    api: _Api = None,
    model: _Model = None,
    window: _Window = None,
    target: _Target = None,
    target_tokens: _Tokens = None,
    no_model: _NoModel = False,
    policy: _Policy = None,
    config: _Config = None,
    jsonl: _Jsonl = False,
) -> None:
    """Measure a request.

    Reads it on standard input and prints its report: tokens, level, and the reason that would apply.
    """
    from ctxproxy.cli.batch import Batch

    batch = Batch(
        config, api=api, model=model, window=window, target=target, target_tokens=target_tokens, policy=policy
    )
    _run(batch, batch.measure, jsonl=jsonl)


def explain(
    api: _Api = None,
    model: _Model = None,
    window: _Window = None,
    target: _Target = None,
    target_tokens: _Tokens = None,
    no_model: _NoModel = False,
    policy: _Policy = None,
    config: _Config = None,
    jsonl: _Jsonl = False,
) -> None:
    """Say what would be done to a request.

    Reads it on standard input and prints its report, each edit, and why, in words.
    """
    from ctxproxy.cli.batch import Batch

    batch = Batch(
        config, api=api, model=model, window=window, target=target, target_tokens=target_tokens, policy=policy
    )
    _run(batch, batch.explain, jsonl=jsonl)


def compact(
    api: _Api = None,
    model: _Model = None,
    window: _Window = None,
    target: _Target = None,
    target_tokens: _Tokens = None,
    no_model: _NoModel = False,
    policy: _Policy = None,
    config: _Config = None,
    archive: _Archive = None,
    jsonl: _Jsonl = False,
) -> None:
    """Compact a request.

    Reads it on standard input and prints it compacted, with its report. Without a target the level decides whether
    anything is done.
    """
    from ctxproxy.cli.batch import Batch

    batch = Batch(
        config,
        api=api,
        model=model,
        window=window,
        target=target,
        target_tokens=target_tokens,
        policy=policy,
        archive=archive,
    )
    _run(batch, batch.compact, jsonl=jsonl)


def classify(
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One error a line: id, status, body, headers?, ...")] = False,
) -> None:
    """Say what a provider's error is.

    Reads it on standard input and prints its class, token_overflow for one, and the numbers that it states.
    """
    from ctxproxy import rawjson
    from ctxproxy.overflow import classify_line

    def verdict(data: bytes) -> Any:
        value = rawjson.load(data)
        if not isinstance(value, dict):
            raise WireFormatError("not an object with id, status and body")
        return classify_line(value)  # pyright: ignore[reportUnknownArgumentType]

    if not jsonl:
        found = verdict(_stdin())
        if "error" in found:
            raise WireFormatError(found["error"]["message"])
        _write(rawjson.dump(found))
        return
    for line in _stdin_lines():
        try:
            found = verdict(line)
        except WireFormatError as error:
            found = {"id": None, "error": {"type": "invalid_line", "message": str(error)}}
        _write(rawjson.dump(found))


def _run(batch: Batch, action: Callable[[Task], bytes], *, jsonl: bool) -> None:
    from ctxproxy.cli.batch import members, one_line

    if not jsonl:
        _write(b"{" + action(batch.task(_stdin())) + b"}")
        return
    for line in _stdin_lines():
        id = b"null"
        try:
            fields = members(line)
            id = one_line(fields.get("id", id))
            answer = one_line(action(batch.line(fields)))
        except Exception as error:  # whatever one request does, the others get their answers
            answer = _error(error)
        _write(b'{"id":' + id + b"," + answer + b"}")


def _error(error: Exception) -> bytes:
    from ctxproxy import rawjson

    fields = error.fields() if isinstance(error, ContextOverflowError) else {}
    return b'"error":' + rawjson.dump({"type": type(error).__name__, "message": str(error), **fields})


def _stdin() -> bytes:
    data = _stdin_stream().read().removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
    if not data:
        raise WireFormatError("standard input is empty: a request in JSON is expected")
    return data


def _stdin_lines() -> Iterator[bytes]:
    """Lines as they arrive; empty ones do not count."""
    for line in _stdin_stream():
        data = line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")
        if data:
            yield data


def _stdin_stream() -> BinaryIO:
    stream: TextIO | None = sys.stdin  # None where the caller closed it
    if stream is None or stream.isatty():
        raise WireFormatError("no input: JSON is expected on standard input, as in `... < body.json`")
    return stream.buffer


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
