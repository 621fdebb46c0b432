"""Run the overflow classifier over a corpus of providers' errors and print what it gets right and wrong.

    python .ci/eval_overflow.py CORPUS [--verbose]

CORPUS is overflow_errors.jsonl, or a directory that has it (also under facts/).

Each line of the corpus: id, provider, http_status, body, stream_event, kind, ambiguous, evidence, and the numbers that
its text states. Exit 1 when a bound is broken: on the sure lines no missed overflow, no look-alike and no
output_too_long called overflow, plain and in each relay envelope; stated numbers read; with each provider's own rules
left out at least 75 % recall and no false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ctxproxy.overflow import TABLE, Sent, Table, Verdict, classify

SURE = {"json", "json_from_repr", "message_text"}
CLASSES = {
    "overflow": "token_overflow",
    "stop_reason_overflow": "token_overflow",
    "truncation_silent": "token_overflow",
    "output_too_long_request": "output_too_long",
    "rate_limit_tpm": "rate_limit",
    "quota": "rate_limit",
    "payload_too_large": "payload_too_large",
}
# The provider of a rule, where its name is not part of the corpus's name for the provider.
ALIASES = {"zhipu": ("zhipu", "z.ai"), "volcengine": ("volc",), "tgi": ("tgi", "hf inference", "hf endpoint")}
RECALL = 0.75
CORPUS = "overflow_errors.jsonl"
Line = dict[str, Any]


def judge(
    line: Line, *, table: Table = TABLE, body: str | None = None, sent: Sent | None = None, **other: Any
) -> Verdict:
    where = {"status": line["http_status"], "stream_event": line["stream_event"]} | other
    return classify(body=(line["body"] if body is None else body).encode(), sent=sent, table=table, **where)


def truth(line: Line) -> str:
    return CLASSES.get(line["kind"], "other")


def is_sure(line: Line) -> bool:
    return line["evidence"] in SURE and not line["ambiguous"]


def needs_size(line: Line) -> bool:
    """A silent truncation shows only beside the size of what was sent."""
    return line["kind"] == "truncation_silent" and line["requested_tokens"] is not None


def size_of(line: Line) -> Sent | None:
    return Sent(tokens=line["requested_tokens"], window=line["context_window"]) if needs_size(line) else None


# -- relay envelopes


def _inner(line: Line) -> Any:
    """The body as a relay would embed it: its object, or its text as an OpenAI-style error."""
    try:
        value = json.loads(line["body"])
    except ValueError:
        return {"error": {"message": line["body"], "type": "invalid_request_error"}}
    return value if isinstance(value, dict) else {"error": {"message": str(value)}}


def _status(line: Line) -> int:
    """The status that a relay gives to an error, also to one that came inside an HTTP 200."""
    return line["http_status"] if (line["http_status"] or 0) >= 400 else 400


def _message(line: Line) -> str:
    value = _inner(line)
    error = value.get("error", value)
    return str(error.get("message", value)) if isinstance(error, dict) else str(error)


def _router(line: Line) -> str:
    attempt = {"stage": "upstream_response", "status": line["http_status"], "details": _inner(line)}
    return json.dumps({"error": {"message": "All target providers failed.", "attempts": [attempt]}})


def _raw(line: Line) -> str:
    metadata = {"raw": json.dumps(_inner(line)), "provider_name": "Upstream"}
    return json.dumps({"error": {"message": "Provider returned error", "code": _status(line), "metadata": metadata}})


RELAYS: dict[str, Callable[[Line], tuple[str, dict[str, Any]]]] = {
    "litellm prefix": lambda line: (
        json.dumps(
            {"error": {"message": f"litellm.BadRequestError: OpenAIException - {_message(line)}", "code": "400"}}
        ),
        {},
    ),
    "litellm + body": lambda line: (
        json.dumps({"error": {"message": f"litellm.APIError: APIError: {json.dumps(_inner(line))}", "type": None}}),
        {},
    ),
    "openrouter raw": lambda line: (_raw(line), {}),
    "databricks": lambda line: (json.dumps({"error_code": "BAD_REQUEST", "message": json.dumps(_inner(line))}), {}),
    "vercel": lambda line: (
        json.dumps({"error_type": "provider_error", "error_message": json.dumps(_inner(line))}),
        {},
    ),
    "langchain.js": lambda line: (
        f"{_status(line)} {json.dumps(_inner(line))}\n\nTroubleshooting URL: https://js.langchain.com/docs/errors/",
        {"status": _status(line)},
    ),
    "python repr": lambda line: (f"Error code: {_status(line)} - {_inner(line)!r}", {"status": _status(line)}),
    "sse frame": lambda line: (
        f"event: error\ndata: {json.dumps(_inner(line))}\n\n",
        {"status": 200, "stream_event": None},
    ),
    "stringified twice": lambda line: (json.dumps(json.dumps(_inner(line))), {}),
    "array": lambda line: (json.dumps([_inner(line)]), {}),
    "router attempts": lambda line: (_router(line), {}),
    "cut off": lambda line: (json.dumps({"outer": "relay", **_inner(line)})[:-2], {"status": _status(line)}),
}


def relayed(lines: Iterable[Line]) -> list[Line]:
    """Sure lines that are errors: stops, silent truncations and quoted text are no error that a relay could wrap."""
    no_error = {"stop_reason_overflow", "truncation_silent"}
    return [
        line
        for line in lines
        if line["kind"] not in no_error
        and not (line["http_status"] == 200 and line["stream_event"] is None and not line["body"].startswith("{"))
    ]


# -- measures


def stated(verdict: Verdict) -> tuple[int | str | None, ...]:
    return verdict.context_window, verdict.requested_tokens, verdict.requested_kind, verdict.max_tokens


def score(lines: Iterable[Line], run: Callable[[Line], Verdict]) -> dict[str, list[str]]:
    """Ids by kind of mistake."""
    wrong: dict[str, list[str]] = {"missed": [], "false alarm": [], "output called overflow": [], "other class": []}
    for line in lines:
        got, want = run(line).kind, truth(line)
        if got == want:
            continue
        if want == "token_overflow":
            wrong["missed"].append(line["id"])
        elif got == "token_overflow":
            wrong["output called overflow" if want == "output_too_long" else "false alarm"].append(line["id"])
        else:
            wrong["other class"].append(f"{line['id']}: {want} -> {got}")
    return wrong


def numbers(lines: Iterable[Line]) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Stated numbers that were read: (read, stated) by field. A split text may be labelled by its prompt or total."""
    counts = {"context_window": (0, 0), "requested_tokens": (0, 0), "max_tokens": (0, 0)}
    wrong: list[str] = []
    for line in lines:
        verdict, text = judge(line, sent=size_of(line)), line["body"].replace(",", "").replace("_", "")
        read = {
            "context_window": {verdict.context_window},
            "requested_tokens": {verdict.requested_tokens, verdict.prompt_tokens, verdict.total_tokens},
            "max_tokens": {verdict.max_tokens},
        }
        for field, values in read.items():
            want = line[field]
            sized = truth(line) in ("token_overflow", "output_too_long")
            if want is None and sized and values != {None}:
                wrong.append(f"{line['id']} {field}: not stated, read {values}")
            if want is None or not any(
                part == str(want) for part in "".join(c if c.isdigit() else " " for c in text).split()
            ):
                continue
            hits, stated = counts[field]
            counts[field] = (hits + (want in values), stated + 1)
            if want not in values:
                wrong.append(f"{line['id']} {field}: {want}, read {values}")
    return counts, wrong


