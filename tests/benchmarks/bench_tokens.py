"""Tables about counting: error by kind of content, long runs, speed, event-loop stall, windows, conversations.

    python tests/benchmarks/bench_tokens.py                      everything that needs no data
    python tests/benchmarks/bench_tokens.py runs stall           only these tables
    python tests/benchmarks/bench_tokens.py conversations F...   cold and warm error on recorded conversations

F are JSON-lines files, plain or .gz, one request a line with its messages (chat, messages) or input (responses).
The reference is the exact vocabulary; families whose vocabulary is not installed are left out.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import pydoc_data.topics
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ctxproxy import catalogue
from ctxproxy.models import resolve
from ctxproxy.tokens import Anchor, Calibration, Counter, counter, estimate_tokens, judge, predict, tools_tokens
from ctxproxy.tokens.estimate import ClassCounter, FamilyEstimator
from ctxproxy.tokens.families import FAMILIES
from ctxproxy.tokens.overhead import message_overhead, part_overhead, request_overhead

PIECE = 4_000  # characters
LIBRARY = Path(json.__file__).parent.parent

PROSE = {
    "Chinese": "昨天傍晚我们在河边散步，谈论孩子们长得有多快。奶奶做了苹果馅饼，爷爷修好了那只停了十年的旧钟。",
    "Japanese": "昨日の夕方、私たちは川沿いを散歩しながら、子どもたちの成長の早さについて話しました。祖母はりんごのパイを焼きました。",
    "Korean": "어제 저녁 우리는 강가를 산책하며 아이들이 얼마나 빨리 자라는지 이야기했습니다. 할머니는 사과 파이를 구우셨습니다.",
    "Russian": "Вчера вечером мы гуляли по набережной и говорили о том, как быстро растут дети. Бабушка испекла пирог с яблоками.",
    "Arabic": "مساء أمس تمشينا على ضفة النهر وتحدثنا عن سرعة نمو الأطفال. خبزت الجدة فطيرة تفاح، وأصلح الجد الساعة القديمة.",
    "Hindi": "कल शाम हम नदी के किनारे टहले और बात की कि बच्चे कितनी जल्दी बड़े होते हैं। दादी ने सेब की पाई बनाई।",
    "Thai": "เมื่อวานตอนเย็นเราเดินเล่นริมแม่น้ำและคุยกันว่าเด็กๆ โตเร็วแค่ไหน คุณย่าอบพายแอปเปิล ส่วนคุณปู่ซ่อมนาฬิกาเก่า",
}


def samples() -> dict[str, list[str]]:
    """Texts of about PIECE characters a kind of content, made here or taken from the standard library."""
    rand = random.Random(11)
    english = [text for text in pydoc_data.topics.topics.values() if len(text) > PIECE]
    code = [(LIBRARY / name).read_text() for name in ("argparse.py", "ast.py", "typing.py", "inspect.py", "shutil.py")]
    words = "".join(english).split()

    # fmt: off
    def clock() -> str:
        return f"2026-11-{rand.randint(1, 30):02}T{rand.randint(10, 23)}:{rand.randint(10, 59)}:{rand.randint(10, 59)}"

    def record() -> dict[str, Any]:
        return {"id": str(uuid.UUID(int=rand.getrandbits(128))), "at": clock(), "name": rand.choice(words), "ok": True,
                "amount": round(rand.random() * 1000, 2), "tags": rand.sample(words, 3)}

    def log() -> str:
        level, request = rand.choice(["INFO", "WARN", "ERROR"]), f"{rand.getrandbits(32):08x}"
        return f"{clock()} {level} worker[{rand.randint(1, 99)}] request {request} took {rand.randint(1, 9999)} ms"

    faces = [chr(code) for code in range(0x1F600, 0x1F640)]
    kinds = {
        "English": english[:6],
        "code": [text[at : at + PIECE] for text in code for at in (2000, 12000)],
        "JSON": [json.dumps([record() for _ in range(18)], indent=indent) for indent in (None, 2, None, 2)],
        "logs": ["\n".join(log() for _ in range(50)) for _ in range(4)],
        "CSV": ["\n".join(",".join(f"{rand.random() * 10**size:.{size}f}" for size in range(6)) for _ in range(90)) for _ in range(4)],
        "base64": [base64.b64encode(rand.randbytes(3000)).decode() for _ in range(4)],
        "hex": [rand.randbytes(2000).hex() for _ in range(4)],
        "emoji": [" ".join(rand.choice(words) + rand.choice(faces) * rand.choice([0, 0, 1, 2]) for _ in range(500)) for _ in range(4)],
    }
    # fmt: on
    for kind, text in PROSE.items():
        kinds[kind] = [text * 4]
    return {kind: [text[:PIECE] for text in texts] for kind, texts in kinds.items()}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n{title}")
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(head), *lines]) for column in range(len(head))]
    for line in [list(head), *lines]:
        first, *others = (cell.rjust(width) for cell, width in zip(line, widths))
        print("  ".join([first.strip().ljust(widths[0]), *others]))


def exact(family: str) -> Counter | None:
    """A counter of the family's own vocabulary, if one is installed (ctok's reconstruction counts as one)."""
    found = counter(family, slow=True)
    return found if found.exact or found.name.startswith("ctok") else None


def classes() -> None:
    """Error of the estimators by kind of content, beside four characters a token."""
    families = ("o200k", "claude", "gemini", "qwen", "llama", "mistral")
    truths = {name: found for name in families if (found := exact(name))}
    base = counter("o200k")
    rows: list[list[str]] = []
    for kind, texts in samples().items():
        row = [kind]
        for name, truth in truths.items():
            tokens = sum(truth.count_many(texts))
            guess: Counter = ClassCounter() if name == "o200k" else FamilyEstimator(name, base)
            row.append(f"{100 * sum(guess.count_many(texts)) / tokens - 100:+.1f}")
            row.append(f"{100 * sum(map(estimate_tokens, texts)) / tokens - 100:+.1f}")
        rows.append(row)
    unsigned = (statistics.mean(abs(float(row[column])) for row in rows) for column in range(1, len(rows[0])))
    means = ["mean, unsigned", *(f"{value:.1f}" for value in unsigned)]
    head = ["error in %"] + [cell for name in truths for cell in (f"{name} est.", "chars//4")]
    table("Content classes: estimate against the exact count (o200k: without any vocabulary)", head, [*rows, means])


def runs() -> None:
    """A megabyte of one thing: seconds, and whether time grows faster than the text."""
    found: list[tuple[str, Counter]] = [
        ("o200k", counter("o200k")),
        ("cl100k", counter("cl100k")),
        ("claude", counter("claude")),
        ("classes", ClassCounter()),
    ]
    rows: list[list[str]] = []
    for text in (
        "a",
        " ",
        "\n",
        "=",
        "0",
        "aB1",
        "- ",
        "中",
        "é",
        "\U0001f600",
        "\u0301",
        "\ud800",
        "x \t",
        "lorem ipsum ",
    ):
        row = [ascii(text)]
        for _, engine in found:
            small, large = text * (100_000 // len(text)), text * (1_000_000 // len(text))
            short, long = (seconds(partial(engine.count, one)) for one in (small, large))
            row += [f"{1000 * long:.0f}", f"{long / max(short, 1e-9):.0f}x", str(engine.count(large))]
        rows.append(row)
    head = ["1 M characters of"] + [cell for name, _ in found for cell in (f"{name} ms", "vs 100 k", "tokens")]
    table("Long runs (10x is linear)", head, rows)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed() -> None:
    texts = [text for kind in ("English", "code", "JSON", "logs") for text in samples()[kind]] * 8
    size = sum(len(text.encode()) for text in texts) / 1e6
    question = ["What is the weather?"] * 1000
    rows: list[list[str]] = []
    engines = [(family, counter(family)) for family in ("o200k", "cl100k", "claude", "gemini", "llama", "unknown")]
    for family, engine in [*engines, ("(fallback)", ClassCounter())]:
        engine.count_many(texts[:2])
        many = median(seconds, partial(engine.count_many, texts))
        short = median(seconds, lambda engine=engine: [engine.count(text) for text in question])
        rows.append([family, engine.name, f"{size / many:.1f}", f"{short * 1000:.2f}", f"{engine.margin:.2f}"])
    table("Speed on mixed text in 4 kB pieces", ["family", "counter", "MB/s", "us a short call", "margin"], rows)


def median(measure: Callable[[Callable[[], object]], float], work: Callable[[], object]) -> float:
    return statistics.median(measure(work) for _ in range(5))


async def pause(work: Callable[[], object], *, thread: bool) -> float:
    """The longest time between two beats of an event loop in which the work is done, in seconds."""
    worst, going = 0.0, True

    async def beat() -> None:
        nonlocal worst
        last = time.perf_counter()
        while going:
            await asyncio.sleep(0.0005)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0.02)
    worst = 0.0
    if thread:
        await asyncio.to_thread(work)
    else:
        work()
    await asyncio.sleep(0.002)
    going = False
    await heart
    return worst


def stall() -> None:
    text = "".join(path.read_text() for path in sorted(LIBRARY.glob("*.py")) if path.read_bytes().isascii())
    texts = {"20 kB": text[:20_000], "256 kB": text[:256_000], "4 MB": text[:4_000_000]}
    rows: list[list[str]] = []
    for family in ("o200k", "claude"):
        for size, text in texts.items():
            work = partial(counter(family).count, text)
            gaps = [lambda job, thread=thread: asyncio.run(pause(job, thread=thread)) for thread in (False, True)]
            times = (median(measure, work) for measure in (seconds, *gaps))
            rows.append([family, size, *(f"{1000 * value:.1f}" for value in times)])
    head = ["family", "text", "count ms", "inline", "in a thread"]
    table("Event loop: longest pause in ms, median of 5 (idle: about 0.6)", head, rows)


MODELS = """
    gpt-6-sol gpt-5.6 gpt-5.5 gpt-5.4-mini gpt-5 gpt-4.1
    gpt-4o o3 claude-fable-5-1 claude-opus-5-5 claude-opus-4-8 claude-sonnet-5-5
    claude-sonnet-4-5-20250929 claude-haiku-5-5 claude-haiku-4-5 gemini-4-argon gemini-3.1-pro-preview gemini-2.5-pro
    deepseek-v4-pro grok-4.5 kimi-k3 glm-5.1 MiniMax-M2.5 qwen3.8-max
    mistral-large-latest meta-llama/Llama-3.3-70B-Instruct gpt-oss-120b
