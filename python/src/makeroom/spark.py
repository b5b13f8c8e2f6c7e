"""Index recordings on a Spark cluster.

    import makeroom.spark

    makeroom.spark.index(spark, "s3://bucket/recordings", "s3://bucket/index")

Writes the same files as `makeroom index`. Needs makeroom and obstore on every executor: `pip install makeroom[spark]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._impl._index import Done, Found, Indexed, absolute, conclude, index_all, new_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._impl._types import Path

__all__ = ["Indexed", "index"]

#: Tasks per core: more balance recordings of different sizes better, and each costs a moment.
TASKS_PER_CORE = 4


def index(spark: Any, source: Path, index: Path) -> Indexed:
    """Index the recordings in a directory or an object store, on the executors of a Spark session.

    Args:
        spark: The session.
        source: A directory that all executors see, or a URL such as `s3://bucket/recordings`.
        index: Where the index is written: a directory that all executors see, or a URL.

    Returns:
        How many objects were indexed. Objects that the index already has are not read again.

    Raises:
        OSError: An object could not be read, or its file could not be written. All others are indexed.

    Examples:
        >>> makeroom.spark.index(spark, "s3://bucket/recordings", "s3://bucket/index").written
    """
    place = absolute(index)
    objects, found = new_objects(absolute(source), place)
    if not found:
        return conclude(objects, 0, [])
    tasks = min(len(found), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    table = spark.createDataFrame(found, "source string, size long, etag string, modified_us long")
    done = table.repartition(tasks).mapInArrow(worker(place), "source string, status string, reason string")
    return conclude(objects, len(found), (Done(*row) for row in done.collect()))


def worker(place: str) -> Any:
    """The function that runs in the executors: Arrow batches of objects to batches of results."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            found = (Found(**row) for row in batch.to_pylist())
            rows = [done._asdict() for done in index_all(found, place)]
            if rows:
                yield pyarrow.RecordBatch.from_pylist(rows)

    return run
