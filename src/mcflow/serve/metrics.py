"""Numbers about the server, as Prometheus reads them."""

from __future__ import annotations

__all__ = ["metrics_text"]

import os
from collections import Counter
from collections.abc import Iterable, Mapping

from mcflow.serve.children import memory_of
from mcflow.serve.runner import Runner

_STATES = ("checking", "ready", "queued", "running", "done", "failed", "cancelled", "interrupted")


def metrics_text(runner: Runner, statuses: Mapping[int, int], version: str) -> str:
    """Return the numbers.

    Parameters
    ----------
    runner : Runner
        Of the server.
    statuses : mapping of int to int
        Number of answers by their status.
    version : str
        Of mcflow.

    Returns
    -------
    str
        In Prometheus' text format.
    """
    states = Counter(job.state for job in runner.store.jobs.values())
    families: list[tuple[str, str, str, list[tuple[str, float]]]] = [
        ("mcflow_info", "gauge", "The version.", [(f'version="{version}"', 1)]),
        ("mcflow_jobs", "gauge", "Jobs by state.", [(f'state="{s}"', states[s]) for s in _STATES]),
        ("mcflow_queue_length", "gauge", "Jobs that wait.", [("", runner.waiting)]),
        ("mcflow_jobs_ended_total", "counter", "Jobs that ended.", _by_kind(runner.endings)),
        ("mcflow_job_seconds_total", "counter", "Seconds that jobs ran.", _labelled("kind", runner.seconds)),
        ("mcflow_http_answers_total", "counter", "Answers by status.", _labelled("status", statuses)),
        ("mcflow_server_memory_bytes", "gauge", "Memory of the server.", [("", memory_of(os.getpid()))]),
    ]
    return "".join(_family(*family) for family in families)


def _by_kind(endings: Mapping[tuple[str, str], int]) -> list[tuple[str, float]]:
    return [(f'kind="{kind}",state="{state}"', count) for (kind, state), count in sorted(endings.items())]


def _labelled(label: str, counts: Mapping[str, float] | Mapping[int, int]) -> list[tuple[str, float]]:
    return [(f'{label}="{key}"', value) for key, value in sorted(counts.items(), key=str)]


def _family(name: str, kind: str, words: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value:.15g}" if labels else f"{name} {value:.15g}" for labels, value in samples]
    return "\n".join(lines) + "\n"
