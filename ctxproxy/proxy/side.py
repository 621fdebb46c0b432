"""Small questions to an upstream beside the requests: bounded in seconds, bytes and number, and never in their way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import aiohttp

from ctxproxy.bodies import BodyTooLarge, decode
from ctxproxy.proxy.upstreams import Upstream
from ctxproxy.served import ANSWER_BYTES, SECONDS, Fact, Key, Question, Served, window_of

__all__ = ["Asker", "ask", "credentials"]

_log = logging.getLogger("ctxproxy.proxy")
_FLIGHTS = 4  # models that are asked about at the same time; the others wait for a later request
# What a server needs to know who asks. Anything else of a request belongs to that request.
_KEPT = (
    "authorization", "x-api-key", "api-key", "anthropic-version", "anthropic-beta", "openai-organization",
    "openai-project", "user-agent",
)  # fmt: skip


def credentials(names: Mapping[str, str], upstream: Upstream) -> dict[str, str]:
    """The headers of a question, from those of a request (names in lower case)."""
    found = {name: names[name] for name in _KEPT if name in names}
    if upstream.key is not None:
        found = {name: value for name, value in found.items() if name not in _KEPT[:3]}
        if upstream.wires == ("messages",):
            found["x-api-key"] = upstream.key
        else:
            found["authorization"] = f"Bearer {upstream.key}"
    if upstream.basic is not None:
        found["authorization"] = upstream.basic
    return found


async def ask(
    session: aiohttp.ClientSession, question: Question, headers: Mapping[str, str], *, limit: int = ANSWER_BYTES
) -> bytes | None:
    """The body of a 200; None for any other answer, one of more than `limit` bytes, and every failure."""
    try:
        async with session.request(
            "POST" if question.body else "GET",
            question.url,
            headers={**headers, "accept": "application/json", "content-type": "application/json"},
            data=question.body or None,
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                return None
            found = bytearray()
            async for chunk in response.content.iter_any():
                found += chunk
                if len(found) > limit:
                    response.close()
                    return None
            return decode(bytes(found), response.headers.get("content-encoding", ""), limit=limit)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, BodyTooLarge):
        return None


class Asker:
    """Takes the wishes to know what an upstream serves and fulfils them in the background."""

    def __init__(
        self, session: aiohttp.ClientSession, served: Served | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._session = session
        self._served = served
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self, upstream: Upstream, names: Mapping[str, str]) -> None:
        """Begin to ask what requests to that upstream want to know, with the credentials of one of them."""
        if self._served is None:
            return
        room = _FLIGHTS - len(self._tasks)
        for key in self._served.take(upstream.base_url, now=self._clock(), most=room):
            task = asyncio.create_task(self._find(self._served, key, credentials(names, upstream)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _find(self, served: Served, key: Key, headers: Mapping[str, str]) -> None:
        fact = Fact()
        try:
            async with asyncio.timeout(SECONDS):
                fact = await self._steps(key, headers)
        except TimeoutError:
            _log.debug("%s did not say in time what it serves", key[0])
        except Exception:
            _log.exception("a fault while %s was asked what it serves", key[0])
        if served.put(key, fact, now=self._clock()):
            _log.info("%s serves %s with a window of %s tokens", *key, f"{fact.window:,}")

    async def _steps(self, key: Key, headers: Mapping[str, str]) -> Fact:
        steps = window_of(*key)
        try:
            question = next(steps)
            while True:
                question = steps.send(await ask(self._session, question, headers))
        except StopIteration as stop:
            return stop.value

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
