"""Compact real requests of all three APIs to many sizes and hold each result against the wires' rules.

    python .ci/eval_wires.py SHARED [--all] [--jobs 2] [--budget TOKENS] [--seed 1] [--verbose]

SHARED holds captures/, data/ and tools/convdata.py. Every request goes through the engine in its own API: unedited it
must come out byte-identical; compacted to 90, 70, 50, 30 and 15 % of its size and to windows of 2K, 4K, 8K and 32K it
must break no rule that it kept before (the strict fake provider's rules, and convdata's pairs), keep system, developer,
tools, parameters and the newest typed user message verbatim, keep the first typed one, leave untouched messages the
same bytes, and fit by an exact o200k count that is not ctxproxy's. "Cannot fit" is right only where the parts that stay
are too large; a prompt that is too large by less than the margin of its measure is sent in its smallest form.

Modes: `own` (the API's own provider), `strict` (nothing known: roles alternate, no user after a tool), `bound`
(Messages with thinking that is bound to its prefix). Without --all a sample is taken: all captures, and of each source
conversations of all sizes until --budget tokens. Exit 1 on violations.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from provider import validate
from provider.counting import count_texts, request_texts

from ctxproxy import rawjson
from ctxproxy.conversation import Conversation, first_typed, last_typed, texts_of
from ctxproxy.edits import Rules
from ctxproxy.effects import Prepared, drive
from ctxproxy.errors import ContextOverflowError
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES
from ctxproxy.wire.profiles import STRICTEST, rules_for

SHARES = (0.90, 0.70, 0.50, 0.30, 0.15)
WINDOWS = (2_000, 4_000, 8_000, 32_000)
MODEL = "gpt-4o"  # o200k, so that sizes are exact
PROFILES = {
    ("own", "chat"): ("openai", "deepseek"),
    ("own", "responses"): ("openai", "deepseek"),
    ("own", "messages"): ("anthropic",),
    ("strict", "chat"): ("openai", "mistral", "gemini", "bedrock", "strict-template", "strict-args"),
    ("strict", "responses"): ("openai",),
    ("strict", "messages"): ("anthropic", "bedrock"),
    ("bound", "messages"): ("anthropic",),
}
SLACK = 64  # tokens of a bridge between two messages and of the shortest cut, which a floor does not name


@dataclass(frozen=True)
class Case:
    source: str
    id: str
    api: str
    body: bytes
    size: int


@dataclass
class Row:
    """What became of the requests of one mode, API and target."""

    requests: int = 0
    unchanged: int = 0
    fits: int = 0
    cannot: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Row) -> None:
        self.requests += other.requests
        self.unchanged += other.unchanged
        self.fits += other.fits
        self.cannot += other.cannot
        self.violations += other.violations
        self.seconds += other.seconds


# -- the material


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def captures(shared: Path) -> Iterator[Case]:
    for path in sorted((shared / "captures").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        api = next(
            (a for end, a in (("chat/completions", "chat"), ("responses", "responses")) if end in record["path"]),
            "messages",
        )
        body = dump(record["body"])
        yield Case("captures", path.stem, api, body, len(body) // 4)


def conversations(shared: Path) -> Iterator[Case]:
    data = importlib.import_module("convdata")
    for source, conversation in data.load(str(shared / "data")):
        body = dump(data.body(conversation, model=MODEL))
        yield Case(source, str(conversation["id"]), data.CLI_API[conversation["api"]], body, len(body) // 4)


def sample(cases: list[Case], *, budget: int, seed: int) -> list[Case]:
    """Per source and API: in random order, whole, until the source's share of the budget is used; at least two."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.source, case.api].append(case)
    chosen: list[Case] = []
    for key in sorted(groups):
        group = groups[key]
        random.Random(f"{seed}{key}").shuffle(group)
        left = budget // len(groups)
        for n, case in enumerate(group):
            if n >= 2 and case.size > left:
                continue
            left -= case.size
            chosen.append(case)
    return chosen


# -- judging


