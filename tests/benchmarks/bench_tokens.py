"""Tables about counting: error by kind of content, long runs, speed, event-loop stall, windows, conversations.

    python tests/benchmarks/bench_tokens.py                      everything that needs no data
    python tests/benchmarks/bench_tokens.py runs stall           only these tables
    python tests/benchmarks/bench_tokens.py conversations F...   cold and warm error on recorded conversations

F are JSON-lines files, plain or .gz, one request a line with its messages (chat, messages) or input (responses).
The reference is the exact vocabulary; a row says so where the package that has it is not installed.
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
from pathlib import Path
from typing import Any

from ctxproxy import catalogue
from ctxproxy.models import resolve
from ctxproxy.tokens import Anchor, Calibration, Counter, counter, estimate_tokens, judge, predict, tools_tokens
from ctxproxy.tokens.estimate import ClassCounter, FamilyEstimator
from ctxproxy.tokens.families import FAMILIES
from ctxproxy.tokens.overhead import message_overhead, part_overhead, request_overhead

PIECE = 4_000  # characters

PROSE = {
    "Chinese": "昨天傍晚我们在河边散步，谈论孩子们长得有多快。奶奶做了苹果馅饼，爷爷修好了那只停了十年的旧钟。后来邻居们带着茶来了，"
    "大家一直在阳台上坐到深夜。第二天早上下起了雨，我们只好待在家里看书、写信，等天气好转再出门。",
    "Japanese": "昨日の夕方、私たちは川沿いを散歩しながら、子どもたちの成長の早さについて話しました。祖母はりんごのパイを焼き、祖父は十年も"
    "止まっていた古い時計を直しました。そのあと近所の人たちがお茶を持って来て、夜遅くまで縁側で過ごしました。",
    "Korean": "어제 저녁 우리는 강가를 산책하며 아이들이 얼마나 빨리 자라는지 이야기했습니다. 할머니는 사과 파이를 구우셨고 할아버지는 십 년 동안 "
    "멈춰 있던 낡은 시계를 고치셨습니다. 그 뒤 이웃들이 차를 가지고 와서 밤늦게까지 마루에 앉아 있었습니다.",
    "Russian": "Вчера вечером мы гуляли по набережной и говорили о том, как быстро растут дети. Бабушка испекла пирог с яблоками, а дед "
    "починил старые часы, которые стояли уже лет десять. Потом пришли соседи с чаем, и все сидели на веранде до поздней ночи.",
    "Arabic": "مساء أمس تمشينا على ضفة النهر وتحدثنا عن سرعة نمو الأطفال. خبزت الجدة فطيرة تفاح، وأصلح الجد الساعة القديمة التي توقفت منذ "
    "عشر سنوات. ثم جاء الجيران بالشاي وبقي الجميع على الشرفة حتى ساعة متأخرة من الليل.",
    "Hindi": "कल शाम हम नदी के किनारे टहले और बात की कि बच्चे कितनी जल्दी बड़े होते हैं। दादी ने सेब की पाई बनाई और दादा ने वह पुरानी घड़ी ठीक की जो दस साल से "
    "बंद थी। फिर पड़ोसी चाय लेकर आए और सब देर रात तक बरामदे में बैठे रहे।",
    "Thai": "เมื่อวานตอนเย็นเราเดินเล่นริมแม่น้ำและคุยกันว่าเด็กๆ โตเร็วแค่ไหน คุณย่าอบพายแอปเปิล ส่วนคุณปู่ซ่อมนาฬิกาเก่าที่หยุดเดินมาสิบปี "
    "จากนั้นเพื่อนบ้านก็นำชามาและทุกคนนั่งที่ระเบียงจนดึก",
    "German": "Gestern Abend gingen wir am Fluss spazieren und sprachen darüber, wie schnell die Kinder wachsen. Die Großmutter backte einen "
    "Apfelkuchen, und der Großvater reparierte die alte Uhr, die seit zehn Jahren stillstand. Später kamen die Nachbarn mit Tee.",
}


def samples() -> dict[str, list[str]]:
    """Texts of about PIECE characters a kind of content, made here or taken from the standard library."""
    rand = random.Random(11)
    english = [text for text in pydoc_data.topics.topics.values() if len(text) > PIECE]
    library = Path(json.__file__).parent.parent
    code = [(library / name).read_text() for name in ("argparse.py", "ast.py", "typing.py", "inspect.py", "shutil.py")]
    words = "".join(english).split()

    def record() -> dict[str, Any]:
        return {
            "id": str(uuid.UUID(int=rand.getrandbits(128))),
            "at": f"2026-11-{rand.randint(1, 30):02}T08:{rand.randint(10, 59)}:00Z",
            "name": rand.choice(words),
            "amount": round(rand.random() * 1000, 2),
            "tags": rand.sample(words, 3),
            "ok": rand.random() < 0.5,
        }

    def log() -> str:
        return (
            f"2026-11-30 {rand.randint(0, 23):02}:{rand.randint(0, 59):02}:{rand.randint(0, 59):02},{rand.randint(0, 999):03} "
            f"{rand.choice(['INFO', 'WARN', 'ERROR'])} worker[{rand.randint(1, 99)}] request {rand.getrandbits(32):08x} took {rand.randint(1, 9999)} ms"
        )

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
    }  # fmt: skip
    for kind, text in PROSE.items():
        kinds[kind] = [text * 4]
    return {kind: [text[:PIECE] for text in texts] for kind, texts in kinds.items()}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n{title}")
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(head), *lines]) for column in range(len(head))]
    for line in [list(head), *lines]:
        print(
            "  ".join(
                cell.ljust(width) if not at else cell.rjust(width) for at, (cell, width) in enumerate(zip(line, widths))
            )
        )


def percent(value: float) -> str:
    return f"{100 * value:+.1f}"


def exact(family: str) -> Counter | None:
    """A counter of the family's own vocabulary, if one is installed (ctok's reconstruction counts as one)."""
    found = counter(family, slow=True)
    return found if found.exact or found.name.startswith("ctok") else None


def classes() -> None:
    """Error of the estimators by kind of content, beside four characters a token."""
    truths = {
        name: found for name in ("o200k", "claude", "gemini", "qwen", "llama", "mistral") if (found := exact(name))
    }
    base = counter("o200k")
    rows: list[list[str]] = []
    for kind, texts in samples().items():
        row = [kind]
        for name, truth in truths.items():
            tokens = sum(truth.count_many(texts))
            guess: Counter = ClassCounter() if name == "o200k" else FamilyEstimator(name, base)
            row.append(percent(sum(guess.count_many(texts)) / tokens - 1))
            row.append(percent(sum(estimate_tokens(text) for text in texts) / tokens - 1))
        rows.append(row)
    means = ["mean, unsigned"]
    for column in range(1, len(rows[0])):
        means.append(f"{statistics.mean(abs(float(row[column])) for row in rows):.1f}")
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
            short, long = seconds(lambda: engine.count(small)), seconds(lambda: engine.count(large))  # noqa: B023
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
    rows: list[list[str]] = []
    for family in ("o200k", "cl100k", "claude", "gemini", "llama", "unknown"):
        engine = counter(family)
        engine.count_many(texts[:2])
        many = statistics.median(seconds(lambda: engine.count_many(texts)) for _ in range(5))  # noqa: B023
        short = statistics.median(
            seconds(lambda: [engine.count("What is the weather?") for _ in range(1000)]) for _ in range(5)
        )  # noqa: B023
        rows.append([family, engine.name, f"{size / many:.1f}", f"{short * 1000:.2f}", f"{engine.margin:.2f}"])
    classes_counter = ClassCounter()
    rows.append(
        [
            "(fallback)",
            "classes",
            f"{size / seconds(lambda: classes_counter.count_many(texts)):.1f}",
            "",
            f"{classes_counter.margin:.2f}",
        ]
    )
    table("Speed on mixed text in 4 kB pieces", ["family", "counter", "MB/s", "us a short call", "margin"], rows)


def stall() -> None:
    """The longest pause of a heartbeat in the event loop while a new text is counted."""
    english = "".join(text for text in pydoc_data.topics.topics.values() if text.isascii())
    texts = {"20 kB": english[:20_000], "256 kB": english[:256_000], "4 MB": (english * 12)[:4_000_000]}

    async def gap(work: Callable[[], object], thread: bool) -> float:
        worst, last, going = 0.0, time.perf_counter(), True

        async def beat() -> None:
            nonlocal worst, last
            while going:
                await asyncio.sleep(0.0005)
                now = time.perf_counter()
                worst, last = max(worst, now - last), now

        heart = asyncio.create_task(beat())
        await asyncio.sleep(0.02)
        worst = 0.0
        await (asyncio.to_thread(work) if thread else asyncio.sleep(0))
        if not thread:
            work()
        await asyncio.sleep(0.002)
        going = False
        await heart
        return worst

    rows: list[list[str]] = []
    for family in ("o200k", "claude"):
        engine = counter(family)
        for size, text in texts.items():
            cells = [
                f"{1000 * statistics.median(asyncio.run(gap(lambda: engine.count(text), thread)) for _ in range(5)):.1f}"
                for thread in (False, True)
            ]  # noqa: B023
            rows.append([family, size, f"{1000 * seconds(lambda: engine.count(text)):.1f}", *cells])  # noqa: B023
    table(
        "Event loop: longest pause in ms, median of 5 (idle: about 0.6)",
        ["family", "text", "count ms", "inline", "in a thread"],
        rows,
    )


MODELS = (
    "gpt-6-sol gpt-5.6 gpt-5.5 gpt-5.4-mini gpt-5 gpt-4.1 gpt-4o o3 claude-fable-5-1 claude-opus-5-5 claude-opus-4-8 claude-sonnet-5-5 "
    "claude-sonnet-4-5-20250929 claude-haiku-5-5 claude-haiku-4-5 gemini-4-argon gemini-3.1-pro-preview gemini-2.5-pro deepseek-v4-pro "
    "grok-4.5 kimi-k3 glm-5.1 MiniMax-M2.5 qwen3.8-max mistral-large-latest meta-llama/Llama-3.3-70B-Instruct gpt-oss-120b"
).split()


def models() -> None:
    rows: list[list[object]] = []
    rows_from = catalogue.load()
    for model in MODELS:
        info = resolve(model, catalogue=rows_from)
        origin = rows_from[info.matched].origin if info.matched else ""
        prices = f"{info.prices.input:g}/{info.prices.output:g}/{info.prices.cache_read:g}" if info.prices else ""
        rows.append(
            [
                model,
                info.window,
                info.context,
                info.output_limit,
                "yes" if info.shared else "no",
                info.family,
                info.source,
                origin,
                prices,
            ]
        )
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


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in (
                "type",
                "role",
                "id",
                "call_id",
                "tool_call_id",
                "tool_use_id",
                "signature",
                "encrypted_content",
            ):
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


HEAD = [
    "source",
    "first requests",
    "cold mean %",
    "p95",
    "above value + margin %",
    "third and later",
    "warm median %",
    "p95",
]


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


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["conversations"]:
        conversations(arguments[1:])
        return
    for name in arguments or TABLES:
        TABLES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