def tags_of(provider: str) -> set[str]:
    tags = {rule.provider for rule in TABLE.rules if rule.provider}
    return {tag for tag in tags if any(word in provider.lower() for word in ALIASES.get(tag, (tag,)))}


def leave_one_out(lines: list[Line]) -> tuple[dict[str, tuple[int, int]], list[str], list[str]]:
    """Recall on each provider's overflows without the rules made for it, and what then is a false alarm."""
    recall: dict[str, tuple[int, int]] = {}
    missed, alarms = [], []
    for provider in sorted({line["provider"] for line in lines}):
        tags = tags_of(provider)
        table = replace(TABLE, rules=tuple(rule for rule in TABLE.rules if rule.provider not in tags))
        mine = [line for line in lines if line["provider"] == provider]
        wrong = score(mine, lambda line, table=table: judge(line, table=table, sent=size_of(line)))
        total = sum(truth(line) == "token_overflow" for line in mine)
        if total:
            recall[provider] = (total - len(wrong["missed"]), total)
        missed += wrong["missed"]
        alarms += wrong["false alarm"] + wrong["output called overflow"]
    return recall, missed, alarms


def show(title: str, wrong: dict[str, list[str]], total: int) -> bool:
    parts = ", ".join(f"{name} {len(ids)}" for name, ids in wrong.items())
    print(f"{title:<34} {total:>4} lines: {parts}")
    for name, ids in wrong.items():
        if ids:
            print(f"    {name}: {', '.join(ids)}")
    return not any(ids for name, ids in wrong.items() if name != "other class")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="the corpus or its directory")
    parser.add_argument("--verbose", action="store_true", help="list each ambiguous line and each provider")
    options = parser.parse_args()
    corpus: Path = options.corpus
    if corpus.is_dir():
        corpus = next(path for path in (corpus / "facts" / CORPUS, corpus / CORPUS) if path.exists())
    lines: list[Line] = [json.loads(line) for line in corpus.read_text().splitlines() if line.strip()]
    sure = [line for line in lines if is_sure(line)]
    rest = [line for line in lines if not is_sure(line) and not line["ambiguous"]]
    good = show("sure lines", score(sure, lambda line: judge(line, sent=size_of(line))), len(sure))
    show("fragments, third-party, logs", score(rest, lambda line: judge(line, sent=size_of(line))), len(rest))

    print("\nambiguous lines: labelled -> decided (rule)")
    for line in lines:
        if line["ambiguous"]:
            verdict = judge(line)
            print(f"    {line['id']:<18} {truth(line):<16} -> {verdict.kind:<16} ({verdict.rule})")

    counts, wrong = numbers(sure)
    print("\nstated numbers read:", ", ".join(f"{field} {hits}/{stated}" for field, (hits, stated) in counts.items()))
    for entry in wrong:
        print("   ", entry)
    good &= not wrong

    print()
    for name, wrap in RELAYS.items():
        wrapped = relayed(sure)

        def run(line: Line, wrap: Callable[[Line], tuple[str, dict[str, Any]]] = wrap) -> Verdict:
            body, where = wrap(line)
            return judge(line, body=body, **where)

        good &= show(f"relay: {name}", score(wrapped, run), len(wrapped))
        lost = [line["id"] for line in wrapped if stated(run(line)) != stated(judge(line))]
        if lost:  # a relay that passes on the sentence alone loses the counts that stood beside it
            print(f"    other numbers than without the relay: {', '.join(lost)}")

    print()
    for title, chosen in (("sure lines", sure), ("all lines but ambiguous", sure + rest)):
        recall, missed, alarms = leave_one_out(chosen)
        hits, total = (sum(counts) for counts in zip(*recall.values()))
        general = replace(TABLE, rules=tuple(rule for rule in TABLE.rules if rule.provider is None))
        alone = score(chosen, lambda line, general=general: judge(line, table=general, sent=size_of(line)))
        print(
            f"{title}, leave one provider out: recall {hits}/{total} = {hits / total:.1%}, false alarms {len(alarms)}"
        )
        print(f"    missed {missed}")
        false = alone["false alarm"] + alone["output called overflow"]
        print(f"{title}, no provider's rule at all: missed {alone['missed']}, false alarms {false}")
        if options.verbose:
            print("   ", {provider: f"{a}/{b}" for provider, (a, b) in recall.items() if a < b})
        if title == "sure lines":
            good &= hits >= RECALL * total and not alarms

    begin = time.perf_counter()
    for line in lines:
        judge(line)
    print(f"\n{(time.perf_counter() - begin) / len(lines) * 1e6:.0f} us per error body")
    print("all bounds hold" if good else "A BOUND IS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