class Judge:
    """Compares a request with its compacted form."""

    def __init__(self, shared: Path, case: Case, mode: str, conversation: Conversation) -> None:
        self.data = importlib.import_module("convdata")
        self.case, self.mode, self.before = case, mode, conversation
        self.wire = WIRES[case.api]
        self.name = {v: k for k, v in self.data.CLI_API.items()}[case.api]
        self.value = json.loads(case.body)
        self.profiles = PROFILES[mode, case.api]
        self.rules_before = {
            p: Counter(v.rule for v in validate(self.value, case.api, profile=p)) for p in self.profiles
        }
        self.sound = not self.data.check_pairs(self.value, self.name)
        self.raws = [m.raw for m in conversation.messages]

    def tokens(self, value: dict[str, Any], conversation: Conversation) -> int:
        """o200k tokens of all texts, each message's frame, tools and media as ctxproxy prices them."""
        texts, messages, _ = request_texts({k: v for k, v in value.items() if k != "tools"}, self.case.api)
        media = sum(p.tokens for m in conversation.messages for p in m.parts if p.kind == "media")
        return count_texts(texts) + 4 * messages + conversation.fixed.tools + media

    def faults(self, body: bytes, after: Conversation, target: int, edits: int) -> list[str]:
        value = json.loads(body)
        found = [
            f"{profile}: {rule}"
            for profile in self.profiles
            for rule in (
                Counter(v.rule for v in validate(value, self.case.api, profile=profile)) - self.rules_before[profile]
            )
        ]
        if self.sound and (bad := self.data.check_pairs(value, self.name)):
            found.append(f"pairs: {bad[0]}")
        fields, old = rawjson.members(body), rawjson.members(self.case.body)
        if [(k, v) for k, v in fields.items() if k != self.wire.array] != [
            (k, v) for k, v in old.items() if k != self.wire.array
        ]:
            found.append("a parameter changed")
        before, now = self.before.messages, after.messages
        if [m.raw for m in before if m.role in ("system", "developer")] != [
            m.raw for m in now if m.role in ("system", "developer")
        ]:
            found.append("system or developer changed")
        found += self.users(after)
        if not in_order([m.raw for m in now], self.raws):
            found.append("untouched messages out of order")
        known = set(self.raws)
        if sum(m.raw not in known for m in now) > edits:
            found.append("more messages changed than the edits name")
        opaque = [m for m in before if m.opaque]
        if len(opaque) != len([m for m in now if m.opaque]):
            found.append("an opaque entry is gone")
        if self.mode == "bound" and stale(before, now):
            found.append("thinking behind an edit")
        size = self.tokens(value, after)
        if size > target:
            found.append(f"size {size} over {target}")
        return found

    def users(self, after: Conversation) -> list[str]:
        """The newest typed user message verbatim (a note may follow in it), the first one at least at its start."""
        found: list[str] = []
        old, new = last_typed(self.before.messages), last_typed(after.messages)
        if old is not None:
            a = self.before.messages[old]
            b = after.messages[new] if new is not None else None
            if b is None or not (a.raw == b.raw or extends(a, b)):
                found.append("newest typed user message changed")
        old, new = first_typed(self.before.messages), first_typed(after.messages)
        if old is not None:
            start = next((t for t in texts_of(self.before.messages[old]) if t.strip()), "")[:200].strip()
            if new is None or (start and not any(start in t for t in texts_of(after.messages[new]))):
                found.append("first typed user message lost")
        return found


def extends(a: Any, b: Any) -> bool:
    """Whether what was typed in `a` (its results aside, which may shrink) is in `b`, where a note may follow."""
    texts = texts_of(b)
    typed = [t for p, t in zip(a.parts, texts_of(a), strict=True) if p.kind == "text"]
    media = [sum(p.kind == "media" and p.id is None for p in m.parts) for m in (a, b)]
    return media[0] == media[1] and all(any(t.startswith(text) for t in texts) for text in typed)


