"""Cache markers in a message: where they stand, the message without them, and with those of another form of it.

They are the provider's protocol, not content: they may move from turn to turn without touching a cached prefix,
and a request may hold only so many (Anthropic: 4). So what is remembered holds none, and a request gets those
that its client has set in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path

__all__ = ["MARKERS", "bare", "carry"]

MARKERS = ("cache_control", "prompt_cache_breakpoint")
_NEEDLES = tuple(b'"' + name.encode() + b'"' for name in MARKERS)
_LISTS = ("content", "output")  # where blocks stand; a call's arguments may hold any name and are left alone


def bare(raw: bytes) -> bytes:
    """The message without its cache markers; the same object where it has none, or can't be edited safely."""
    for needle in _NEEDLES:  # not any(...): this runs for every message of a replayed request
        if needle in raw:
            break
    else:
        return raw
    try:
        paths = list(_paths(rawjson.load(raw)))
        return rawjson.delete(raw, paths) if paths else raw
    except WireFormatError:  # a name twice
        return raw


def carry(form: bytes, raw: bytes) -> bytes:
    """`form`, an equal form of the message `raw` without markers, with the markers of `raw`.

    `raw` itself where nothing but markers tell the two apart, and where the form has no place for one: a marker is
    worth more than a form. Without it the provider caches nothing new, and to it a string and a list of one text
    block are the same content.
    """
    plain = bare(raw)
    if plain == form:
        return raw
    if plain is raw:
        return form
    try:
        value, target = rawjson.load(raw), rawjson.load(form)
        for path in _paths(value):
            holder = _at(target, path[:-1])
            if not isinstance(holder, dict):
                return raw
            block = rawjson.put(rawjson.at(form, path[:-1]), str(path[-1]), rawjson.dump(_at(value, path)))
            form = rawjson.replace(form, path[:-1], block)
    except WireFormatError:
        return raw
    return form


def _paths(value: Any, depth: int = 0) -> Iterator[Path]:
    """Where the markers stand: on the message, its blocks, and the blocks inside those (of a tool result)."""
    if not isinstance(value, dict):
        return
    fields = cast("dict[str, Any]", value)
    yield from ((name,) for name in MARKERS if name in fields)
    for name in _LISTS:
        blocks = fields.get(name)
        if isinstance(blocks, list) and depth < 2:
            for i, block in enumerate(cast("list[Any]", blocks)):
                yield from ((name, i, *path) for path in _paths(block, depth + 1))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(value, dict):
            value = cast("dict[Any, Any]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[step]
        else:
            return None
    return value
