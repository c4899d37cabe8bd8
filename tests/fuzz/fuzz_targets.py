"""What is fuzzed: every case follows from the name of its target and its number, so that each can be run again."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_contract import Finding, check_contract
from safetensors.numpy import load_file, save

from mcflow import MCFlowImageImputer, MCFlowImputer, load
from mcflow.baselines.simple import MeanImputer
from mcflow.files import atomic
from mcflow.files.tables import read_table, write_table

Rng = np.random.Generator

#: Every so many cases the table is filled by MCFlowImputer instead of by means.
FULL_EVERY = 40


def rng_of(target: str, number: int) -> Rng:
    """Return the random numbers of a case."""
    return np.random.default_rng([zlib.crc32(target.encode()), number])


@cache
def folder() -> Path:
    """Return a folder for files, which is removed at the end."""
    holder = tempfile.TemporaryDirectory(prefix="mcflow-fuzz-")
    folder.holder = holder  # type: ignore[attr-defined]
    return Path(holder.name)


# ---------------------------------------------------------------------- model files
@cache
def mixed_frame() -> pd.DataFrame:
    """Return a table with numbers, integers, categories, dates and missing cells."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "n": rng.integers(0, 30, 80).astype(float)})
    frame["k"] = rng.choice(["u", "v", "w"], 80)
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, 80), unit="D")
    return frame.mask(rng.random(frame.shape) < 0.15)


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    """Return small images and the mask of their missing pixels."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (12, 4, 4)).astype(np.uint8), rng.random((12, 4, 4)) < 0.3


@cache
def models() -> list[bytes]:
    """Return the files of models of both presets, of tables and of images."""
    found = []
    for preset in ("default", "paper"):
        path = folder() / f"{preset}.mcflow"
        more = {"n_models": 2, "rules": ["n >= 0"]} if preset == "default" else {}
        MCFlowImputer(preset=preset, max_epochs=1, random_state=0, **more).fit(mixed_frame()).save(path)
        found.append(path.read_bytes())
        pixels, mask = images()
        imputer = MCFlowImageImputer(preset=preset, max_epochs=1, calibrate=False, random_state=0)
        imputer.fit(pixels, mask=mask).save(path)
        found.append(path.read_bytes())
    return found


def use_model(data: bytes) -> str:
    """Load a model from bytes and fill with it."""
    path = folder() / "model.mcflow"
    path.write_bytes(data)
    return check_contract(lambda: _filled_by(path), strict=False)


def _filled_by(path: Path) -> tuple[Any, Any, Any] | None:
    imputer = load(path, device="cpu")
    if isinstance(imputer, MCFlowImputer):
        frame = mixed_frame()
        imputer.set_params(keep_empty_features=True, add_indicator=False, restore_integers=False)
        return frame, imputer.transform(frame), imputer.schema_
    pixels, mask = images()
    filled = imputer.transform(pixels, mask=mask)
    if not (filled[~mask] == pixels[~mask]).all():
        raise Finding("observed pixels have changed")
    return None


def damaged_model(rng: Rng) -> str:
    """Change the bytes of a model file."""
    return use_model(mutated(models()[rng.integers(4)], rng))


def forged_model(rng: Rng) -> str:
    """Change the header or the tensors of a model file, and give it a valid checksum."""
    base = models()[rng.integers(4)]
    path = folder() / "base.mcflow"
    path.write_bytes(base)
    metadata = json.loads(base[8 : 8 + int.from_bytes(base[:8], "little")])["__metadata__"]
    header, tensors = json.loads(metadata["header"]), load_file(path)
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.6:
            header = mutated_json(header, rng)
        else:
            tensors = mutated_tensors(tensors, rng)
    text = json.dumps(header)
    if rng.random() < 0.05:
        text = mutated(text.encode(), rng).decode("utf-8", "replace")
    metadata |= {"header": text}
    if rng.random() < 0.05:
        metadata |= {str(rng.choice(["format", "kind", "program"])): str(rng.choice(["1", "3", "9" * 5000, "", "x"]))}
    metadata.pop("sha256")
    metadata["sha256"] = atomic._digest(metadata, tensors)
    return use_model(save(tensors, metadata=metadata))


#: Values that a field of a header should not have, or not always.
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    255,
    10**7,
    2**31,
    2**63,
    10**30,
    -0.5,
    0.5,
    1e308,
    -1e308,
    "",
    "x",
]
VALUES += ["low <= high", "a" * 10_000, [], {}, [[]], [None], ["x"], {"seed": 1}, "continuous", "category", "datetime"]
VALUES += ["timestamp[ns]", "int8", "double", "null", "masked", "paper", "images", float("inf"), float("nan")]


def mutated_json(value: Any, rng: Rng) -> Any:
    """Return a copy of a JSON value that differs in one place."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    parent, key = places[rng.integers(len(places))]
    old, kind = parent[key], rng.integers(7)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(old))
    elif kind == 2 and isinstance(parent, dict):
        parent[str(rng.choice(["x", "seed", "kind", "width", "categories"]))] = old
    elif kind == 3:
        other, where = places[rng.integers(len(places))]
        with contextlib.suppress(KeyError, IndexError):
            parent[key] = copy.deepcopy(other[where])
    elif kind == 4 and isinstance(old, int | float):
        parent[key] = type(old)(old * rng.choice([-1, 0, 2, 10, 1000]))
    elif kind == 5:
        parent[key] = [old]
    else:
        parent[key] = VALUES[rng.integers(len(VALUES))]
    return value


