"""Index recordings on the workers of an engine: what `makeroom.spark` and `makeroom.ray` share.

The driver lists the objects and leaves out those that the index has. Each worker reads objects, summarizes them in its own
process with the native module, and writes one Parquet file per object under its final name. Names and contents depend only
on the object, so a task that runs twice, because a worker was killed, writes the same file again.

Stores are read and written with `obstore`, which takes credentials from the usual environment variables of each machine.
They are never part of a task, an error message or the index.
"""

from __future__ import annotations

import io
import os
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ._types import Path

T = TypeVar("T")

#: An object that is larger than this is read through a temporary file.
MOST_IN_MEMORY = 64 << 20
#: How much of such an object is read at a time.
CHUNK = 8 << 20
#: How many failures an error message lists.
MOST_SHOWN = 5
#: The directory of an index with one file per object.
OBJECTS = "objects"
#: The file that names the current generation of compacted files, and their directory.
CURRENT = "CURRENT"
GENERATIONS = "generations"



class Found(NamedTuple):
    """An object to index. `source` identifies it in the index."""

    source: str
    size: int
    etag: str
    modified_us: int


class Indexed(NamedTuple):
    """How many objects were indexed, and the reasons for those that are not recordings."""

    objects: int
    written: int
    present: int
    unreadable: list[tuple[str, str]]


class Done(NamedTuple):
    """The result for one object: `written`, `unreadable` with a reason, or `failed` with a reason."""

    source: str
    status: str
    reason: str


def is_local(place: str) -> bool:
    return "://" not in place


def absolute(place: Path) -> str:
    """A URL as it is, a local path without links, as the command has it."""
    text = os.fspath(place)
    return os.path.realpath(text) if is_local(text) else text.rstrip("/")


def new_objects(source: str, index: str) -> tuple[int, list[Found]]:
    """How many objects there are, and those that the index does not have."""
    present = listed(index, names)
    found = listed(source, lambda place: list(objects(place)))
    return len(found), [one for one in found if _native.index_name(one.source, one.size, one.etag) not in present]


def listed(place: str, listing: Callable[[str], T]) -> T:
    """A listing. Errors of a store become an `OSError` of one line."""
    try:
        return listing(place)
    except (ImportError, OSError):
        raise
    except Exception as error:
        raise OSError(f"{place}: {describe(error)}") from None


def objects(source: str) -> Iterator[Found]:
    """The recordings, snapshots, logs and archives in a directory or under a URL."""
    if is_local(source):
        yield from local_objects(source)
        return
    store, prefix, base = open_store(source)
    from datetime import datetime, timedelta, timezone

    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    for chunk in store.list(prefix or None):
        for entry in chunk:
            if _native.is_recording_name(entry["path"]):
                modified = (entry["last_modified"] - epoch) // timedelta(microseconds=1)
                etag = quoted(entry["e_tag"]) if entry["e_tag"] else f"{modified:x}"
                yield Found(base + entry["path"], entry["size"], etag, modified)


def quoted(etag: str) -> str:
    """An etag as responses have it. Listings of Azure have it without the quotes."""
    return etag if etag.endswith('"') else f'"{etag}"'


def local_objects(folder: str) -> Iterator[Found]:
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder}: this is not a directory")
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if _native.is_recording_name(path) and os.path.isfile(path) and not os.path.islink(path):
                status = os.stat(path)
                modified = status.st_mtime_ns // 1000
                yield Found(path, status.st_size, f"{modified:x}", modified)


def open_store(url: str) -> tuple[Any, str, str]:
    """The bucket of a URL, the prefix in it, and the URL of the bucket."""
    from obstore.store import from_url

    scheme, rest = url.split("://", 1)
    bucket, _, prefix = rest.partition("/")
    base = f"{scheme}://{bucket}/"
    return from_url(base), prefix, base


