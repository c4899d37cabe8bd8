"""Named tables: folders, downloads, checksums and the readers of archives' formats. No network is used."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import threading
import zipfile

import numpy as np
import pandas as pd
import pytest

from mcflow.errors import DataError, OutputError, ParameterError
from mcflow.files.atomic import cache_folder, holding
from mcflow_bench.data import catalog, downloads
from mcflow_bench.data.catalog import CATALOG, NamedTable, locate, read_numbers
from mcflow_bench.data.downloads import Source, fetch


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MCFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MCFLOW_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def origin(tmp_path):
    path = tmp_path / "origin.csv"
    path.write_text("a,b\n1,2\n3,5\n")
    return path


def test_folder_comes_before_the_cache_and_parquet_before_csv(cache, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "letter.csv").write_text("x\n1\n")
    assert locate("letter", folder) == folder / "letter.csv"
    (folder / "letter.parquet").write_bytes(b"")
    monkeypatch.setenv("MCFLOW_DATA", str(folder))
    assert locate("letter") == folder / "letter.parquet"
    with pytest.raises(ParameterError, match=r"no table 'leter'.*Did you mean 'letter'"):
        locate("leter")
    with pytest.raises(ParameterError, match="is not a folder"):
        locate("letter", tmp_path / "none")


def test_download_is_cached_and_its_first_checksum_trusted(cache, origin) -> None:
    sources = (Source(origin.as_uri()),)
    path = fetch("t", sources)
    assert path.parent == cache == cache_folder()
    record = json.loads((cache / "t.csv.sha256.json").read_text())
    assert record["sha256"] == hashlib.sha256(origin.read_bytes()).hexdigest()
    assert record["url"] == origin.as_uri()
    origin.unlink()
    assert fetch("t", sources).read_text() == "a,b\n1,2\n3,5\n", "no second download"
    assert sorted(p.name for p in cache.iterdir()) == ["t.csv", "t.csv.sha256.json"]


def test_altered_cache_is_refused_until_it_is_removed(cache, origin) -> None:
    sources = (Source(origin.as_uri()),)
    path = fetch("t", sources)
    path.write_text("a,b\n9,9\n")
    with pytest.raises(DataError, match=r"checksum differs\. Remove it"):
        fetch("t", sources)
    path.unlink()
    assert fetch("t", sources).read_bytes() == origin.read_bytes()
    (cache / "t.csv.sha256.json").write_text("{")
    with pytest.raises(DataError, match="checksum differs"):
        fetch("t", sources)


def test_known_checksum_is_held_to(cache, origin) -> None:
    with pytest.raises(DataError, match="another checksum than expected"):
        fetch("t", (Source(origin.as_uri(), sha256="0" * 64),))
    assert not (cache / "t.csv").exists()
    good = hashlib.sha256(origin.read_bytes()).hexdigest()
    assert fetch("t", (Source(origin.as_uri(), sha256=good),)).is_file()


def test_next_source_is_tried_and_all_reasons_are_told(cache, origin, tmp_path) -> None:
    gone = Source((tmp_path / "gone.csv").as_uri())
    assert fetch("t", (gone, Source(origin.as_uri()))).is_file()
    refused = Source("http://127.0.0.1:9/u.csv")
    with pytest.raises(DataError, match=r"gone.csv.*127.0.0.1:9.*refused.*--data or MCFLOW_DATA"):
        fetch("u", (gone, refused))
    with pytest.raises(DataError, match="not an address"):
        fetch("v", (Source("ftp://x/y"),))


class Server(http.server.BaseHTTPRequestHandler):
    body = bytes(range(256)) * 40
    asked: list[str]
    breaks = False

    def do_GET(self):
        type(self).asked.append(self.headers["User-Agent"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body[:1000] if type(self).breaks else self.body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Server.asked, Server.breaks = [], False
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/t.csv"
        running.shutdown()
        thread.join()


def test_incomplete_download_is_not_kept_and_a_second_one_is_complete(cache, server) -> None:
    Server.breaks = True
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch("t", (Source(server),))
    assert list(cache.iterdir()) == []
    Server.breaks = False
    assert fetch("t", (Source(server),)).read_bytes() == Server.body
    assert Server.asked == ["mcflow", "mcflow"]
    assert sorted(p.name for p in cache.iterdir()) == ["t.csv", "t.csv.sha256.json"]


def test_cache_that_cannot_be_made_is_refused(tmp_path, origin) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be made.*MCFLOW_CACHE"):
        fetch("t", (Source(origin.as_uri()),), tmp_path / "file" / "cache")


def test_openml_is_asked_for_the_file_and_its_md5(cache, tmp_path, monkeypatch, origin) -> None:
    site = tmp_path / "site"
    (site / "api/v1/json/data").mkdir(parents=True)
    (site / "data/v1/download").mkdir(parents=True)
    (site / "data/v1/download/77").write_bytes(origin.read_bytes())
    monkeypatch.setattr(downloads, "_OPENML", site.as_uri())
    md5 = hashlib.md5(origin.read_bytes()).hexdigest()
    for told, error in ((md5, None), ("0" * 32, "another checksum")):
        about = {"data_set_description": {"file_id": "77", "md5_checksum": told}}
        (site / "api/v1/json/data/6").write_text(json.dumps(about))
        if error is None:
            assert fetch("good", (Source("openml:6"),)).read_bytes() == origin.read_bytes()
        else:
            with pytest.raises(DataError, match=error):
                fetch("bad", (Source("openml:6"),))


def test_two_downloads_of_one_table_do_not_meet(cache, origin) -> None:
    cache.mkdir()
    with holding(cache / ".t.lock", "t"), pytest.raises(OutputError, match="is at work on the download of t"):
        fetch("t", (Source(origin.as_uri()),))


def test_preparation_drops_labels_texts_holes_and_constants(tmp_path) -> None:
    frame = pd.DataFrame(
        {
            "lettr": [1, 2, 3, 4],
            "flag": [True, False, True, False],
            "word": list("abcd"),
            "x": np.array([1, 2, 3, 4], dtype="uint8"),
            "y": [0.5, None, 2.5, 9.0],
            "same": [3, 7, 3, 3],
        }
    )
    frame.to_parquet(tmp_path / "letter.parquet")
    table = read_numbers(tmp_path / "letter.parquet", "letter")
    assert table.names == ["x", "y"], "`same` does not vary once the row with a hole is gone"
    np.testing.assert_array_equal(table.values, [[1, 0.5], [3, 2.5], [4, 9.0]])
    frame.to_csv(tmp_path / "letter.csv", index=False)
    np.testing.assert_array_equal(read_numbers(tmp_path / "letter.csv", "letter").values, table.values)


def test_headerless_member_of_a_zip_is_read(tmp_path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("notes.txt", "nothing")
        rows = [",".join(["T", *(str(k + row) for k in range(16))]) for row in range(3)]
        archive.writestr("letter-recognition.data", "\n".join(rows) + "\n")
    (tmp_path / "letter.zip").write_bytes(packed.getvalue())
    table = read_numbers(tmp_path / "letter.zip", "letter")
    np.testing.assert_array_equal(table.values, np.arange(16) + np.arange(3)[:, None])
    (tmp_path / "news.zip").write_bytes(packed.getvalue())
    with pytest.raises(DataError, match=r"holds no file 'OnlineNewsPopularity\.csv'"):
        read_numbers(tmp_path / "news.zip", "news")


def test_names_with_space_around_them_are_trimmed(tmp_path) -> None:
    (tmp_path / "credit.csv").write_text("ID, LIMIT, Y\n1,10,0\n2,30,1\n")
    table = read_numbers(tmp_path / "credit.csv", "credit")
    assert table.names == ["LIMIT"]


def test_arff_is_read(tmp_path) -> None:
    (tmp_path / "bean.arff").write_text(
        "% beans\n@RELATION b\n@ATTRIBUTE\tArea\tINTEGER\n@attribute 'the length' REAL\n"
        "@ATTRIBUTE level {1, 2}\n@ATTRIBUTE Class {A,B}\n@DATA\n% rows\n1,2.5,1,A\n2,?,2,B\n\n3,1.5,2,A\n"
    )
    table = read_numbers(tmp_path / "bean.arff", "bean")
    assert table.names == ["Area", "the length", "level"]
    np.testing.assert_array_equal(table.values, [[1, 2.5, 1], [3, 1.5, 2]])
    (tmp_path / "cut.arff").write_text("@RELATION b\n")
    with pytest.raises(DataError, match="no line @DATA"):
        read_numbers(tmp_path / "cut.arff", "bean")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.parquet", b"no", "cannot be read"),
        ("t.zip", b"no", "cannot be read"),
        ("t.csv", b"a,b\n1\n", "cannot be read"),
        ("t.csv", b"a\nx\n", "no column of numbers"),
        ("t.csv", b"a\n1\n1\n", "no column of numbers"),
    ],
)
def test_file_that_holds_no_numbers_is_refused(tmp_path, name, content, words) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_numbers(tmp_path / name, "t")


def test_catalog_downloads_through_the_cache(cache, origin, monkeypatch) -> None:
    monkeypatch.setitem(catalog.CATALOG, "small", NamedTable("Small", sources=(Source(origin.as_uri()),)))
    path = locate("small")
    np.testing.assert_array_equal(read_numbers(path, "small").values, [[1, 2], [3, 5]])
    monkeypatch.delitem(catalog.CATALOG, "small")
    assert all(entry.sources and entry.citation for entry in CATALOG.values())


def test_platform_decides_on_the_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("MCFLOW_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == tmp_path / "mcflow"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "mcflow")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache_folder() == tmp_path / "mcflow" / "cache"