def _places(value: Any) -> Any:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in list(inner):
        yield value, key
        yield from _places(below)


def mutated_tensors(tensors: dict[str, np.ndarray], rng: Rng) -> dict[str, np.ndarray]:
    """Return tensors of which one is changed, lost, renamed or of another shape or type."""
    tensors, names = dict(tensors), sorted(tensors)
    name, other = names[rng.integers(len(names))], names[rng.integers(len(names))]
    array = tensors[name]
    ways: list[Callable[[], Any]] = [
        lambda: tensors.pop(name),
        lambda: tensors.update({name: tensors[other]}),
        lambda: tensors.update({f"{name}{rng.integers(9)}": tensors.pop(name)}),
        lambda: tensors.update({name: array.T.copy()}),
        lambda: tensors.update({name: array[None]}),
        lambda: tensors.update({name: array.reshape(-1)}),
        lambda: tensors.update({name: np.concatenate([array, array]) if array.ndim else array}),
        lambda: tensors.update({name: array[:0] if array.ndim else array}),
        lambda: tensors.update({name: array.astype(rng.choice(["f2", "f4", "f8", "i1", "i8", "u8", "?"]))}),
        lambda: tensors.update({name: _with_value(array, rng)}),
        lambda: tensors.update({name: rng.permutation(array.reshape(-1)).reshape(array.shape)}),
        lambda: tensors.update({name: np.zeros_like(array)}),
        lambda: tensors.update({name: (array.astype("f8") * 1e6).astype(array.dtype)}),
    ]
    with np.errstate(all="ignore"):
        ways[rng.integers(len(ways))]()
    return tensors


def _with_value(array: np.ndarray, rng: Rng) -> np.ndarray:
    changed = array.copy().reshape(-1)
    if changed.size:
        values = (
            [np.nan, np.inf, -np.inf, 1e38, -1e38, 0, -1, 1, 2**31] if changed.dtype.kind == "f" else [0, -1, 1, 2**31]
        )
        with np.errstate(all="ignore"):
            changed[rng.integers(changed.size)] = np.array(values[rng.integers(len(values))]).astype(changed.dtype)
    return changed.reshape(array.shape)


# ---------------------------------------------------------------------- bytes
def mutated(data: bytes, rng: Rng, words: tuple[bytes, ...] = (b"\0", b"\xff", b'"', b"{", b"9999999999")) -> bytes:
    """Return bytes with a few of them flipped, lost, repeated, moved or replaced by words."""
    for _ in range(rng.integers(1, 5)):
        place, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 33))
        way = rng.integers(6)
        if way == 0 and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
        elif way == 1:
            data = data[:place] + data[place + length :]
        elif way == 2:
            data = data[:place] + data[place : place + length] * int(rng.integers(2, 20)) + data[place:]
        elif way == 3:
            data = data[:place] + words[rng.integers(len(words))] + data[place:]
        elif way == 4 and rng.random() < 0.3:
            data = data[:place]
        else:
            data = data[:place] + rng.bytes(length) + data[place + length :]
    return data