"""


def models() -> None:
    rows: list[list[object]] = []
    rows_from = catalogue.load()
    for model in MODELS.split():
        info = resolve(model, catalogue=rows_from)
        origin = rows_from[info.matched].origin if info.matched else ""
        prices = f"{info.prices.input:g}/{info.prices.output:g}/{info.prices.cache_read:g}" if info.prices else ""
        shared = "yes" if info.shared else "no"
        limits = [info.window, info.context, info.output_limit, shared]
        rows.append([model, *limits, info.family, info.source, origin, prices])
    head = ["model", "window", "context", "output", "shared", "family", "source", "prices of", "USD/M in/out/cached"]
    table(f"Models (catalogue file: {catalogue.data_file() or 'none, own table'})", head, rows)


# --- recorded conversations ---


def requests(paths: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as lines:
            for line in lines:
                value = json.loads(line)
                if isinstance(value, dict) and (value.get("messages") or value.get("input")):
                    yield Path(path).name.split(".")[0], value


NO_TEXT = ("type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "signature", "encrypted_content")


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in NO_TEXT:
                yield from texts_of(item)


def sizes(request: dict[str, Any], engine: Counter, family: str) -> Iterator[tuple[bool, int]]:
    """(the model is asked now, input tokens so far) after each entry of a request."""
    total = request_overhead("chat", family) + sum(engine.count_many(list(texts_of(request.get("system")))))
    total += tools_tokens(request.get("tools") or [], wire="chat", counter=engine, family=family)
    entries: list[Any] = request.get("messages") or request["input"]
    asks = [entry.get("role") in ("user", "tool") or entry.get("type") == "function_call_output" for entry in entries]
    for at, entry in enumerate(entries):
        parts = entry.get("tool_calls") or []
        total += message_overhead("chat", family) + len(parts) * part_overhead("tool_call", "chat", family)
        total += sum(engine.count_many(list(texts_of(entry))))
        yield asks[at] and not (at + 1 < len(asks) and asks[at + 1]), total


def conversations(paths: Sequence[str], *, most: int = 12) -> None:
    """Errors of requests as a conversation grows, where the truth is the exact vocabulary's count of the same request."""
    base = counter("o200k")
    cases: list[tuple[str, Counter, Counter]] = [("o200k without vocabulary", counter("o200k"), ClassCounter())]
    for family in FAMILIES:
        if (truth := counter(family)).exact and family not in ("o200k",):
            cases.append((family, truth, FamilyEstimator(family, base)))
    chosen: dict[str, list[dict[str, Any]]] = {}
    for source, request in requests(paths):
        chosen.setdefault(source, []).append(request)
    rand = random.Random(2)
    for title, truth, guess in cases:
        rows: list[list[object]] = []
        every: tuple[list[float], list[float], list[bool]] = ([], [], [])
        for source, found in chosen.items():
            cold, warm, above = errors(rand.sample(found, min(most, len(found))), truth, guess)
            for all_of, part in zip(every, (cold, warm, above)):
                all_of.extend(part)  # type: ignore[arg-type]
            rows.append(summary(source, cold, warm, above))
        table(f"Conversations, {title}: error of whole requests", HEAD, [*rows, summary("all", *every)])


