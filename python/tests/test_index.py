"""Indexing without an engine: the functions that run on the driver and in the executors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from makeroom._impl import _index, _native

TRACES = Path(__file__).resolve().parents[2] / "traces"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    (folder / "deep").mkdir(parents=True)
    shutil.copy(TRACES / "seed001.pickle.gz", folder / "deep")
    (folder / "run.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (folder / "broken.room").write_bytes(b"\x8dROOM\r\n\x1a and no recording")
    (folder / "train.py").write_text("import torch\n")
    os.symlink(folder / "run.log", folder / "link.log")
    return folder


def index(source: Path, place: Path) -> _index.Indexed:
    objects, found = _index.new_objects(str(source), str(place))
    return _index.conclude(objects, len(found), _index.index_all(found, str(place)))


def test_every_object_gets_a_file_with_the_name_of_its_content(source: Path, tmp_path: Path):
    made = index(source, tmp_path / "index")
    assert (made.objects, made.written, made.present) == (3, 3, 0)
    assert [Path(name).name for name, _ in made.unreadable] == ["broken.room"]
    files = {path.name: path.read_bytes() for path in (tmp_path / "index" / "objects").iterdir()}
    names = {_native.index_name(one.source, one.size, one.etag) for one in _index.objects(str(source))}
    assert set(files) == names and all(content.startswith(b"PAR1") for content in files.values())
    again = index(source, tmp_path / "again")
    assert again.written == 3
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "again" / "objects").iterdir()}


def test_only_new_and_changed_objects_are_read_again(source: Path, tmp_path: Path):
    place = tmp_path / "index"
    index(source, place)
    assert index(source, place)[:3] == (3, 0, 3)
    os.utime(source / "run.log", ns=(1, 2_000_000))
    assert index(source, place)[:3] == (3, 1, 2)
    assert len(os.listdir(place / "objects")) == 4


def test_an_object_that_cannot_be_read_is_an_error_after_all_others(source: Path, tmp_path: Path):
    place = tmp_path / "index"
    objects, found = _index.new_objects(str(source), str(place))
    (source / "run.log").unlink()
    with pytest.raises(OSError, match=r"1 of 3 objects could not be indexed.*\n.*run\.log: FileNotFoundError"):
        _index.conclude(objects, len(found), _index.index_all(found, str(place)))
    assert len(os.listdir(place / "objects")) == 2
    assert not [name for name in os.listdir(place / "objects") if not name.endswith(".parquet")]


def test_an_object_needs_data_or_a_path():
    with pytest.raises(ValueError, match="either the data or the path"):
        _native.index_object("x", 1, "y", None)
    name, content, reason = _native.index_object("x.room", 1, "y", None, data=b"\x8dROOM\r\n\x1a")
    assert name == _native.index_name("x.room", 1, "y") and content.startswith(b"PAR1") and reason


def test_a_source_must_be_a_directory(tmp_path: Path):
    with pytest.raises(NotADirectoryError):
        list(_index.objects(str(tmp_path / "nothing")))
