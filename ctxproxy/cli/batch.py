"""Requests of the offline commands, through one engine without a ledger: each is a conversation of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ctxproxy import rawjson
from ctxproxy.compaction import Original
from ctxproxy.config import load
from ctxproxy.effects import Call, Effect, Keep, Prepared, Recall, Report, drive
from ctxproxy.errors import ConfigError, LedgerError, WireFormatError
from ctxproxy.ledger import MemoryLedger
from ctxproxy.monitor import Monitor
from ctxproxy.policy import Policy
from ctxproxy.wire import WIRES

__all__ = ["Answer", "Batch", "Task", "members", "one_line"]

Answer = bytes
"""Members of a JSON object, without its braces."""

_ALL_APIS = ("chat", "responses", "messages")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[ \t\r\n]+', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request; a `window` or `target_tokens` of None is the command line's."""

    api: str
    body: bytes = field(repr=False)
    window: int | None = None
    target_tokens: int | None = None


class Batch:
    """An engine with the settings of the command line.

    Args:
        config: the settings file.
        api: the API of requests that do not name theirs.
        model: a model's name that counts instead of the request's own.
        window: tokens.
        target: a share of the window, as "0.7" or "70%".
        target_tokens: tokens.
        policy: the preset.
        archive: the folder for originals, None to keep none.

    Raises:
        ConfigError: a setting is wrong, or two exclude each other.
    """

    def __init__(
        self,
        config: str | None = None,
        *,
        api: str | None = None,
        model: str | None = None,
        window: int | None = None,
        target: str | None = None,
        target_tokens: int | None = None,
        policy: str | None = None,
        archive: Path | None = None,
    ) -> None:
        if target is not None and target_tokens is not None:
            raise ConfigError("--target and --target-tokens exclude each other")
        flags = {"window": window, "policy.preset": policy}
        self._settings = load(config, overrides={k: v for k, v in flags.items() if v is not None})
        self._api = api
        self._model = model
        self._share = None if target is None else _share(target)
        self._target_tokens = target_tokens
        self._folder = None if archive is None else _folder(archive)
        # A fixed secret: the same cut text has the same name in the archive on every run.
        self._runtime = self._settings.runtime(
            ledger=MemoryLedger(),
            archive=None,
            keep_originals=False,
            monitor=Monitor(),
            hint=self._hint if self._folder else None,
            secret=b"offline",
        )

    def task(self, body: bytes) -> Task:
        """The request of a whole input.

        Raises:
            WireFormatError: it is no JSON, or its API is not known.
        """
        _whole(body)
        return Task(api=self._known(self._api, "--api"), body=body)

    def line(self, fields: Mapping[str, bytes]) -> Task:
        """The request of a line, by the raw JSON of its members.

        Raises:
            WireFormatError: a member is missing or of another kind.
        """
        if "body" not in fields:
            raise WireFormatError("`body` is missing")
        api = rawjson.load(fields["api"]) if "api" in fields else self._api
        if not isinstance(rawjson.load(fields.get("no_model", b"null")), bool | None):
            raise WireFormatError("`no_model` must be true or false")
        return Task(
            api=self._known(api, "`api`"),
            body=fields["body"],
            window=_count(fields, "window"),
            target_tokens=_count(fields, "target_tokens"),
        )

    def measure(self, task: Task) -> Answer:
        """`"report": ...` of a request as it is."""
        return _report(self._runtime.engine.measure(self._call(task)))

    def compact(self, task: Task) -> Answer:
        """`"body": ..., "report": ...`: the body is the engine's bytes, not rendered again."""
        prepared, body = self._prepared(task)
        return b'"body":' + body + b"," + _report(prepared.report)

    def explain(self, task: Task) -> Answer:
        """`"report": ..., "decision": ..., "edits": ...`: what would be done, in words too."""
        prepared, _ = self._prepared(task)
        edits = [{**edit, "words": _words(edit)} for edit in prepared.explanation]
        said = rawjson.dump({"decision": _decision(prepared), "edits": edits})
        return _report(prepared.report) + b"," + said[1:-1]

    def _prepared(self, task: Task) -> tuple[Prepared, bytes]:
        call = self._call(task)
        prepared: Prepared = drive(self._runtime.engine.prepare(call), self._perform)
        if prepared.body == call.body:
            return prepared, task.body
        return prepared, prepared.body if self._model is None else _own_model(prepared.body, task.body)

    def _call(self, task: Task) -> Call:
        body = task.body
        if self._model is not None:
            body = rawjson.put(body, "model", rawjson.dump(self._model))
        model = self._model if self._model is not None else _model_of(body)
        call = self._runtime.call(
            api=task.api,
            body=body,
            policy=self._policy(model),
            window=task.window,
            target_tokens=task.target_tokens or self._target_tokens,
        )
        if self._share is not None and task.target_tokens is None:
            window = self._runtime.engine.info(call, model).window
            call = replace(call, target_tokens=max(1, int(self._share * window)))
        return call

    def _policy(self, model: str) -> Policy:
        """The policy of the settings; it acts whatever the mode, and asks no model, since nothing is sent."""
        policy = self._settings.policy_for(model)
        return replace(
            policy,
            mode="compact",
            archive=self._folder is not None,
            summaries=False,
        )

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Recall):
            return ()
        if isinstance(effect, Keep) and self._folder is not None:
            _keep(self._folder, effect.originals)
        return isinstance(effect, Keep) or None

    def _hint(self, id: str) -> str:
        return f" Full text: {self._folder}/{id}"

    def _known(self, api: object, what: str) -> str:
        if api is None:
            raise WireFormatError(f"{what} is missing: one of {', '.join(_ALL_APIS)}")
        if isinstance(api, str) and api in WIRES:
            return api
        if api in _ALL_APIS:
            raise WireFormatError(f"{what}: {api!r} is not supported by this version; there is {', '.join(WIRES)}")
        raise WireFormatError(f"{what}: there is no {api!r}; it is one of {', '.join(_ALL_APIS)}")


