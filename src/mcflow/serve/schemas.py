"""Requests and responses of the HTTP API, as its OpenAPI description shows them."""

from __future__ import annotations

__all__ = [
    "About",
    "Choices",
    "ColumnSummary",
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
    "Summary",
    "SuspectedCode",
]

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mcflow.serve.limits import Limits

Kind = Literal["continuous", "integer", "datetime", "boolean", "category", "ordered", "identifier", "text"]
Role = Literal["fill", "ignore", "predictors_only", "targets_only", "outcome"]
State = Literal["checking", "ready", "queued", "running", "done", "failed", "cancelled", "interrupted"]


class Failure(BaseModel):
    """Error message."""

    detail: str


class Choices(BaseModel, extra="forbid"):
    """Options of the fit."""

    preset: Literal["default", "paper"] = Field("default", description="Settings to start from.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Random seed; the same seed gives the same file.")
    max_time: float | None = Field(
        None, gt=0, le=1e9, description="Time limit of the fit in seconds. Without it the result is reproducible."
    )
    max_epochs: int | None = Field(None, ge=1, le=10**6, description="Maximum number of epochs.")
    kinds: dict[str, Kind] = Field(default={}, description="Corrections of the detected kinds of columns.")
    roles: dict[str, Role] = Field(default={}, description="Roles of columns.")
    columns_file: str = Field(
        "", max_length=1_000_000, description="Text of a schema file, as `mcflow schema` writes it."
    )
    na: list[Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]+$")]] = Field(
        default=[],
        max_length=10_000,
        description="Values that stand for missing cells, as `--na` takes them: -999, NAME=-999,99 or auto.",
    )
    skip_rows: int = Field(0, ge=0, le=10**6, description="Number of lines above the header.")


class DrawChoices(BaseModel, extra="forbid"):
    """Options of draws."""

    m: int = Field(5, ge=1, le=100, description="Number of completed tables.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Random seed; the same seed gives the same draws.")


class Session(BaseModel, extra="forbid"):
    """Token, which a browser exchanges for a cookie."""

    token: str = Field(max_length=1000)


class Part(BaseModel):
    """State of a result that is computed after the fill."""

    state: Literal["none", "building", "ready", "failed"]
    message: str = ""

    @classmethod
    def of(cls, text: str) -> Part:
        """Parse the state that a job stores: "", "building", "ready" or an error message."""
        if text in ("", "building", "ready"):
            return cls(state=text or "none")  # type: ignore[arg-type]
        return cls(state="failed", message=text)


class SuspectedCode(BaseModel):
    """Value that may stand for missing cells."""

    value: str
    count: int


class ContentColumn(BaseModel):
    """Column of a file."""

    name: str
    dtype: str
    kind: str
    kinds: list[str] = Field(default=[], description="Kinds that the column may be given.")
    why: str = Field(default="", description="The reason for its kind, and what is done with it.")
    suspects: list[SuspectedCode] = Field(default=[], description="Values that may stand for missing cells.")
    taken: list[str] = Field(default=[], description="Values that were taken as missing.")
    missing: int
    examples: list[str]
    range: list[str] | None


class Content(BaseModel):
    """Content of a file."""

    rows: int
    missing: int
    columns: list[ContentColumn]
    preview: list[list[str | None]] = Field(description="First rows as text; null is a missing cell.")
    problem: str = Field(description="Why the table cannot be filled as it is; empty if it can.")


class _JobState(BaseModel):
    """State of a job."""

    id: str
    filename: str
    state: State
    message: str = Field(description="Why the job failed or was stopped.")
    position: int | None = Field(description="Number of jobs ahead in the queue; null if not queued.")
    created: float = Field(description="Seconds since 1970.")
    ended: float | None


class Run(_JobState):
    """Job that uses a model: another file to fill, or draws."""

    kind: Literal["impute", "draws"]
    options: dict[str, Any]


class ModelSummary(_JobState):
    """State of a model."""

    size: int
    started: float | None
    expires: float | None = Field(description="Time of deletion, in seconds since 1970; null while the job runs.")
    options: Choices
    progress: dict[str, Any] | None = Field(description="Latest progress event.")
    table: Part = Field(description="Whether the filled rows can be read.")
    intervals: Part = Field(description="Whether filled cells have intervals.")
    peak_memory: int = Field(description="Peak memory of its processes in bytes.")
    runs: list[Run]


class Model(ModelSummary):
    """State of a model and content of its file."""

    content: Content | None


class ModelList(BaseModel):
    """All models, newest first."""

    models: list[ModelSummary]


class FilledCell(BaseModel):
    """Position of a filled cell."""

    row: int
    column: int


class Rows(BaseModel):
    """Rows and columns of the filled table."""

    start: int
    column: int
    cells: list[list[str | None]]
    filled: list[list[int | str | None]] = Field(
        description="Row, column and both bounds of the interval of each filled cell; bounds are null without interval."
    )


class ColumnSummary(BaseModel):
    """Filled cells of a column."""

    name: str
    filled: int
    left: int = Field(description="Number of cells that remain missing.")
    before: str = Field(description="Mean of numbers and times, else the most frequent value, of the observed cells.")
    after: str = Field(description="The same of the filled cells.")


class Summary(BaseModel):
    """Filled cells by column."""

    columns: list[ColumnSummary]


class Health(BaseModel):
    """Health and load of the server."""

    status: Literal["ok"]
    version: str
    running: int
    queued: int


class About(BaseModel):
    """Limits and options of the server."""

    version: str
    token: bool = Field(description="Whether a token is required.")
    known: bool = Field(description="Whether this client has a valid session.")
    level: float = Field(description="Level of the intervals.")
    kinds: list[str]
    roles: list[str]
    endings: list[str]
    limits: Limits
