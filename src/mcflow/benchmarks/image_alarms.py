"""What a reader of the tables of images must not miss: rows that are not there, and rows behind others."""

from __future__ import annotations

__all__ = ["image_alarms"]

from collections.abc import Iterator, Sequence

from mcflow.benchmarks.image_suite import ImageSuite
from mcflow.benchmarks.image_summary import ImageSection, mask_title, set_title
from mcflow.benchmarks.methods import MethodSpec
from mcflow.benchmarks.paper_images import to_beat
from mcflow.benchmarks.wording import short_number

_WORDS = {"rmse": "RMSE", "accuracy": "LeNet accuracy"}


def image_alarms(sections: Sequence[ImageSection], suite: ImageSuite | None = None) -> Iterator[str]:
    """Yield what is missing, what failed, and what is behind the pixel mean or published figures.

    Parameters
    ----------
    sections : sequence of ImageSection
        All results.
    suite : ImageSuite, optional
        What was asked for.

    Yields
    ------
    str
        A sentence.
    """
    if suite is not None:
        yield from _missing(sections, suite)
    for section in sections:
        yield from _failed(section)
        for images in section.sets:
            for method in section.methods(images):
                yield from _behind_the_mean(section, images, method)
                if section.n_train is None and section.n_test is None:
                    yield from _behind_the_cited(section, images, method)


def _missing(sections: Sequence[ImageSection], suite: ImageSuite) -> Iterator[str]:
    size = (suite.n_train, suite.n_test, suite.seed)
    known = {key for section in sections if (section.n_train, section.n_test, section.seed) == size
             for key in section.rows}  # fmt: skip
    gaps: dict[tuple[str, str], list[str]] = {}
    for images, mask, method, _ in suite.asked():
        if (images, mask, method) not in known:
            gaps.setdefault((method, images), []).append(mask_title(mask))
    for (method, images), masks in gaps.items():
        yield f"`{method}` on {set_title(images)} has not been measured at {', '.join(masks)}."


def _failed(section: ImageSection) -> Iterator[str]:
    for (images, mask, method), row in sorted(section.rows.items()):
        if row["status"] != "done":
            message = str(row.get("message", "")).rstrip(".")
            yield f"`{method}` on {set_title(images)} at {mask_title(mask)} failed ({row['status']}): {message}."


def _behind_the_mean(section: ImageSection, images: str, method: str) -> Iterator[str]:
    gaps = []
    for mask in section.masks(images):
        ours, plain = (section.value(images, mask, name, "rmse") for name in (method, "mean"))
        if ours is not None and plain is not None and ours > plain:
            gaps.append(f"{mask_title(mask)} ({short_number(ours)} against {short_number(plain)})")
    if gaps:
        yield f"`{method}` on {set_title(images)} is worse than the pixel mean at {', '.join(gaps)}."


def _behind_the_cited(section: ImageSection, images: str, method: str) -> Iterator[str]:
    for measure, words in _WORDS.items():
        gaps = []
        for mask in section.masks(images):
            ours = section.value(images, mask, method, measure)
            cited = to_beat(measure, images, mask, MethodSpec.parse(method).name)
            if ours is None or cited is None:
                continue
            figure, row = cited
            if ours < figure if measure == "accuracy" else ours > figure:
                figures = f"{short_number(ours)} against {short_number(figure)} of {row.title}, {row.source}"
                gaps.append(f"{mask_title(mask)} ({figures})")
        if gaps:
            yield f"{words} of `{method}` on {set_title(images)} is behind the cited at {', '.join(gaps)}."
