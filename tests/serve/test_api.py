"""The HTTP interface, with a stub in the place of the fit: states, queue, errors, files."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import get_args

import pytest

from mcflow.columns.planning import USER_KINDS
from mcflow.columns.schema import ROLES
from mcflow.serve.schemas import Kind, Role

ROWS = "a,b\n1,\n2,3\n,4\n"


def test_words_of_the_interface_are_those_of_the_package() -> None:
    assert get_args(Kind) == USER_KINDS
    assert get_args(Role) == ROLES


def test_model_goes_from_upload_to_file_model_and_report(client_of, stub, send, wait_for) -> None:
    stub(0.0)
    client = client_of()
    answer = send(client, ROWS, "my rows.csv", seed=3)
    assert answer.status_code == 202
    path = answer.headers["location"]
    model = wait_for(client, path, "done")
    assert model["filename"] == "my rows.csv"
    assert model["options"]["seed"] == 3
    assert [column["name"] for column in model["content"]["columns"]] == ["a", "b"]
    filled = client.get(f"{path}/filled")
    assert filled.text == "a,b\n1,7\n2,3\n7,4\n"
    assert 'filename="my rows_filled.csv"' in filled.headers["content-disposition"].replace("%20", " ").replace(
        "filename*=utf-8''my rows_filled.csv", 'filename="my rows_filled.csv"'
    )
    report = client.get(f"{path}/report")
    assert "sandbox" in report.headers["content-security-policy"]
    assert client.get(f"{path}/model").status_code == 200
    assert [entry["id"] for entry in client.get("/models").json()["models"]] == [model["id"]]


def test_file_waits_for_a_start_when_asked_to_and_takes_corrections(client_of, stub, send, wait_for) -> None:
    stub(0.0)
    client = client_of()
    path = send(client, ROWS, start=False).headers["location"]
    assert wait_for(client, path, "ready")["options"]["kinds"] == {}
    assert client.get(f"{path}/filled").status_code == 409
    wrong = client.post(f"{path}/start", json={"kinds": {"c": "category"}})
    assert wrong.status_code == 422
    assert "names the column 'c'" in wrong.json()["detail"]
    assert client.post(f"{path}/start", json={"kinds": {"a": "category"}}).status_code == 202
    assert wait_for(client, path, "done")["options"]["kinds"] == {"a": "category"}


SENTINELS = "Title\nage,sbp\n" + "".join(f"{40 + i % 37},{-999 if i % 9 == 0 else 110 + i % 31}\n" for i in range(90))


def test_file_is_read_again_with_other_missing_values_and_title_lines(client_of, send, wait_for) -> None:
    client = client_of()
    path = send(client, SENTINELS, start=False, skip_rows=1).headers["location"]
    sbp = wait_for(client, path, "ready")["content"]["columns"][1]
    assert (sbp["missing"], sbp["suspects"], sbp["taken"]) == (0, [{"value": "-999", "count": 10}], [])
    for na in (["sbp=-999"], ["auto"], ["-999"]):
        content = client.post(f"{path}/inspect", json={"na": na, "skip_rows": 1}).json()["content"]
        assert (content["columns"][1]["missing"], content["columns"][1]["suspects"]) == (10, [])
    refused = client.post(f"{path}/inspect", json={"na": ["bmi=-1"], "skip_rows": 1})
    assert (refused.status_code, "'bmi'" in refused.json()["detail"]) == (422, True)
    kept = client.get(path).json()
    assert (kept["state"], kept["options"]["na"], kept["content"]["missing"]) == ("ready", ["-999"], 10)


def test_missing_values_and_title_lines_reach_the_fit_and_the_results(client_of, send, wait_for) -> None:
    client = client_of()
    path = send(client, SENTINELS, start=False, skip_rows=1).headers["location"]
    wait_for(client, path, "ready")
    choices = {"na": ["auto"], "skip_rows": 1, "max_epochs": 1}
    assert client.post(f"{path}/start", json=choices).status_code == 202
    wait_for(client, path, "done")
    lines = client.get(f"{path}/filled").text.splitlines()
    assert lines[:2] == ["Title", "age,sbp"]
    assert all(100 < int(line.split(",")[1]) < 150 for line in lines[2:])
    model = client.get(path).json()
    while model["table"]["state"] != "ready":
        assert model["table"]["state"] in ("none", "building")
        time.sleep(0.1)
        model = client.get(path).json()
    assert client.get(f"{path}/next-filled").json() == {"row": 0, "column": 1}
    found = client.get(f"{path}/summary").json()["columns"]
    assert [(column["name"], column["filled"], column["left"]) for column in found] == [("age", 0, 0), ("sbp", 10, 0)]
    assert all(110 < float(found[1][part]) < 141 for part in ("before", "after"))
    run = client.post(f"{path}/draws", json={"m": 2}).json()
    place = f"{path}/runs/{run['id']}"
    while client.get(place).json()["state"] in ("queued", "running"):
        time.sleep(0.1)
    assert client.get(f"{place}/file").text.splitlines()[1] == "age,sbp,draw"


def test_events_tell_the_whole_story_to_who_comes_late(client_of, stub, send, wait_for) -> None:
    stub(0.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    events = [block.splitlines() for block in client.get(f"{path}/events").text.strip().split("\n\n")]
    names = [next(line for line in block if line.startswith("event: "))[7:] for block in events]
    assert names[0] == "state"
    assert names[-1] == "end"
    epochs = [json.loads(block[-1][6:]) for block, name in zip(events, names, strict=True) if name == "progress"]
    assert [event.get("epoch") for event in epochs] == [None, 1, 2]
    late = client.get(f"{path}/events", headers={"last-event-id": "2"}).text
    assert late.count("event: progress") == 1


def test_ten_clients_at_once_are_queued_in_order_and_none_is_dropped(client_of, stub, send, wait_for) -> None:
    stub(0.1)
    client = client_of()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: send(client, ROWS), range(10)))
    assert [answer.status_code for answer in answers] == [202] * 10
    done = [wait_for(client, answer.headers["location"], "done") for answer in answers]
    starts = sorted((model["started"], model["ended"]) for model in done)
    assert all(end <= start for (_, end), (start, _) in pairwise(starts)), "one at a time"


def test_full_queue_is_answered_with_words_and_a_time_to_try_again(client_of, stub, send, wait_for) -> None:
    stub(30.0)
    client = client_of(max_queue=1)
    first = send(client, ROWS).headers["location"]
    wait_for(client, first, "running")
    second = send(client, ROWS).headers["location"]
    assert wait_for(client, second, "queued")["position"] == 0
    answer = send(client, ROWS)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert "The queue is full" in answer.json()["detail"]
    for path in (second, first):
        assert client.post(f"{path}/cancel").status_code == 202
        assert wait_for(client, path, "cancelled")["message"] == "The job was cancelled."


def test_cancelled_job_is_ended_at_once_and_can_be_started_again(client_of, stub, send, wait_for, tmp_path) -> None:
    stub(30.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "running")
    begin = time.monotonic()
    client.post(f"{path}/cancel")
    wait_for(client, path, "cancelled")
    assert time.monotonic() - begin < 10
    assert client.get(f"{path}/filled").status_code == 409
    stub(0.0)
    assert client.post(f"{path}/start").status_code == 202
    wait_for(client, path, "done")


def test_job_that_takes_too_long_or_too_much_is_ended_with_words(client_of, stub, send, wait_for, tmp_path) -> None:
    stub(30.0)
    client = client_of(max_time=0.5)
    path = send(client, ROWS).headers["location"]
    assert "took longer than the server allows (0.5 seconds)" in wait_for(client, path, "failed")["message"]
    assert send(client, ROWS, max_time=9).json()["detail"] == "max_time is 9 seconds, and this server allows 0.5."
    small = client_of(tmp_path / "other", max_memory=1)
    answer = send(small, ROWS)
    # Reading the file may be over before the first look at its memory; the fit, of half a minute, is not.
    late = answer.status_code == 202
    said = wait_for(small, answer.headers["location"], "failed")["message"] if late else answer.json()["detail"]
    assert "more memory than the server allows" in said


def test_failed_job_says_why_with_the_client_s_name_of_the_file(client_of, stub, send, wait_for) -> None:
    stub(0.0)
    client = client_of()
    path = send(client, "fail,b\n1,\n", "mine.csv").headers["location"]
    assert wait_for(client, path, "failed")["message"] == "mine.csv cannot be learned from."
    assert client.get(f"{path}/rows").status_code == 409


def test_deleted_model_leaves_nothing_behind(client_of, stub, send, wait_for, tmp_path) -> None:
    stub(30.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "running")
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.delete(path).status_code == 404
    assert list((tmp_path / "jobs" / "models").iterdir()) == []


def test_data_is_deleted_after_its_time(client_of, stub, send, tmp_path) -> None:
    stub(0.0)
    client = client_of(keep=0.5 / 3600)
    path = send(client, ROWS).headers["location"]
    end = time.monotonic() + 30
    while client.get(path).status_code == 200 and time.monotonic() < end:
        time.sleep(0.1)
    assert client.get(path).status_code == 404
    assert list((tmp_path / "jobs" / "models").iterdir()) == []


def test_another_file_is_filled_and_not_kept_or_asked_for_later(client_of, stub, send, wait_for, tmp_path) -> None:
    stub(0.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    other = {"file": ("other.csv", "a,b\n,9\n")}
    answer = client.post(f"{path}/impute", files=other)
    assert answer.status_code == 200
    assert answer.text == "a,b\n7,9\n"
    assert list((tmp_path / "jobs").glob("models/*/runs/*")) == []
    later = client.post(f"{path}/impute", files=other, headers={"prefer": "respond-async"})
    assert later.status_code == 202
    where = later.headers["location"]
    assert wait_for(client, where, "done")["kind"] == "impute"
    assert client.get(f"{where}/file").text == "a,b\n7,9\n"
    bad = client.post(f"{path}/impute", files={"file": ("other.csv", "fail,b\n,9\n")})
    assert bad.status_code == 422
    assert bad.json()["detail"] == "other.csv cannot be learned from."
    assert client.delete(where).status_code == 204
    assert client.get(where).status_code == 404


def test_draws_are_made_on_demand_within_the_limit(client_of, stub, send, wait_for, monkeypatch) -> None:
    stub(0.0)
    monkeypatch.setattr(
        "mcflow.serve.commands.draws_command",
        lambda job: ["sh", "-c", f"cp ../../upload.csv {job.output.name}"],
    )
    client = client_of(max_cells=100)
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    assert client.post(f"{path}/draws", json={"m": 50}).status_code == 422
    run = client.post(f"{path}/draws", json={"m": 3}).json()
    wait_for(client, f"{path}/runs/{run['id']}", "done")
    answer = client.get(f"{path}/runs/{run['id']}/file")
    assert answer.text == ROWS
    assert "rows_draws.csv" in answer.headers["content-disposition"]
    assert [entry["id"] for entry in client.get(path).json()["runs"]] == [run["id"]]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.ods", b"PK", "has to end in one of"),
        ("rows.csv", b"", "is empty"),
        ("rows.csv.gz", b"no archive", "cannot be decompressed"),
        ("", b"a,b\n1,2\n", "file"),
    ],
)
def test_wrong_file_is_refused_at_once_and_not_kept(client_of, stub, send, tmp_path, name, content, words) -> None:
    stub(0.0)
    answer = send(client_of(), content, name)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert list((tmp_path / "jobs" / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kinds": "{"}, "JSON"),
        ({"kinds": '{"a": "zip"}'}, "kinds.a"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"preset": "best"}, "preset"),
        ({"max_time": "nan"}, "max_time"),
    ],
)
def test_wrong_choices_are_refused_in_one_form(client_of, send, fields, words) -> None:
    answer = send(client_of(), ROWS, **fields)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_server_that_is_stopped_leaves_jobs_that_can_go_on(client_of, stub, send, wait_for) -> None:
    stub(30.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    waiting = send(client, ROWS).headers["location"]
    wait_for(client, path, "running")
    client.close()
    stub(0.0)
    again = client_of()
    assert wait_for(again, path, "interrupted")["message"].startswith("The server was stopped")
    wait_for(again, waiting, "done")
    again.post(f"{path}/start")
    wait_for(again, path, "done")


def test_health_and_metrics_count_what_happens(client_of, stub, send, wait_for) -> None:
    stub(0.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    assert client.get("/health").json()["status"] == "ok"
    lines = client.get("/metrics").text.splitlines()
    assert 'mcflow_jobs{state="done"} 1' in lines
    assert 'mcflow_jobs_ended_total{kind="fit",state="done"} 1' in lines
    assert any(line.startswith('mcflow_http_answers_total{status="202"} 1') for line in lines)


def test_unknown_paths_and_surprises_have_the_form_of_all_errors(client_of, monkeypatch) -> None:
    client = client_of()
    assert client.get("/nothing").json() == {"detail": "Not Found"}
    assert client.put("/models").status_code == 405
    monkeypatch.setattr("mcflow.serve.routes.metrics_text", lambda *_: 1 / 0)
    answer = client.get("/metrics")
    assert answer.status_code == 500
    assert "See the log of the server" in answer.json()["detail"]


def test_watching_ends_when_the_model_is_deleted(client_of, stub, send, wait_for) -> None:
    stub(30.0)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "running")
    found: list[str] = []
    listener = threading.Thread(target=lambda: found.append(client.get(f"{path}/events").text))
    listener.start()
    time.sleep(0.5)
    client.delete(path)
    listener.join(20)
    assert found[0].rstrip().endswith("event: end\ndata: {}")


def test_intervals_wait_until_nobody_waits_for_a_fit(client_of, stub, send, wait_for, monkeypatch) -> None:
    stub(0.3)
    slow = [sys.executable, "-S", "-c", "import time; time.sleep(0.5)"]
    monkeypatch.setattr("mcflow.serve.commands.intervals_command", lambda *_: slow)
    client = client_of()
    paths = [send(client, ROWS).headers["location"] for _ in range(3)]
    last = wait_for(client, paths[-1], "done")
    assert last["intervals"]["state"] == "none"
    end = time.monotonic() + 60
    while any(client.get(path).json()["intervals"]["state"] != "ready" for path in paths):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert client.post(f"{paths[0]}/start").status_code == 202
    wait_for(client, paths[0], "done")


def test_wide_table_is_filled_without_intervals_and_says_so(client_of, stub, send, wait_for, monkeypatch) -> None:
    stub(0.0)
    monkeypatch.setattr("mcflow.serve.runner._MAX_INTERVAL_COLUMNS", 1)
    client = client_of()
    path = send(client, ROWS).headers["location"]
    wait_for(client, path, "done")
    deadline = time.monotonic() + 30
    while (found := client.get(path).json())["intervals"]["state"] != "failed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found["table"]["state"] == "ready"
    assert "mcflow impute --model" in found["intervals"]["message"]
