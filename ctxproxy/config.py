"""Reading the settings: one YAML file, the environment, the command line.

Precedence: command line > environment > file > default. The file is named by `--config` or `CTXPROXY_CONFIG`;
a setting is also read from `CTXPROXY_<SECTION>__<KEY>`, and `${NAME}` in the file stands for a variable. No other
place is looked at: a file that happens to lie in a working folder must not be able to redirect requests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ctxproxy.errors import ConfigError
from ctxproxy.sections import SECRET, Section, Text, section_of
from ctxproxy.settings import Settings

__all__ = ["Settings", "keys", "load"]

_PREFIX = "CTXPROXY_"
# Without `__` only these: a cluster may inject CTXPROXY_PORT, CTXPROXY_SERVICE_HOST and the like for a service.
_TOP = frozenset({"MODE", "WINDOW"})
_DEEPEST = 8  # levels of a file; bounds a walk over aliases that contain themselves
_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")

_REASONS = {
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of names to mappings",
    "list_type": "must be a list such as [a, b]",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
}

Tree = dict[str, Any]


def load(
    path: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] = MappingProxyType({}),
) -> Settings:
    """The settings in force.

    `path` names the file, else `CTXPROXY_CONFIG` does, else there is none. `env` is `os.environ` by default.
    `overrides` are values of dotted keys (`server.port`) from the command line; a mapping replaces what is there.

    Raises:
        ConfigError: a file can't be read, a key is unknown or a value is wrong. Further problems are its notes.
    """
    env = os.environ if env is None else env
    path = path or env.get(_PREFIX + "CONFIG") or None
    sources: dict[str, str] = {}
    data: Tree = {}
    if path:
        data, lines = _read(path)
        sources.update({key: f"{path}, line {line}" for key, line in lines.items()})
        data = _filled(data, env, sources)
    for name, value in env.items():
        if name.startswith(_PREFIX) and ("__" in name or name.removeprefix(_PREFIX) in _TOP):
            steps = name.removeprefix(_PREFIX).lower().split("__")
            _put(data, steps, Text(value))
            sources[".".join(steps)] = name
    for key, value in overrides.items():
        _put(data, key.split("."), value)
        sources.update(dict.fromkeys(_leaves(key, value), "command line"))
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise _config_error([_problem(item, sources) for item in error.errors(include_url=False)]) from None
    settings.sources.update(sources)
    try:
        _check_together(settings)
    except ConfigError as error:
        key = error.key or ""
        raise ConfigError(_place(key, sources) + str(error).removeprefix(key), key=key) from None
    return settings


def keys(section: type[Section] = Settings, prefix: str = "") -> Iterator[str]:
    """The dotted keys of all values; `NAME` stands for the names of upstreams and models."""
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if get_origin(field.annotation) is dict:
            inner, name = section_of(get_args(field.annotation)[1]), f"{name}.NAME"
        if inner is None:
            yield prefix + name
        else:
            yield from keys(inner, f"{prefix}{name}.")


# --- the file


def _read(path: str) -> tuple[Tree, dict[str, int]]:
    """The mapping in a YAML file, and the line of each dotted key."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror} (setting: --config or CTXPROXY_CONFIG)") from None
    lines: dict[str, int] = {}
    try:
        loader: Any = yaml.SafeLoader(text)
        node: object = loader.get_single_node()
        _mark(node, (), lines, path)
        data: object = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if data is None:
        return {}, lines
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must hold keys such as `mode: compact`, not a {type(data).__name__}")
    return cast("Tree", data), lines


def _mark(node: Any, path: tuple[str, ...], lines: dict[str, int], file: str) -> None:
    if not isinstance(node, yaml.MappingNode) or len(path) > _DEEPEST:
        return
    for name, value in cast("list[tuple[Any, Any]]", node.value):
        here = (*path, str(name.value))
        key, line = ".".join(here), name.start_mark.line + 1
        if key in lines and name.value != "<<":
            raise ConfigError(f"{file}, line {line}: {key} is there twice, first in line {lines[key]}", key=key)
        lines[key] = line
        _mark(value, here, lines, file)


