"""The public names, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ctxproxy

ROOT = Path(__file__).parent.parent
HEAVY = {
    "aiohttp", "anthropic", "httpx", "httpx2", "litellm", "msgspec", "openai", "prometheus_client", "pydantic", "rich",
    "starlette", "toktok", "typer", "uvicorn", "yaml",
}  # fmt: skip


def modules_after(code: str) -> set[str]:
    """The top-level names of the modules that a fresh interpreter has loaded after some code."""
    script = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_loads_nothing_else() -> None:
    assert not modules_after("import ctxproxy; dir(ctxproxy)") & HEAVY
    loaded = subprocess.run(
        [sys.executable, "-c", "import ctxproxy, sys; print([m for m in sys.modules if m.startswith('ctxproxy.')])"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert loaded.stdout.strip() == "[]"


def test_the_functions_load_no_web_sdk_or_command_line_package() -> None:
    loaded = modules_after("import ctxproxy; ctxproxy.measure([{'role': 'user', 'content': 'hi'}], window=1000)")
    assert not loaded & (HEAVY - {"msgspec", "toktok"})


def test_help_loads_no_web_package_and_no_settings() -> None:
    loaded = modules_after("from ctxproxy.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass")
    assert not loaded & {"aiohttp", "pydantic", "starlette", "toktok", "uvicorn", "yaml"}


def test_every_public_name_is_there_and_comes_from_its_module() -> None:
    for name in ctxproxy.__all__:
        value = getattr(ctxproxy, name)
        assert value is getattr(ctxproxy, name)
        # A type that is a Literal has no name of its own.
        assert name in ("__version__", "CompactReason") or value.__name__ == name
        assert name in dir(ctxproxy)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ctxproxy' has no attribute 'nothing'"):
        _ = ctxproxy.nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from ctxproxy import nothing")


def test_the_version_is_the_project_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ctxproxy.__version__ == project["version"]