HEAD = ["source", "requests", "cold mean %", "p95", "above margin %", "third on", "warm median %", "p95"]


def summary(name: str, cold: list[float], warm: list[float], above: list[bool]) -> list[object]:
    def at(values: list[float], share: float) -> str:
        ordered = sorted(map(abs, values))
        return f"{100 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.2f}" if ordered else "-"

    mean = f"{100 * statistics.mean(map(abs, cold)):.2f}" if cold else "-"
    exceeded = f"{100 * sum(above) / len(above):.2f}" if above else "-"
    return [name, len(cold), mean, at(cold, 0.95), exceeded, len(warm), at(warm, 0.5), at(warm, 0.95)]


def errors(found: list[dict[str, Any]], truth: Counter, guess: Counter) -> tuple[list[float], list[float], list[bool]]:
    cold: list[float] = []
    warm: list[float] = []
    above: list[bool] = []
    for request in found:
        known, anchor, turn = Calibration(), None, 0
        tools = tools_tokens(request.get("tools") or [], wire="chat", counter=guess, family="o200k")
        pairs = zip(sizes(request, truth, "o200k"), sizes(request, guess, "o200k"))
        for place, ((asked, said), (_, counted)) in enumerate(pairs):
            if not asked:
                continue
            turn += 1
            value = predict(counted, calibration=known, anchor=anchor, margin=guess.margin, tools=tools)
            above.append(said > value.value + value.margin)
            if turn == 1:
                cold.append(value.value / said - 1)
            elif turn >= 3:
                warm.append(value.value / said - 1)
            if judge(known, counted=counted, reported=said, anchor=anchor, tools=tools) != "truncated":
                known = known.observe(counted=counted, reported=said, anchor=anchor, margin=guess.margin, tools=tools)
                anchor = Anchor(prefix=b"", messages=place + 1, tokens=said, counted=counted)
    return cold, warm, above


TABLES = {"classes": classes, "runs": runs, "speed": speed, "stall": stall, "models": models}


if __name__ == "__main__":
    if sys.argv[1:2] == ["conversations"]:
        conversations(sys.argv[2:])
    else:
        for name in sys.argv[1:] or TABLES:
            TABLES[name]()
