"""Who may ask, from where, and how much they may send."""

from __future__ import annotations

import pytest

from mcflow.errors import ParameterError
from mcflow.serve.app import create_app
from mcflow.serve.guard import COOKIE, is_loopback

TOKEN = "a-token-that-is-long-enough"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST.", "::1", "[::1]"])
def test_own_addresses_are_known(host) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "localhost.example.org", "192.168.0.1", ""])
def test_other_addresses_are_not_taken_for_own(host) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[", "a" * 300])
def test_server_without_token_answers_to_its_own_name_only(client_of, host) -> None:
    answer = client_of().get("/models", headers={"host": host})
    assert answer.status_code == 421
    assert "--token" in answer.json()["detail"]


def test_page_of_another_site_may_not_change_anything(client_of) -> None:
    client = client_of()
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "null"},
        {"origin": "http://["},
    ):
        answer = client.post("/models/1/cancel", headers=headers)
        assert answer.status_code == 403
    assert client.post("/models/1/cancel", headers={"origin": "http://localhost"}).status_code == 404


def test_token_is_needed_for_all_but_the_page_and_health(client_of) -> None:
    client = client_of(token=TOKEN)
    for path in ("/models", "/metrics", "/models/1", "/models/1/filled"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/", "/health", "/about", "/page/main.js", "/openapi.json"):
        assert client.get(path).status_code == 200
    assert client.get("/models", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/models", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert client.get("/models", headers={"authorization": "Bearer é".encode()}).status_code == 401


def test_server_with_token_answers_to_any_name(client_of) -> None:
    headers = {"host": "fill.example.org", "authorization": f"Bearer {TOKEN}"}
    assert client_of(token=TOKEN).get("/models", headers=headers).status_code == 200


def test_browser_exchanges_the_token_for_a_cookie_that_is_not_the_token(client_of) -> None:
    client = client_of(token=TOKEN)
    assert client.get("/about").json()["known"] is False
    assert client.post("/session", json={"token": "not it"}).status_code == 401
    answer = client.post("/session", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/about").json()["known"] is True
    assert client.get("/models").status_code == 200
    client.cookies.set(COOKIE, "0" * 64)
    assert client.get("/models").status_code == 401


def test_token_that_can_be_guessed_is_refused(tmp_path) -> None:
    with pytest.raises(ParameterError, match="needs 16"):
        create_app(tmp_path, token="1234")


def test_page_loads_nothing_from_elsewhere_and_may_not_be_framed(client_of) -> None:
    answer = client_of().get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_upload_above_the_limit_is_refused_with_and_without_a_length(client_of) -> None:
    client = client_of(max_upload=1000)
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="rows.csv"\r\n\r\n'
    body = head + b"x" * 3_000_000

    async def pieces():
        for place in range(0, len(body), 1_000_000):
            yield body[place : place + 1_000_000]

    for content in (body, pieces()):
        answer = client.post("/models", content=content, headers={"content-type": "multipart/form-data; boundary=b"})
        assert answer.status_code == 413
        assert "larger than 1 kB" in answer.json()["detail"]


def test_file_just_above_the_limit_is_refused_and_not_kept(client_of, send, tmp_path) -> None:
    answer = send(client_of(max_upload=1000), "a,b\n" + "1,2\n" * 500)
    assert answer.status_code == 413
    assert list((tmp_path / "jobs" / "models").iterdir()) == []


def test_large_body_is_refused_where_no_file_is_taken(client_of) -> None:
    answer = client_of().post("/session", content=b" " * 3_000_000)
    assert answer.status_code == 413