def names(index: str) -> set[str]:
    """The names of the files that an index has, or had before they were compacted."""
    if is_local(index):
        folder = os.path.join(index, OBJECTS)
        found = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        current = os.path.join(index, CURRENT)
        if not os.path.exists(current):
            return found
        with open(current, encoding="utf-8") as file:
            generation = os.path.join(index, GENERATIONS, file.read().strip())
        parts: Iterable[Any] = [os.path.join(generation, name) for name in os.listdir(generation)]
        return found | compacted(part for part in parts if part.endswith(".parquet"))
    store, prefix, _ = open_store(index)
    below = f"{prefix}/" if prefix else ""

    def keys(folder: str) -> list[str]:
        return [entry["path"] for chunk in store.list(below + folder) for entry in chunk]

    found = {key.rsplit("/", 1)[-1] for key in keys(f"{OBJECTS}/")}
    if not any(key.endswith(f"/{CURRENT}") or key == CURRENT for key in keys(CURRENT)):
        return found
    generation = bytes(store.get(below + CURRENT).bytes()).decode().strip()
    parts = (key for key in keys(f"{GENERATIONS}/{generation}/") if key.endswith(".parquet"))
    return found | compacted(io.BytesIO(bytes(store.get(key).bytes())) for key in parts)


def compacted(parts: Iterable[Any]) -> set[str]:
    """The names that the objects in the files of a generation had."""
    from pyarrow import parquet

    found = set()
    for part in parts:
        for row in parquet.read_table(part, columns=["source", "object_bytes", "etag"]).to_pylist():
            found.add(_native.index_name(row["source"], row["object_bytes"], row["etag"]))
    return found


def index_all(found: Iterable[Found], index: str) -> Iterator[Done]:
    """Index objects, in the process of a worker. An object that fails does not stop the others."""
    stores: dict[str, Any] = {}
    for one in found:
        try:
            reason = index_one(one, index, stores)
        except Exception as error:  # a store has many, and a bug in one file must not cost the others
            yield Done(one.source, "failed", describe(error))
        else:
            yield Done(one.source, "unreadable" if reason else "written", reason or "")


def index_one(one: Found, index: str, stores: dict[str, Any]) -> str | None:
    """Write the index file of an object. Returns the reason if it is not a recording."""
    if is_local(one.source):
        name, content, reason = _native.index_object(*one, path=one.source)
    else:
        name, content, reason = from_store(one, stores)
    write(index, name, content, stores)
    return reason


def from_store(one: Found, stores: dict[str, Any]) -> tuple[str, bytes, str | None]:
    store, key = in_store(one.source, stores)
    # An object that has changed since it was listed would get the name of the old one.
    response = store.get(key, options={"if_match": one.etag})
    if one.size <= MOST_IN_MEMORY:
        return _native.index_object(*one, data=bytes(response.bytes()))
    with tempfile.NamedTemporaryFile(prefix="makeroom-") as file:
        for part in response.stream(min_chunk_size=CHUNK):
            file.write(part)
        file.flush()
        return _native.index_object(*one, path=file.name)


def in_store(url: str, stores: dict[str, Any]) -> tuple[Any, str]:
    """The store of a URL, opened once per worker, and the key in it."""
    scheme, rest = url.split("://", 1)
    bucket, _, key = rest.partition("/")
    base = f"{scheme}://{bucket}"
    if base not in stores:
        stores[base] = open_store(base)[0]
    return stores[base], key


def write(index: str, name: str, content: bytes, stores: dict[str, Any]) -> None:
    """Write a whole file under its final name."""
    if not is_local(index):
        store, prefix = in_store(index, stores)
        store.put("/".join(part for part in (prefix, OBJECTS, name) if part), content)
        return
    folder = os.path.join(index, OBJECTS)
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, os.path.join(folder, name))
        except BaseException:
            os.unlink(file.name)
            raise


def describe(error: Exception) -> str:
    """The first line of an error, without the response of the server, which may repeat the request."""
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text[:300]}"


def conclude(objects: int, found: int, done: Iterable[Done]) -> Indexed:
    """The result. Raises an error if an object could not be indexed: an index that lacks objects must not look complete."""
    failed, unreadable, written = [], [], 0
    for one in done:
        written += one.status != "failed"
        if one.status == "failed":
            failed.append(one)
        elif one.status == "unreadable":
            unreadable.append((one.source, one.reason))
    if failed:
        shown = "".join(f"\n  {one.source}: {one.reason}" for one in failed[:MOST_SHOWN])
        more = f"\n  and {len(failed) - MOST_SHOWN} more" if len(failed) > MOST_SHOWN else ""
        raise OSError(f"{len(failed)} of {objects} objects could not be indexed; run it again for these:{shown}{more}")
    return Indexed(objects, written, objects - found, sorted(unreadable))
