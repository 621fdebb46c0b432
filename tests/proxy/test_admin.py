"""What a person may look at: only with the token, only of one's own credential, and always the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from provider import FakeProvider
from serving import Served, serving

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
PATHS = ("status", "stats", "events", "compactions/abc", "archive/abc", "dashboard")


def talk(url: str, *, key: str = "sk-one", turns: int = 12, session: str = "s1") -> None:
    messages = [{"role": "user", "content": "count to ten " * 8}] + [
        {"role": role, "content": f"{role} says {n} {HOSTILE} " * 30}
        for n in range(turns)
        for role in ("assistant", "user")
    ]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, default_headers={"x-ctxproxy-session": session}) as client:
        client.chat.completions.create(model="m", messages=messages)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Served]:
    with (
        FakeProvider() as provider,
        serving(
            provider.base_url,
            window=1_500,
            policy={"summaries": False},
            server={"token": "t0ken"},
            ledger={"scope": "token"},
        ) as served,
    ):
        talk(served.url)
        yield served


def get(proxy: Served, path: str, *, token: str = "t0ken", **headers: str) -> httpx.Response:
    headers = {"x-ctxproxy-token": token, "authorization": "Bearer sk-one", **headers}
    return httpx.get(f"{proxy.url}/ctxproxy/{path}", headers=headers)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["", "wrong", "t0ken "])
def test_without_the_token_nothing_is_shown(proxy: Served, path: str, token: str) -> None:
    assert (
        httpx.get(
            f"{proxy.url}/ctxproxy/{path}",
            headers={"x-ctxproxy-token": token.encode()} if token.strip() != "t0ken" else {},
        ).status_code
        == 401
    )
    assert httpx.get(f"{proxy.url}/ctxproxy/{path}", params={"token": token}).status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_page_or_host_is_refused_even_with_the_token(proxy: Served, path: str) -> None:
    assert get(proxy, path, origin="https://evil.example").status_code == 403
    assert get(proxy, path, host="evil.example").status_code == 403


def test_the_status_has_what_happened(proxy: Served) -> None:
    found = get(proxy, "status").json()
    talk = found["conversations"][0]
    assert talk["session"] == "s1"
    assert talk["window"] == 1_500
    assert 0 < talk["fraction"] <= 1
    assert found["totals"]["compactions"] == 1
    assert found["compactions"][0]["id"] == talk["last"]["id"]
    assert "sk-one" not in str(found)
    assert HOSTILE not in str(found)


def test_events_are_told_once(proxy: Served) -> None:
    found = get(proxy, "events").json()
    assert [event["type"] for event in found["events"]] == ["compaction", "request"]
    assert get(proxy, f"events?after={found['last']}").json()["events"] == []
    assert len(get(proxy, "events?after=999999").json()["events"]) == 2
    assert len(get(proxy, "events?after=-1%00").json()["events"]) == 2


def test_a_compaction_shows_what_was_cut(proxy: Served) -> None:
    id = get(proxy, "status").json()["compactions"][0]["id"]
    found = get(proxy, f"compactions/{id}").json()
    assert found["available"]
    drop = next(edit for edit in found["edits"] if edit["edit"] == "drop")
    assert drop["restorable"]
    assert any(sign == "-" and "says" in line for sign, line in drop["lines"])
    original = get(proxy, f"archive/{drop['archive']}")
    assert "<img src=x onerror=alert(1)>" in original.text
    assert original.headers["content-type"].startswith("text/plain")
    assert original.headers["x-content-type-options"] == "nosniff"


def test_another_credential_gets_no_text(proxy: Served) -> None:
    id = get(proxy, "status").json()["compactions"][0]["id"]
    archive = next(e["archive"] for e in get(proxy, f"compactions/{id}").json()["edits"] if e.get("archive"))
    for path in (f"compactions/{id}", f"archive/{archive}"):
        assert get(proxy, path, authorization="Bearer sk-two").status_code == 404
        assert get(proxy, path, authorization="").status_code == 404


@pytest.mark.parametrize("id", ["nothing", "..%2f..%2fetc%2fpasswd", "%00", "a" * 300, "%ff", ""])
def test_an_id_that_is_none_is_not_found(proxy: Served, id: str) -> None:
    assert get(proxy, f"compactions/{id}").status_code == 404
    assert get(proxy, f"archive/{id}").status_code == 404


def test_the_dashboard_lets_only_its_own_script_run(proxy: Served) -> None:
    page = httpx.get(f"{proxy.url}/ctxproxy/dashboard?token=t0ken")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "'sha256-" in policy
    assert "unsafe" not in policy
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text


def test_metrics_name_no_session_and_no_key(proxy: Served) -> None:
    text = httpx.get(f"{proxy.url}/ctxproxy/metrics").text
    assert 'ctxproxy_compactions_total{model="m",reason="overflow",wire="chat"} 1.0' in text
    assert "s1" not in text
    assert "sk-one" not in text


def test_only_get_is_taken(proxy: Served) -> None:
    assert httpx.post(f"{proxy.url}/ctxproxy/status", headers={"x-ctxproxy-token": "t0ken"}).status_code == 405
