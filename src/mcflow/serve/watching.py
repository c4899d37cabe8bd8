"""Server-sent events: what happened to a model so far, then what happens."""

from __future__ import annotations

__all__ = ["until_over", "watch"]

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from mcflow.serve.jobs import ENDED, Job
from mcflow.serve.surroundings import Surroundings

#: Seconds of silence after which a line is sent, so that nobody between takes the connection for dead.
_SIGN_OF_LIFE = 15.0


async def watch(parts: Surroundings, job: Job, after: int) -> AsyncIterator[str]:
    """Give the events of a model.

    Parameters
    ----------
    parts : Surroundings
        Of the server.
    job : Job
        The model's.
    after : int
        The number of the last event that the client has.

    Yields
    ------
    str
        Events named "state" (how it stands), "progress" (a line of the fit's progress) and "end" (nothing more comes).
    """
    log, version = parts.store.log(job), -1
    while True:
        news = log.news
        if log.version != version:
            version = log.version
            yield _event("state", parts.summary(job).model_dump_json())
        for number, event in log.since(after):
            after = number
            yield _event("progress", json.dumps(event), number)
        if _is_over(parts, job):
            yield _event("end", "{}")
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _SIGN_OF_LIFE)
            continue
        yield ": still here\n\n"


def _is_over(parts: Surroundings, job: Job) -> bool:
    """Tell whether nothing more happens to a model by itself, nor to the jobs that use it."""
    if job.id not in parts.store.jobs:
        return True
    jobs = [job, *parts.store.runs(job.id)]
    return not any(parts.runner.is_busy(one) or one.state in ("checking", "queued", "running") for one in jobs)


def _event(name: str, data: str, number: Any = None) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {data}\n\n"


async def until_over(parts: Surroundings, job: Job) -> None:
    """Wait until a job has ended or was deleted."""
    log = parts.store.log(job)
    while job.state not in ENDED and job.id in parts.store.jobs:
        await log.news.wait()