def one_line(answer: bytes) -> bytes:
    """The same JSON without line ends: those between tokens go, those in strings become escapes."""
    if b"\n" not in answer and b"\r" not in answer:
        return answer

    def flat(found: re.Match[bytes]) -> bytes:
        text = found[0]
        return text.replace(b"\n", b"\\n").replace(b"\r", b"\\r") if text[:1] == b'"' else b""

    return _TOKEN.sub(flat, answer)


# --- reading


def members(line: bytes) -> dict[str, bytes]:
    """The members of a line, each as its raw JSON.

    Raises:
        WireFormatError: it is not an object.
    """
    _whole(line)
    return rawjson.members(line)


def _whole(data: bytes) -> None:
    """Raise WireFormatError unless it is one JSON value to its end."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        rawjson.load(data)
    except RecursionError:
        raise WireFormatError("not JSON: nested too deep") from None


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"--target: {text!r} is not allowed; it must be a share over 0 and up to 1, as 0.7 or 70%")
    return share


def _count(fields: Mapping[str, bytes], name: str) -> int | None:
    value = rawjson.load(fields.get(name, b"null"))
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise WireFormatError(f"`{name}` must be a number of tokens over 0")


def _model_of(body: bytes) -> str:
    model = rawjson.load(rawjson.members(body).get("model", b'""'))
    return model if isinstance(model, str) else ""


def _own_model(body: bytes, original: bytes) -> bytes:
    """The body with the `model` of the request as it came, or without one."""
    name = rawjson.members(original).get("model")
    return rawjson.delete(body, [("model",)]) if name is None else rawjson.replace(body, ("model",), name)


# --- telling


def _report(report: Report) -> Answer:
    faults = {"faults": list(report.faults)} if report.faults else {}
    return b'"report":' + rawjson.dump({**report.as_dict(), **faults})


def _decision(prepared: Prepared) -> str:
    report, conversation = prepared.report, prepared.conversation
    full = f"{report.tokens_before:,} of {report.window:,} tokens, level {report.level}"
    if report.changed:
        steps = ", ".join(report.strategies)
        return f"{full}: compacted to {report.tokens_after:,} tokens by {steps}; reason {report.reason}"
    if conversation.hands_off:
        return f"{full}: left alone, since the request has {conversation.hands_off}"
    if report.faults:
        return f"{full}: left alone, since the result would break a rule: {', '.join(report.faults)}"
    if report.window_source == "default":
        return f"{full}: nothing is done before the provider refuses, since the window of this model is a guess"
    if report.level in ("NORMAL", "WARNING"):
        return f"{full}: nothing to do"
    return f"{full}: nothing is done, since too little would be freed"


def _words(edit: Mapping[str, Any]) -> str:
    cause = edit["cause"]
    match edit["edit"]:
        case "drop":
            start, stop = edit["messages"]
            which = f"message {start} is" if stop == start + 1 else f"messages {start} to {stop - 1} are"
            return f"{which} removed: {cause}"
        case "replace":
            return f"a text of message {edit['message']} is replaced: {cause}"
        case "note":
            return f"a note is put at message {edit['message']}: {cause}"
        case "strip":
            return f"{edit['parts']} parts of message {edit['message']} are removed: {cause}"
        case "param":
            return f"{edit['key']} becomes {edit['value']}: {cause}"
        case _:
            return str(cause)


# --- the folder of originals


def _folder(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--archive {path}: {error.strerror}") from None
    return path.resolve()


def _keep(folder: Path, originals: Sequence[Original]) -> None:
    """Write originals that are not there yet, whole or not at all, readable by their owner only."""
    for original in originals:
        path = folder / original.id
        if path.exists():
            continue
        part = folder / f".{original.id}.{os.getpid()}"
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(original.data)
            part.replace(path)
        except OSError as error:
            raise LedgerError(f"--archive: {path} can't be written: {error.strerror}") from None