def _filled(value: Any, env: Mapping[str, str], sources: Mapping[str, str], key: str = "", depth: int = 0) -> Any:
    """The same data with `${NAME}` replaced; `$${` stands for `${`. A variable fills in a value, it can't add keys."""
    if depth > _DEEPEST:
        raise ConfigError(f"{_place(key, sources)[:200]}: is nested too deep")
    if isinstance(value, dict):
        items = [(str(k), v) for k, v in cast("dict[object, object]", value).items()]
        return {k: _filled(v, env, sources, f"{key}.{k}" if key else k, depth + 1) for k, v in items}
    if isinstance(value, list):
        return [_filled(item, env, sources, key, depth + 1) for item in cast("list[object]", value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] not in env:
            raise ConfigError(f"{_place(key, sources)}: the variable {found[2]!r} is not set", key=key)
        return env[found[2]]

    return Text(_VARIABLE.sub(fill, value))


def _put(data: Tree, steps: list[str], value: object) -> None:
    for step in steps[:-1]:
        inner = data.get(step)
        data[step] = dict(cast("Tree", inner)) if isinstance(inner, dict) else {}
        data = data[step]
    data[steps[-1]] = value


def _leaves(key: str, value: object) -> Iterator[str]:
    yield key
    if isinstance(value, dict):
        for name, inner in cast("Tree", value).items():
            yield from _leaves(f"{key}.{name}", inner)


# --- problems


def _check_together(settings: Settings) -> None:
    """What a key alone does not tell: every policy that may apply, and who may reach the server."""
    settings.policy_for()
    for name in settings.upstreams:
        settings.policy_for(upstream=name)
    for pattern in settings.models:
        for name in (None, *settings.upstreams):
            settings.policy_for(pattern, upstream=name)
    if not settings.server.loopback and not settings.server.token:
        raise ConfigError(
            f"server.host: {settings.server.host} lets other machines in: that needs server.token", key="server.host"
        )


def _config_error(problems: list[tuple[str, str]]) -> ConfigError:
    error = ConfigError(problems[0][1], key=problems[0][0])
    for _, message in problems[1:]:
        error.add_note(message)
    return error


def _problem(item: ErrorDetails, sources: Mapping[str, str]) -> tuple[str, str]:
    """The dotted key of a validation error, and one line: the key, the value, what is allowed."""
    path = tuple(str(step) for step in item["loc"])
    key = ".".join(path)
    place = _place(key, sources)
    if item["type"] == "extra_forbidden":
        guess = _guess(path)
        return key, f"{place}: there is no such key{f'; did you mean {guess}?' if guess else ''}"
    if item["type"] == "missing":
        return key, f"{_place('.'.join(path[:-1]), sources)}: {path[-1]} is missing"
    reason = _REASONS.get(item["type"]) or item["msg"].removeprefix("Value error, ").replace("Input should", "must")
    reason = reason.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    value = "the value" if path and path[-1] in SECRET else _short(item["input"])
    return key, f"{place}: {value} is not allowed; it {reason}"


def _place(key: str, sources: Mapping[str, str]) -> str:
    """A key and where it stands; keys inside a value have no place of their own."""
    known = key
    while known and known not in sources:
        known = known.rpartition(".")[0]
    return f"{key} ({sources[known]})" if known else key


def _short(value: object) -> str:
    text = repr(str(value) if isinstance(value, Text) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _guess(path: tuple[str, ...]) -> str | None:
    """The key that an unknown one was probably meant to be: beside it, or of the same name elsewhere."""
    section: type[Section] | None = Settings
    steps = iter(path[:-1])
    for step in steps:
        field = section.model_fields.get(step) if section else None
        kind = field.annotation if field else None
        if get_origin(kind) is dict:
            next(steps, None)
            kind = get_args(kind)[1]
        section = section_of(kind)
    beside = get_close_matches(path[-1], section.model_fields, n=1) if section else []
    if beside:
        return ".".join((*path[:-1], beside[0]))
    everywhere = {".".join(key.split(".")[: i + 1]) for key in keys() for i in range(key.count(".") + 1)}
    # Of several keys with one name the shortest is meant.
    known = {key.rpartition(".")[2]: key for key in sorted(everywhere, key=lambda key: (-len(key), key))}
    elsewhere = get_close_matches(path[-1], known, n=1, cutoff=0.8)
    return known[elsewhere[0]] if elsewhere else None
