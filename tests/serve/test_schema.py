"""The description of the interface, and requests that are made up from it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
import schemathesis.specs.openapi.schemas  # now, as Python may fall over when two threads parse at once
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mcflow.serve.app import create_app
from mcflow.serve.limits import Limits

#: What an answer has to be like.
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROWS = "a,b\n1,\n2,3\n,4\n"


@pytest.fixture
def finished(stub, send, wait_for, tmp_path) -> Iterator[tuple[str, str]]:
    """The address of a server with one finished model, and the model's name."""
    stub(0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = create_app(tmp_path, Limits(max_queue=1000))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=60) as client:
                model = wait_for(client, send(client, ROWS).headers["location"], "done")
                yield url, model["id"]
        finally:
            server.should_exit = True
            thread.join(60)


def try_all(url: str, model: str, examples: int) -> int:
    """Ask everything that the description allows, and more, of a server with one finished model."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), known=st.booleans())
        def ask(case, known) -> None:
            nonlocal asked
            if known and "model" in (case.path_parameters or {}) and case.method != "DELETE":
                case.path_parameters = {**case.path_parameters, "model": model}
            answer = case.call()
            asked += 1
            case.validate_response(answer, checks=CHECKS)
            if answer.status_code >= 400:
                assert isinstance(answer.json()["detail"], str)

        ask()
    return asked


def test_made_up_requests_find_no_server_error(finished) -> None:
    assert try_all(*finished, examples=4) > 50


@pytest.mark.slow
def test_many_made_up_requests_find_no_server_error(finished) -> None:
    assert try_all(*finished, examples=60) > 700


def test_description_names_what_the_interface_is_asked_for(client_of) -> None:
    paths = client_of().get("/openapi.json").json()["paths"]
    wanted = {("/models", "post"), ("/models/{model}", "get"), ("/models/{model}/impute", "post"), ("/health", "get")}
    assert wanted | {("/metrics", "get")} <= {(path, method) for path, methods in paths.items() for method in methods}
    ids = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    for methods in paths.values():
        for one in methods.values():
            assert one["summary"]
            error = one["responses"]["422"]["content"]["application/json"]["schema"]
            assert error == {"$ref": "#/components/schemas/Failure"}, one["operationId"]


def test_description_holds_no_address_of_another_host(client_of) -> None:
    client = client_of()
    for path in ("/", "/openapi.json", "/page/main.js", "/page/style.css", "/page/grid.js", "/page/api.js"):
        text = client.get(path).text
        for start in ("https://", "//cdn", "@import"):
            assert start not in text, (path, start)
    assert json.loads(client.get("/openapi.json").text)["info"]["title"] == "mcflow"
