"""A loopback server in front of a real model server that spoils the answers to summary calls, and notes what came."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

from ctxproxy.strategies.summarize import SECTIONS

__all__ = ["FAULTS", "Faulty", "Mode", "Seen"]

Mode = Literal["real", "good", "status", "timeout", "empty", "error text", "longer than its input"]
FAULTS: tuple[Mode, ...] = ("status", "timeout", "empty", "error text", "longer than its input")
_ASKED = "### Decisions Made\\n- (each"


@dataclass
class Seen:
    """One request: when it came and was answered (seconds of a monotonic clock), whether it asked for a summary."""

    began: float
    summary: bool
    body: Any
    ended: float = 0.0
    text: str = ""


@dataclass
class Faulty:
    """`with Faulty(upstream) as server:`; `mode` may be changed at any time. "good" is what an able model would say."""

    upstream: str
    mode: Mode = "real"
    hold: float = 30.0
    seen: list[Seen] = field(default_factory=list)

    def __enter__(self) -> Faulty:
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers["content-length"]))
        text = data.decode()
        seen = Seen(time.monotonic(), _ASKED in text, json.loads(data))
        self.seen.append(seen)
        status, body = self._forward(handler, data) if not seen.summary or self.mode == "real" else self._spoil(data)
        try:
            seen.text = json.loads(body)["choices"][0]["message"]["content"] or ""
        except (ValueError, KeyError):
            seen.text = ""
        seen.ended = time.monotonic()
        try:
            handler.send_response(status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # whoever asked has gone

    def _forward(self, handler: BaseHTTPRequestHandler, data: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=300)
        try:
            connection.request("POST", handler.path, data, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _spoil(self, data: bytes) -> tuple[int, bytes]:
        if self.mode == "timeout":
            self._closing.wait(self.hold)
        if self.mode in ("status", "timeout"):
            return 503, b'{"error": {"message": "overloaded", "type": "server_error"}}'
        text = {
            "empty": "",
            "error text": "Error: the model is overloaded, please try again later. " * 6,
            "longer than its input": "\n".join(f"### {name}\n- {data.decode()}" for name in SECTIONS),
            "good": "\n".join(f"### {name}\n- about the {name.lower()} of the tide records" for name in SECTIONS),
        }[self.mode]
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, json.dumps({"id": "s", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