# ---------------------------------------------------------------------- CSV, Parquet and archives
CSV_WORDS = (
    *(b'"', b'""', b",", b";", b"\t", b"\n", b"\r", b"\r\n", b"\0", "\ufeff".encode(), "é".encode(), "\u2028".encode()),
    *(b"NA", b"nan", b"inf", b"-inf", b"1e999", b"1e-400", b"0x10", b"1_000", b"1,5", b"-0", b"007", b"9" * 40),
    *(b"2020-01-01", b"2020-13-45", b"12:00", b"true", b"x" * 5000),
)


@cache
def csv_texts() -> list[bytes]:
    """Return CSV files in several dialects."""
    frame = mixed_frame().head(30)
    comma = frame.to_csv(index=False)
    return [
        comma.encode(),
        frame.to_csv(index=False, sep=";", decimal=",", lineterminator="\r\n").encode("latin-1"),
        frame.to_csv(index=False, quoting=1).encode("utf-8-sig"),
        frame.to_csv(index=False, sep="\t", na_rep="NA").encode("utf-16"),
        b"a,b\n1,\n,2\n3,4\n",
        b'name,note\n"x, y","say ""z"""\n,\n"line\nbreak",w\n',
    ]


def fill_file(data: bytes, name: str, number: int) -> str:
    """Read a file, fill it and write it, and compare what was written with what was read."""
    source, target = folder() / f"in{name}", folder() / f"out{name}"
    source.write_bytes(data)

    def act() -> None:
        table = read_table(source)
        imputer = imputer_for(number)
        filled = imputer.fit_transform(table.table)
        write_table(target, filled, table)
        before, after = table.texts, read_table(target).texts
        for place, column in enumerate(imputer.schema_.columns):
            missing = np.asarray(table.table.column(place).is_null(nan_is_null=True))
            still = np.asarray(filled.column(place).is_null(nan_is_null=True))
            if column.filled and still.any():
                raise Finding(f"column {column.name!r} has {int(still.sum())} missing cells afterwards")
            if before is not None and after is not None:
                old, new = (np.array(t.column(place).to_pylist(), dtype=object)[~missing] for t in (before, after))
                if list(old) != list(new):
                    raise Finding(f"observed cells of column {column.name!r} have changed")

    return check_contract(act)


def imputer_for(number: int) -> Any:
    """Return an imputer by means, or now and then MCFlowImputer."""
    if number % FULL_EVERY == FULL_EVERY - 1:
        return MCFlowImputer(max_epochs=1, random_state=0, density=False, keep_empty_features=True)
    return MeanImputer(keep_empty_features=True)


def csv_file(rng: Rng, number: int) -> str:
    texts = csv_texts()
    if rng.random() < 0.6:
        return fill_file(_other_cells(texts[0].decode(), rng), ".csv", number)
    return fill_file(mutated(texts[rng.integers(len(texts))], rng, CSV_WORDS), ".csv", number)


