"""The dashboard in a real browser: it draws what happened, and texts stay texts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from provider import FakeProvider
from proxy.test_admin import HOSTILE, talk
from serving import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian package: chromium)"),
]


def dom(url: str, folder: Path) -> str:
    """The page as it stands after its script ran for some virtual seconds."""
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", f"--user-data-dir={folder}")
    done = subprocess.run([CHROMIUM, *flags, "--dump-dom", url], capture_output=True, text=True, timeout=120)
    return done.stdout


def test_an_empty_one_says_what_to_do(tmp_path: Path) -> None:
    with FakeProvider() as provider, serving(provider.base_url, server={"token": "t"}) as served:
        page = dom(f"{served.url}/ctxproxy/dashboard?token=t", tmp_path)
    assert "No request has come through yet" in page
    assert f"OPENAI_BASE_URL={served.url}/v1" in page


def test_hostile_names_and_outputs_stay_text(tmp_path: Path) -> None:
    rules = {"summaries": False}
    with (
        FakeProvider() as provider,
        serving(provider.base_url, window=1_500, policy=rules, server={"token": "t"}) as served,
    ):
        talk(served.url, session=HOSTILE)
        found = httpx.get(f"{served.url}/ctxproxy/status?token=t").json()
        id = found["compactions"][0]["id"]
        page = dom(f"{served.url}/ctxproxy/dashboard?token=t#{id}", tmp_path)
    assert found["conversations"][0]["session"] == HOSTILE
    assert f"What was cut: {id}" in page
    assert "ctxproxy restore" in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<img" not in page
