"""The clients: how each is found, started for a scripted session, and which tool its model calls."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provider import Answer, ToolCall

__all__ = ["CLIENTS", "Client", "Start"]

_PROMPT = (
    "Read part-1.txt, part-2.txt and so on in the working folder, one at a time and in order, with cat, until there "
    "is none left. Then say that all parts are read. REMEMBER-THIS-TASK"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A command with what it needs in its environment."""

    command: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A real client and its scripted session.

    `window` is the provider's, in tokens; `size` are the bytes of a file that the model reads, `calls` how many it
    reads; `wording` is the provider family whose errors the client gets.
    """

    name: str
    program: str
    install: str
    wire: str
    start: Callable[[Path, Path, int], Start]
    tool: str | None
    arguments: Callable[[str], dict[str, Any]] = lambda command: {"command": command}
    end: Callable[[int], Answer] = lambda step: Answer("All parts are read.")
    window: int = 64_000
    size: int = 20_000
    calls: int = 40
    wording: str = "openai"
    done: str = "All parts are read"

    @property
    def path(self) -> str | None:
        return shutil.which(self.program)

    @property
    def version(self) -> str:
        done = subprocess.run([self.path or "", "--version"], capture_output=True, text=True, timeout=60)
        words = (done.stdout or done.stderr).split()
        return next((w for w in words if w[:1].isdigit()), words[-1] if words else "?")


# Each gets the folder to work in, a home of its own, and the number of files.


def _codex(folder: Path, home: Path, calls: int) -> Start:
    (home / ".codex").mkdir()
    return Start(
        command=[
            "codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-m", "gpt-5.5", _PROMPT,
        ],
        env={"CODEX_API_KEY": "sk-client-codex"},
    )  # fmt: skip


def _claude(folder: Path, home: Path, calls: int) -> Start:
    return Start(
        command=["claude", "-p", _PROMPT, "--allowedTools", "Bash(cat:*)", "--model", "claude-sonnet-4-5-20250929"],
        env={
            "ANTHROPIC_API_KEY": "sk-client-claude",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )


def _opencode(provider: str, npm: str | None) -> Callable[[Path, Path, int], Start]:
    def start(folder: Path, home: Path, calls: int) -> Start:
        limits = {"limit": {"context": 1_000_000, "output": 8_000}}
        entry: dict[str, Any] = {"options": {"apiKey": "sk-client-opencode"}, "models": {"scripted": limits}}
        if npm:
            entry |= {"npm": npm}
            entry["options"]["baseURL"] = "{env:OPENAI_BASE_URL}"
        settings = {"provider": {provider: entry}, "autoupdate": False, "share": "disabled"}
        (folder / "opencode.json").write_text(json.dumps(settings))
        return Start(
            command=["opencode", "run", "-m", f"{provider}/scripted", _PROMPT],
            env={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        )

    return start


def _mini(model: str, key: str) -> Callable[[Path, Path, int], Start]:
    def start(folder: Path, home: Path, calls: int) -> Start:
        return Start(
            command=[
                "mini",
                "-m",
                model,
                "-t",
                _PROMPT,
                "-y",
                "--exit-immediately",
                "-l",
                "0",
                "-o",
                str(home / "t.json"),
            ],
            env={
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_GLOBAL_CONFIG_DIR": str(home / "mini"),
                key: "sk-client-mini",
            },
        )

    return start


def _mini_end(step: int) -> Answer:
    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo All parts are read"
    return Answer("All parts are read.", (ToolCall("bash", {"command": command}),))


def _aider(model: str, key: str) -> Callable[[Path, Path, int], Start]:
    def start(folder: Path, home: Path, calls: int) -> Start:
        lines = []
        for number in range(1, calls + 1):
            lines += [f"/run cat part-{number}.txt", f"/ask What is the code word of part {number}?"]
        (folder / "session.txt").write_text("\n".join([*lines, "/exit", ""]))
        return Start(
            command=[
                "aider", "--model", model, "--yes-always", "--no-git", "--no-check-update", "--analytics-disable",
                "--no-show-model-warnings", "--no-show-release-notes", "--no-fancy-input", "--no-pretty",
                "--map-tokens", "0", "--max-chat-history-tokens", "100000000", "--load", "session.txt",
            ],
            env={key: "sk-client-aider", "AIDER_ANALYTICS": "false"},
        )  # fmt: skip

    return start


def _llm(folder: Path, home: Path, calls: int) -> Start:
    (folder / "tools.py").write_text(
        "import subprocess\n\n\ndef bash(command: str) -> str:\n"
        '    """Run a command."""\n    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout\n'
    )
    return Start(
        command=["llm", "-m", "gpt-4o", "--functions", "tools.py", "--chain-limit", "0", _PROMPT],
        env={"OPENAI_API_KEY": "sk-client-llm", "LLM_USER_PATH": str(home / "llm")},
    )


CLIENTS: tuple[Client, ...] = (
    Client(
        name="Codex", program="codex", install="npm install -g @openai/codex", wire="responses",
        start=_codex, tool="exec_command", arguments=lambda command: {"cmd": command},
    ),
    Client(
        name="Claude Code", program="claude", install="npm install -g @anthropic-ai/claude-code@latest",
        wire="messages", start=_claude, tool="Bash",
        arguments=lambda command: {"command": command, "description": "Read a part"},
        wording="anthropic", window=200_000, size=29_000, calls=72,
    ),
    Client(
        name="opencode (responses)", program="opencode", install="npm install -g opencode-ai", wire="responses",
        start=_opencode("openai", None), tool="bash",
        arguments=lambda command: {"command": command, "description": "Read a part"},
    ),
    Client(
        name="opencode (messages)", program="opencode", install="npm install -g opencode-ai", wire="messages",
        start=_opencode("anthropic", None), tool="bash", wording="anthropic",
        arguments=lambda command: {"command": command, "description": "Read a part"},
    ),
    Client(
        name="opencode (chat)", program="opencode", install="npm install -g opencode-ai", wire="chat",
        start=_opencode("mine", "@ai-sdk/openai-compatible"), tool="bash",
        arguments=lambda command: {"command": command, "description": "Read a part"},
    ),
    Client(
        name="aider (chat)", program="aider", install="pip install aider-chat", wire="chat",
        start=_aider("openai/scripted", "OPENAI_API_KEY"), tool=None, window=32_000, calls=24, done="amber-024",
    ),
    Client(
        name="aider (messages)", program="aider", install="pip install aider-chat", wire="messages",
        start=_aider("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"), tool=None, window=32_000, calls=24,
        wording="anthropic", done="amber-024",
    ),
    Client(
        name="mini-swe-agent (chat)", program="mini", install="pip install mini-swe-agent", wire="chat",
        start=_mini("openai/scripted", "OPENAI_API_KEY"), tool="bash", end=_mini_end,
        window=16_000, size=5_000, calls=36,
    ),
    Client(
        name="mini-swe-agent (messages)", program="mini", install="pip install mini-swe-agent", wire="messages",
        start=_mini("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"), tool="bash", end=_mini_end,
        window=16_000, size=5_000, calls=36, wording="anthropic",
    ),
    Client(
        name="llm", program="llm", install="pip install llm", wire="responses",
        start=_llm, tool="bash", window=32_000, calls=24,
    ),
)  # fmt: skip
