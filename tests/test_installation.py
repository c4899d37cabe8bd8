"""Messages name the command that installs an extra for how mcflow was installed."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcflow import installation
from mcflow.installation import install_bench, install_extra


@pytest.fixture
def recorded(monkeypatch):
    """Return a function that sets the recorded origin of the distribution."""

    def record(url: str | None) -> None:
        text = None if url is None else json.dumps({"url": url})
        found = SimpleNamespace(read_text=lambda _: text)
        monkeypatch.setattr(installation.metadata, "distribution", lambda _: found)

    return record


def test_extra_when_installed_from_an_index_is_named_by_the_distribution(recorded) -> None:
    for url in (None, "https://example.org/mcflow_impute-1.0-py3-none-any.whl", "file:///gone/for/good"):
        recorded(url)
        assert install_extra("report") == "pip install 'mcflow-impute[report]'"
        assert install_bench() == "pip install mcflow-bench"


def test_extra_when_installed_from_a_folder_is_named_by_the_folder(recorded, tmp_path, monkeypatch) -> None:
    recorded(tmp_path.as_uri())
    assert install_extra("serve") == f"pip install '{tmp_path}[serve]'"
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "pyproject.toml").touch()
    assert install_bench() == f"pip install {tmp_path}/bench"
    monkeypatch.chdir(tmp_path)
    assert install_extra("serve") == "pip install '.[serve]'"
    assert install_bench() == "pip install ./bench"


def test_extra_when_the_source_tree_is_not_installed_is_named_by_the_tree(monkeypatch) -> None:
    def absent(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(installation.metadata, "distribution", absent)
    monkeypatch.chdir(Path(installation.__file__).parent)
    tree = Path(installation.__file__).parents[2]
    if (tree / "pyproject.toml").exists():
        assert install_extra("ray") == f"pip install '{tree}[ray]'"