def in_order(now: list[bytes], before: list[bytes]) -> bool:
    """Whether those of `now` that are in `before` come in its order."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for i, raw in enumerate(before):
        places[raw].append(i)
    at = -1
    for raw in now:
        if raw in places:
            at = next((i for i in places[raw] if i > at), len(before))
            if at == len(before):
                return False
    return True


def stale(before: Any, now: Any) -> bool:
    same = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a.raw != b.raw), len(now))
    return any(m.of("thinking") for m in now[same:])


def floor(conversation: Conversation, target: int) -> tuple[int, str]:
    """Tokens that no compaction can go below, and the largest part of them."""
    from ctxproxy.conversation import exchanges

    messages = conversation.messages
    first, newest = first_typed(messages), last_typed(messages)
    parts: Counter[str] = Counter()
    parts["system"] = conversation.fixed.system + conversation.fixed.other
    parts["tools"] = conversation.fixed.tools
    groups = exchanges(messages)
    for group in groups:
        last = group is groups[-1] or group.open
        kept = last or any(messages[i].opaque or messages[i].role in ("system", "developer") for i in group)
        kept = kept or first in group or newest in group
        if not kept:
            continue
        for i in group:
            message = messages[i]
            if message.role in ("system", "developer"):
                parts["system"] += message.tokens
            elif message.opaque:
                parts["untouchable entries"] += message.tokens
            elif i == newest:
                parts["newest user message"] += message.tokens
            elif i == first:
                parts["first user message"] += min(message.tokens, max(96, target // 10) + 80)
            else:
                name = "newest exchange" if last else "bound to what stays"
                for part in message.parts:
                    cut = part.kind == "tool_result" or (part.kind == "tool_call" and part.path)
                    parts[name] += min(part.tokens, 120) if cut else part.tokens
                parts[name] += 6
    return parts.total(), max(parts, key=lambda name: parts[name])


# -- running


def run_case(job: tuple[str, Case, tuple[str, ...]]) -> dict[tuple[str, str, str], Row]:
    shared, case, modes = job
    tools = str(Path(shared) / "tools")
    if tools not in sys.path:
        sys.path.insert(0, tools)
    rows: dict[tuple[str, str, str], Row] = {}
    plain = Runtime(policy=Policy(summaries=False), window=1_000_000)
    prepared: Prepared = drive(plain.engine.prepare(plain.call(api=case.api, body=case.body)), plain.perform)
    row = rows[case.api, "own", "unedited"] = Row(requests=1, fits=1, unchanged=1)
    if prepared.body != case.body:
        row.violations.append(f"{case.source} {case.id}: not byte-identical")
    value = json.loads(case.body)
    value["model"] = MODEL
    own = replace(case, body=dump(value)) if case.source == "captures" else case
    conversation = plain.engine.reader.read(own.body, WIRES[case.api])
    for mode in modes:
        rules: Rules | None = STRICTEST if mode == "strict" else None
        if mode == "bound":
            if case.api != "messages" or not any(m.of("thinking") for m in conversation.messages):
                continue
            rules = replace(rules_for(api="messages", model="claude"), thinking="bound")
        runtime = Runtime(policy=Policy(summaries=False), rules=rules, secret=b"eval")
        judge = Judge(Path(shared), own, mode, conversation)
        targets = [(f"{s:.0%}", int(conversation.tokens * s), None) for s in SHARES]
        targets += [(f"{w // 1000}K", w, w) for w in WINDOWS if conversation.tokens >= w * 0.9]
        for label, target, window in targets:
            row = rows.setdefault((case.api, mode, label), Row())
            run_one(runtime, judge, conversation, row, label, target, window)
    return rows


def run_one(
    runtime: Runtime, judge: Judge, conversation: Conversation, row: Row, label: str, target: int, window: int | None
) -> None:
    case = judge.case
    where = f"{case.source} {case.id} {case.api} {judge.mode} {label}"
    # An account of its own, so that nothing of another target is replayed.
    call = runtime.call(
        api=case.api,
        body=case.body,
        account=label,
        window=window or 10_000_000,
        target_tokens=None if window else target,
    )
    row.requests += 1
    begin = time.perf_counter()
    try:
        prepared: Prepared = drive(runtime.engine.prepare(call), runtime.perform)
    except ContextOverflowError as error:
        row.seconds += time.perf_counter() - begin
        least, part = floor(conversation, target)
        row.cannot[part] += 1
        if least + SLACK <= target or not error.fixed:
            row.violations.append(f"{where}: cannot fit {target}, floor {least}, {error.fixed}")
        return
    row.seconds += time.perf_counter() - begin
    if prepared.report.faults:
        row.violations.append(f"{where}: check: {prepared.report.faults}")
        return
    if conversation.hands_off:
        row.cannot["left alone: " + conversation.hands_off] += 1
        return
    if window and prepared.report.tokens_after > window >= prepared.report.tokens_after - prepared.report.margin:
        # Larger by less than the measure's margin: the smallest form is sent, and the provider decides.
        least, part = floor(conversation, target)
        row.cannot[f"{part} (within the margin)"] += 1
        if least + SLACK <= target:
            row.violations.append(f"{where}: not cut to {target}, floor {least}")
        return
    if prepared.body == case.body:
        row.unchanged += 1
        if conversation.tokens > target:
            row.violations.append(f"{where}: not compacted")
        row.fits += 1
        return
    after = runtime.engine.reader.read(prepared.body, call.wire)
    notes = sum(e["edit"] == "note" for e in prepared.explanation)
    touched = {e["message"] for e in prepared.explanation if e["edit"] in ("replace", "strip")}
    faults = judge.faults(prepared.body, after, target, notes + len(touched))
    row.violations += [f"{where}: {fault}" for fault in faults]
    row.fits += not faults
    again: Prepared = drive(runtime.engine.prepare(replace(call, body=prepared.body)), runtime.perform)
    if window is None and again.body != prepared.body:
        row.violations.append(f"{where}: twice is not once")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--budget", type=int, default=4_000_000, help="tokens of the sample, roughly")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--source", help="only this source")
    arguments.add_argument("--modes", default="own,strict,bound")
    arguments.add_argument("--verbose", action="store_true")
    args = arguments.parse_args()
    sys.path.insert(0, str(args.shared / "tools"))
    begin = time.perf_counter()
    fixed, rest = list(captures(args.shared)), list(conversations(args.shared))
    cases = [*fixed, *(rest if args.all else sample(rest, budget=args.budget, seed=args.seed))]
    if args.source:
        cases = [c for c in cases if c.source == args.source]
    cases.sort(key=lambda c: -c.size)
    sizes = [sum(c.size for c in some) for some in (cases, [*fixed, *rest])]
    print(
        f"{len(cases)} of {len(fixed) + len(rest)} requests, {sizes[0]:,} of {sizes[1]:,} tokens (bytes / 4)",
        flush=True,
    )
    total: dict[tuple[str, str, str], Row] = defaultdict(Row)
    jobs = [(str(args.shared), case, tuple(args.modes.split(","))) for case in cases]
    with Pool(args.jobs) as pool:
        for rows in pool.imap_unordered(run_case, jobs, chunksize=1):
            for key, row in rows.items():
                total[key].add(row)
    return report(total, time.perf_counter() - begin, verbose=args.verbose)


def report(total: dict[tuple[str, str, str], Row], seconds: float, *, verbose: bool) -> int:
    order = ["unedited", *(f"{s:.0%}" for s in SHARES), *(f"{w // 1000}K" for w in WINDOWS)]
    head = ("api", "mode", "target", "requests", "fits", "cannot", "violations", "ms each")
    line = "{:<10} {:<7} {:<9} {:>8} {:>6} {:>6} {:>10} {:>8}  {}"
    print(line.format(*head, "why it cannot"))
    for key in sorted(total, key=lambda k: (k[0], k[1], order.index(k[2]))):
        row = total[key]
        why = ", ".join(f"{name} {n}" for name, n in row.cannot.most_common())
        ms = f"{row.seconds * 1000 / max(1, row.requests):.1f}"
        print(line.format(*key, row.requests, row.fits, row.cannot.total(), len(row.violations), ms, why))
    bad = [v for row in total.values() for v in row.violations]
    everything = sum(row.requests for row in total.values())
    fits, cannot = sum(r.fits for r in total.values()), sum(r.cannot.total() for r in total.values())
    print(f"all: {everything} runs, {fits} fit, {cannot} cannot, {len(bad)} violations, {seconds:.0f} s")
    for text in bad if verbose else bad[:40]:
        print("  " + text)
    if len(bad) > 40 and not verbose:
        print(f"  ... {len(bad) - 40} more (--verbose)")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