def _other_cells(text: str, rng: Rng) -> bytes:
    """Return a CSV file of which some cells hold something else, quoted where that is needed."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(rng.integers(1, 12)):
        row = rows[rng.integers(len(rows))]
        word = CSV_WORDS[rng.integers(len(CSV_WORDS))].decode()
        row[rng.integers(len(row))] = '"' + word.replace('"', '""') + '"' if any(s in word for s in ',"\r\n') else word
    return "\n".join(",".join(row) for row in rows).encode()


def archive(rng: Rng, number: int) -> str:
    data = csv_texts()[0]
    ending = str(rng.choice([".csv.gz", ".csv.zst"]))
    packed = gzip.compress(data) if ending.endswith("gz") else bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return fill_file(mutated(packed, rng) if rng.random() < 0.8 else packed + packed, ending, number)


@cache
def parquet_files() -> list[bytes]:
    """Return Parquet files with several codecs and encodings."""
    table = pa.Table.from_pandas(mixed_frame(), preserve_index=False)
    found = []
    for how in (
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"data_page_version": "2.0"},
    ):
        stream = io.BytesIO()
        pq.write_table(table, stream, **how)
        found.append(stream.getvalue())
    return found


def parquet_file(rng: Rng, number: int) -> str:
    files = parquet_files()
    data = files[rng.integers(len(files))]
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little") if rng.random() < 0.6 else len(data)
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(4, pages)] = rng.integers(256)
    whole = rng.random() < 0.6
    return fill_file(bytes(changed) if whole else mutated(data, rng), ".parquet", number)


# ---------------------------------------------------------------------- frames
def _array(rng: Rng, n: int) -> pa.Array:
    """Return a column of any type, with extremes and missing cells."""
    kinds: list[Callable[[], pa.Array]] = [
        lambda: pa.array(rng.normal(size=n) * 10.0 ** rng.integers(-320, 309)),
        lambda: pa.array(rng.choice([0.0, -0.0, 1.0, 1e-320, 1e300, np.nan], n)),
        lambda: pa.array(rng.normal(size=n).astype(np.float32)),
        lambda: pa.array(rng.integers(-(2**63), 2**63 - 1, n)),
        lambda: pa.array(rng.integers(0, 2**64 - 1, n, dtype=np.uint64)),
        lambda: pa.array(rng.integers(-100, 100, n), pa.int8()),
        lambda: pa.array(rng.random(n) < 0.5),
        lambda: pa.array(rng.choice(["u", "v", "", " ", "é\0", "w" * 300], n).tolist()),
        lambda: pa.array([f"id {k}" for k in range(n)]),
        lambda: pa.array(rng.choice(["u", "v", "w"], n).tolist()).dictionary_encode(),
        lambda: pa.array(rng.integers(-(10**5), 10**5, n), pa.int32()).cast(pa.date32()),
        lambda: pa.array(rng.integers(-(2**62), 2**62, n)).cast(pa.timestamp(str(rng.choice(["s", "ms", "us", "ns"])))),
        lambda: pa.array(rng.integers(0, 10**9, n)).cast(pa.timestamp("s", "UTC")),
        lambda: pa.array(rng.integers(0, 10**9, n)).cast(pa.duration("s")),
        lambda: pa.nulls(n, pa.float64()),
        lambda: pa.nulls(n),
        lambda: pa.array([[1]] * n),
        lambda: pa.array([b"x"] * n),
        lambda: pa.array(np.full(n, rng.choice([0.0, 5.0, 1e308, np.inf]))),
    ]
    array = kinds[rng.integers(len(kinds))]()
    keep = pa.array(rng.random(n) > rng.choice([0.0, 0.1, 0.5, 0.98]))
    try:
        return pa.compute.if_else(keep, array, pa.scalar(None, array.type))
    except pa.ArrowException:
        return array


def _labels(rng: Rng, n: int) -> list[Any]:
    pool: list[Any] = ["a", "b", "c", "", " ", "a.b", "é", 0, 1, 2.5, True, None, float("nan"), ("x", 1), "low <= high"]
    if rng.random() < 0.6:
        return [f"c{k}" for k in range(n)]
    return [pool[k] for k in rng.choice(len(pool), n, replace=bool(rng.random() < 0.1))]


def frame(rng: Rng, number: int) -> str:
    """Fill a table of any container and of any types."""
    n_rows, n_columns = int(rng.choice([1, 2, 5, 30, 100])), int(rng.integers(1, 6))
    arrays = [_array(rng, n_rows) for _ in range(n_columns)]
    given = _contained(rng, arrays)
    if given is None:
        return "refused"

    def act() -> tuple[Any, Any, Any]:
        imputer = imputer_for(number)
        return given, imputer.fit_transform(given), imputer.schema_

    return check_contract(act)


def _contained(rng: Rng, arrays: list[pa.Array]) -> Any:
    """Return columns as a table of some kind, or None if that kind cannot hold them."""
    kind = rng.choice(["pyarrow", "polars", "pandas", "nullable", "arrow", "object", "numpy"])
    names = [f"c{k}" for k in range(len(arrays))]
    try:
        table = pa.table(arrays, names=names)
        if kind == "pyarrow":
            return table
        if kind == "polars":
            return pl.DataFrame(table)
        if kind in ("object", "numpy"):
            plain = np.array([a.to_pylist() for a in arrays], dtype=object).T
            return plain if kind == "object" else plain.astype(np.float64)
        mappers = {"nullable": pd.Int64Dtype, "arrow": pd.ArrowDtype}
        frame = table.to_pandas(types_mapper=mappers["arrow"]) if kind == "arrow" else table.to_pandas()
        frame = frame.convert_dtypes() if kind == "nullable" else frame
        frame.columns = pd.Index(_labels(rng, len(names)))
        frame.index = rng.permutation(len(frame)) if rng.random() < 0.3 else frame.index
        return frame
    except (ValueError, TypeError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError):
        return None


# ---------------------------------------------------------------------- HTTP
ROWS = b"a,b\n1,\n2,3\n,4\n"
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="rows.csv"\r\n\r\n' + ROWS + b"\r\n--x--\r\n"
HTTP_WORDS = (b"\r\n", b"\r\n\r\n", b"%00", b"..", b"%2e%2e/", b"\0", b"-1", b"9" * 30, b"chunked", b"{}", b"\xff")
GETS = ("/health", "/about", "/models", "/metrics", "/openapi.json", "/page/index.html", "/models/0123456789abcdef")
GETS += ("/models/x/rows?start=0&count=5", "/models/x/events", "/models/x/runs/y/file")


def _requests() -> list[bytes]:
    lines = [*(f"GET {path}" for path in GETS), "DELETE /models/x"]
    found = [f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode() for line in lines]
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
    form = "multipart/form-data; boundary=x"
    found += [head.format(path, form, len(PART)).encode() + PART for path in ("/models", "/models/x/impute")]
    body = b'{"m": 3, "seed": 0}'
    for path in ("/models/x/draws", "/models/x/start", "/models/x/cancel", "/session"):
        found.append(head.format(path, "application/json", len(body)).encode() + body)
    return found


#: A server with quick jobs and short time-outs, which ends with its standard input.
SERVER = """
import socket, sys, threading, os
from pathlib import Path
import uvicorn
from mcflow.serve import guard, runner
from mcflow.serve.app import create_app
from mcflow.serve.limits import Limits
for name in ("inspect", "fit", "fill", "draws", "preview", "intervals"):
    setattr(runner, name + "_command", lambda *_: ["false"])
