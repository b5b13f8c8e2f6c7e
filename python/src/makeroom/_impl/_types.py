"""Names that results and arguments can have, as types: a checker knows them all, and an editor completes them.

Causes, certainties, fates and kinds are those of the command's `--json`; a test compares them with the native module.
"""

from __future__ import annotations

import os
from typing import Literal, Union

Path = Union[str, "os.PathLike[str]"]
"""Path of a file."""

Cause = Literal[
    "request_exceeds_device",
    "live_data_fills_device",
    "fragmentation",
    "cache_held_by_framework",
    "other_processes",
    "hidden_holder",
    "non_framework_overhead",
    "artificial_limit",
    "preallocation",
    "host_memory",
    "shared_memory_or_kernel_resource",
    "leak",
    "integer_or_shape_bug",
    "undetermined",
    "none",
]
"""Cause of a failure; `none` if nothing failed."""

Certainty = Literal["undetermined", "possible", "likely", "certain"]
"""Certainty of a cause."""

JobCause = Literal[
    "none",
    "caught",
    "rank_holds_more",
    "group_holds_more",
    "ranks_share_gpu",
    "every_rank_full",
    "request_too_large",
    "rank_ran_out",
    "host_memory",
    "rank_killed",
    "all_killed",
    "terminated",
    "other_failure",
    "collective_stalled",
    "undetermined",
]
"""Cause of a job's failure; `none` if nothing failed."""

Fate = Literal[
    "finished",
    "caught",
    "ran_out",
    "killed",
    "terminated",
    "collective_timeout",
    "peer_lost",
    "failed",
    "running",
    "unknown",
]
"""Outcome of a rank."""

Kind = Literal["torch-snapshot", "rmm-log", "room-trace", "jax-profile"]
"""Kind of recording."""

SourceName = Literal["recorder", "pool", "torch", "jax"]
"""Source of the figures of `watch`."""

BackendName = Literal["torch", "cupy", "driver"]
"""What runs the pieces of `chunks`."""

Framework = Literal["torch", "cupy", "rmm"]
"""Framework that `use_pool` configures."""
