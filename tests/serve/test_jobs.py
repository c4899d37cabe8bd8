"""Jobs on disk: what a server finds that comes after another one."""

from __future__ import annotations

import time

import pytest

from mcflow.errors import DataError, ParameterError
from mcflow.serve.commands import check_names, check_schema_text, fit_command, save_schema_text
from mcflow.serve.jobs import EventLog, Job, JobStore


def kept(store: JobStore, **said: object) -> Job:
    job = Job(store.new_folder(), filename="rows.csv", **said)  # type: ignore[arg-type]
    store.create(job)
    return job


def test_store_finds_jobs_again_and_says_which_were_interrupted(tmp_path) -> None:
    store = JobStore(tmp_path)
    states = ("queued", "running", "done", "checking", "ready")
    jobs = {state: kept(store, state=state, created=place) for place, state in enumerate(states)}
    later = kept(store, state="queued", created=9.0)
    again = JobStore(tmp_path)
    assert [job.id for job in again.load()] == [jobs["queued"].id, later.id]
    found = {state: again.jobs[job.id] for state, job in jobs.items()}
    assert {state: job.state for state, job in found.items()} == {
        "queued": "queued", "running": "interrupted", "done": "done", "checking": "interrupted", "ready": "ready",
    }  # fmt: skip
    assert "Start the job again" in found["running"].message


def test_store_removes_uploads_that_were_cut_off_and_what_was_being_deleted(tmp_path) -> None:
    store = JobStore(tmp_path)
    (store.new_folder() / "upload.csv").write_text("a,b")
    hidden = store.forget(kept(store))
    assert hidden.exists()
    JobStore(tmp_path).load()
    assert list((tmp_path / "models").iterdir()) == []


def test_store_reads_the_jobs_of_a_model(tmp_path) -> None:
    store = JobStore(tmp_path)
    model = kept(store, state="done")
    run = Job(store.new_folder(model.id), "draws", "rows.csv", model=model.id, state="done")
    store.create(run)
    again = JobStore(tmp_path)
    again.load()
    assert [job.id for job in again.runs(model.id)] == [run.id]
    assert [job.id for job in again.models()] == [model.id]


def test_job_expires_after_its_end_unless_it_or_its_runs_are_at_work(tmp_path) -> None:
    store, now = JobStore(tmp_path), time.time()
    old = kept(store, state="done", created=now - 100, ended=now - 50)
    kept(store, state="running", created=now - 100)
    kept(store, state="done", created=now - 100, ended=now - 5)
    never = kept(store, state="ready", created=now - 100)
    busy = kept(store, state="done", created=now - 100, ended=now - 90)
    store.create(Job(store.new_folder(busy.id), "draws", "rows.csv", model=busy.id, state="running"))
    assert {job.id for job in store.expired(10, now)} == {old.id, never.id}


def test_events_are_thinned_and_keep_their_numbers(tmp_path) -> None:
    log = EventLog(tmp_path / "progress.jsonl")
    log.add({"event": "begin"})
    for epoch in range(2000):
        log.add({"event": "epoch", "epoch": epoch})
    kept_events = log.since(0)
    assert len(kept_events) <= 600
    assert kept_events[0] == (1, {"event": "begin"})
    assert kept_events[-1] == (2001, {"event": "epoch", "epoch": 1999})
    assert log.since(2000) == kept_events[-1:]


def test_events_survive_a_line_that_was_cut_off(tmp_path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text('{"event": "epoch", "epoch": 1}\n{"event": "ep')
    assert [event for _, event in EventLog(path).since(0)] == [{"event": "epoch", "epoch": 1}]


def test_command_of_a_fit_without_choices_is_short(tmp_path) -> None:
    words = " ".join(fit_command(Job(tmp_path, options={"seed": 3}))[3:])
    files = "impute upload.csv --output filled.csv --save model.mcflow --report report.html"
    assert words == f"{files} --seed 3 --checkpoint-dir checkpoint --progress json"


def test_command_carries_the_choices_and_no_clock_that_nobody_chose(tmp_path) -> None:
    options = {
        "preset": "paper",
        "seed": 5,
        "max_time": None,
        "max_epochs": 3,
        "kinds": {"-a=b": "category"},
        "roles": {},
    }
    command = fit_command(Job(tmp_path, options=options, ending=".tsv.gz"))
    assert command[1:5] == ["-m", "mcflow", "impute", "upload.tsv.gz"]
    assert {"--seed", "5", "--preset=paper", "--max-epochs=3", "--kind=-a=b=category", "filled.tsv.gz"} <= set(command)
    assert not any("max-time" in part for part in command)
    assert "--max-time=9.0" in fit_command(Job(tmp_path, options={"max_time": 9.0}))


@pytest.mark.parametrize(("name", "words"), [("b", "does not have"), ("", "needs a name"), ("\0", "needs a name")])
def test_choices_for_columns_that_no_flag_can_name_are_refused(name, words) -> None:
    content = {"columns": [{"name": "a"}, {"name": ""}, {"name": "\0"}]}
    check_names({"kinds": {"a": "category"}}, content)
    with pytest.raises(ParameterError, match=words):
        check_names({"kinds": {name: "category"}}, content)


def test_kind_that_a_column_cannot_have_is_refused_at_once() -> None:
    content = {"columns": [{"name": "word", "kinds": ["category", "text"]}]}
    check_names({"kinds": {"word": "text"}}, content)
    with pytest.raises(ParameterError, match=r"'word' cannot be of kind integer\. Choose category, text"):
        check_names({"kinds": {"word": "integer"}}, content)


def test_schema_file_of_a_job_is_checked_written_and_passed_on(tmp_path) -> None:
    text = '[columns.a]\nkind = "category"\n'
    check_schema_text(text)
    for wrong in ("kind =", '[columns.a]\nkind = "number"\n', "x = " + "[" * 5000):
        with pytest.raises((DataError, ParameterError)):
            check_schema_text(wrong)
    job = Job(tmp_path, options={"columns_file": text})
    save_schema_text(job)
    assert (tmp_path / "columns.toml").read_text() == text
    assert fit_command(job)[-2:] == ["--schema", "columns.toml"]