guard.HEADER_SECONDS = guard.BODY_SECONDS = 0.05
app = create_app(Path(sys.argv[1]), Limits(max_upload=100_000))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
config = uvicorn.Config(app, log_level="critical", http=guard.TimedProtocol, ws="none", timeout_keep_alive=0)
uvicorn.Server(config).run(sockets=[listener])
"""


class Served:
    """A server as a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", SERVER, str(folder() / "served")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = "127.0.0.1", int(self.process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.communicate()

    def ask(self, data: bytes) -> bytes:
        """Send bytes, and return the answer."""
        found = b""
        with socket.create_connection(self.address, 10) as client:
            with contextlib.suppress(OSError):
                client.sendall(data)
            with contextlib.suppress(ConnectionError):
                while piece := client.recv(65536):
                    found += piece
        return found


served = cache(Served)


def request(rng: Rng) -> str:
    """Send a changed request, and one that has to be answered."""
    asked = _requests()
    data = mutated(asked[rng.integers(len(asked))], rng, HTTP_WORDS)

    def act() -> None:
        for line in served().ask(data).split(b"\r\n"):
            if line.startswith(b"HTTP/1.1 ") and line[9:10] == b"5" and line[9:12] != b"507":
                raise Finding(f"{line!r} was answered to {data!r}")
        health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        if b" 200 " not in served().ask(health).split(b"\r\n")[0]:
            raise Finding(f"the server is not well after {data!r}")

    return check_contract(act, strict=False)


#: What is fuzzed, and how many cases an hour has to reach.
TARGETS: dict[str, tuple[Callable[[Rng, int], str], int]] = {
    "damaged model files": (lambda rng, _: damaged_model(rng), 10_000),
    "forged model files": (lambda rng, _: forged_model(rng), 10_000),
    "CSV files": (csv_file, 10_000),
    "Parquet files": (parquet_file, 2_000),
    "archives": (archive, 1_000),
    "frames": (frame, 10_000),
    "requests": (lambda rng, _: request(rng), 2_000),
}


def run_case(target: str, number: int) -> str:
    """Run one case, and return "refused" or "filled"; raise `Finding` if it breaks the contract."""
    return TARGETS[target][0](rng_of(target, number), number)
