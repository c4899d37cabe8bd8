"""What goes in and out of the HTTP interface, as its OpenAPI description shows it."""

from __future__ import annotations

__all__ = [
    "About",
    "Choices",
    "Content",
    "ContentColumn",
    "DrawChoices",
    "Failure",
    "FilledCell",
    "Health",
    "Model",
    "ModelList",
    "ModelSummary",
    "Part",
    "Rows",
    "Run",
    "Session",
]

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mcflow.serve.limits import Limits

Kind = Literal["continuous", "integer", "datetime", "boolean", "category", "ordered", "identifier", "text"]
Role = Literal["fill", "ignore", "predictors_only", "targets_only", "outcome"]
State = Literal["checking", "ready", "queued", "running", "done", "failed", "cancelled", "interrupted"]


class Failure(BaseModel):
    """What went wrong, in words."""

    detail: str


class Choices(BaseModel):
    """How to fit."""

    model_config = ConfigDict(extra="forbid")

    preset: Literal["default", "paper"] = Field("default", description="Settings to start from.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="The same seed gives the same file.")
    max_time: float | None = Field(
        None, gt=0, le=1e9, description="Seconds that the fit may take. Without it the answer is the same every time."
    )
    max_epochs: int | None = Field(None, ge=1, le=10**6, description="Passes over the rows, at most.")
    kinds: dict[str, Kind] = Field(default={}, description="Kinds of columns, where those found are not right.")
    roles: dict[str, Role] = Field(default={}, description="What columns are used for.")


class DrawChoices(BaseModel):
    """How many completed tables to draw."""

    model_config = ConfigDict(extra="forbid")

    m: int = Field(5, ge=1, le=100, description="Completed tables.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="The same seed gives the same draws.")


class Session(BaseModel):
    """The token, which a browser exchanges for a cookie."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=1000)


class Part(BaseModel):
    """How it stands with something that is made after the fill."""

    state: Literal["none", "building", "ready", "failed"]
    message: str = ""

    @classmethod
    def of(cls, noted: str) -> Part:
        """Read what a job notes."""
        if noted in ("", "building", "ready"):
            return cls(state=noted or "none")  # type: ignore[arg-type]
        return cls(state="failed", message=noted)


class ContentColumn(BaseModel):
    """A column of a file."""

    name: str
    dtype: str
    kind: str
    missing: int
    examples: list[str]
    range: list[str] | None


class Content(BaseModel):
    """What was found in a file."""

    rows: int
    missing: int
    columns: list[ContentColumn]
    preview: list[list[str | None]] = Field(description="The first rows as text; null is a hole.")
    problem: str = Field(description="Why the table cannot be filled as it is; empty when it can.")


class Run(BaseModel):
    """A job that uses a model: another file that is filled, or draws."""

    id: str
    kind: Literal["impute", "draws"]
    filename: str
    state: State
    message: str
    position: int | None = Field(description="Jobs before it in the queue; null when it does not wait.")
    created: float
    ended: float | None
    options: dict[str, Any]


class ModelSummary(BaseModel):
    """How it stands with a model."""

    id: str
    filename: str
    size: int
    state: State
    message: str = Field(description="Why it failed or was ended, in words.")
    position: int | None = Field(description="Jobs before it in the queue; null when it does not wait.")
    created: float = Field(description="Seconds since 1970.")
    started: float | None
    ended: float | None
    expires: float | None = Field(description="When it is deleted with all its files; null while it is at work.")
    options: Choices
    progress: dict[str, Any] | None = Field(description="The newest line of progress.")
    table: Part = Field(description="Whether rows can be read.")
    intervals: Part = Field(description="Whether filled cells have intervals.")
    peak_memory: int = Field(description="Bytes that its processes held at most.")
    runs: list[Run]


class Model(ModelSummary):
    """How it stands with a model, and what is in its file."""

    content: Content | None


class ModelList(BaseModel):
    """All models, newest first."""

    models: list[ModelSummary]


class FilledCell(BaseModel):
    """Where the next filled cell is."""

    row: int
    column: int


class Rows(BaseModel):
    """A part of the filled table."""

    start: int
    column: int
    cells: list[list[str | None]]
    filled: list[list[int | str | None]] = Field(
        description="Of each filled cell its row, its column, and both ends of its interval where there is one."
    )


class Health(BaseModel):
    """That the server answers, and how busy it is."""

    status: Literal["ok"]
    version: str
    running: int
    queued: int


class About(BaseModel):
    """What the server allows."""

    version: str
    token: bool = Field(description="Whether a token is needed.")
    known: bool = Field(description="Whether this client has shown it.")
    level: float = Field(description="The share of the cells that the intervals are to hold.")
    kinds: list[str]
    roles: list[str]
    endings: list[str]
    limits: Limits
