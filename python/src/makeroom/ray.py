"""Index recordings on a Ray cluster.

    import makeroom.ray

    makeroom.ray.index("s3://bucket/recordings", "s3://bucket/index")

Writes the same files as `makeroom index`. Needs makeroom and obstore on every node: `pip install makeroom[ray]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._impl._index import Done, Found, Indexed, absolute, conclude, index_all, new_objects

if TYPE_CHECKING:
    from ._impl._types import Path

__all__ = ["Indexed", "index"]

#: Tasks per core: more balance recordings of different sizes better, and each costs a moment.
TASKS_PER_CORE = 4


def index(source: Path, index: Path) -> Indexed:
    """Index the recordings in a directory or an object store, on the nodes of a Ray cluster.

    Call `ray.init` first, or this starts Ray on this machine.

    Args:
        source: A directory that all nodes see, or a URL such as `s3://bucket/recordings`.
        index: Where the index is written: a directory that all nodes see, or a URL.

    Returns:
        How many objects were indexed. Objects that the index already has are not read again.

    Raises:
        OSError: An object could not be read, or its file could not be written. All others are indexed.

    Examples:
        >>> makeroom.ray.index("s3://bucket/recordings", "s3://bucket/index").written
    """
    from importlib import import_module

    ray: Any = import_module("ray")
    place = absolute(index)
    objects, found = new_objects(absolute(source), place)
    if not found:
        return conclude(objects, 0, [])
    if not ray.is_initialized():
        ray.init()
    tasks = min(len(found), TASKS_PER_CORE * int(ray.cluster_resources().get("CPU", 1)))
    table = import_module("ray.data").from_items([one._asdict() for one in found], override_num_blocks=tasks)
    done = table.map_batches(worker(place), batch_format="pyarrow", batch_size=None)
    return conclude(objects, len(found), (Done(**row) for row in done.iter_rows()))


def worker(place: str) -> Any:
    """The function that runs on the nodes: an Arrow table of objects to a table of results."""

    def run(table: Any) -> Any:
        import pyarrow

        found = (Found(**row) for row in table.to_pylist())
        return pyarrow.Table.from_pylist([done._asdict() for done in index_all(found, place)])

    return run
