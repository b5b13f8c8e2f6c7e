"""Live memory in groups, as `makeroom why --by` shows it: by kind, line, module, stage, thread, stream or process."""

from __future__ import annotations

from typing import Iterator, Literal, NamedTuple

from ._answer import Answer

By = Literal["kind", "line", "module", "stage", "thread", "stream", "process"]
"""What to group memory by."""


class Group(NamedTuple):
    """One group, with its live bytes by kind."""

    name: str
    bytes: int
    blocks: int
    kinds: dict[str, int]


class Groups(Answer):
    """Live memory in groups that add up to `live_bytes`. Iterating yields the groups; `groups["activations"]` is one."""

    @property
    def by(self) -> By:
        """What the memory is grouped by."""
        by: By = self._json["by"]
        return by

    @property
    def device(self) -> int:
        """Index of the GPU."""
        return int(self._json["device"])

    @property
    def moment(self) -> Literal["failure", "peak"]:
        """The moment: the first failed allocation that the run did not recover from, else the peak."""
        moment: Literal["failure", "peak"] = self._json["moment"]
        return moment

    @property
    def live_bytes(self) -> int:
        """Live memory at that moment."""
        return int(self._json["live_bytes"])

    @property
    def groups(self) -> list[Group]:
        """All groups: kinds in the order of reports, others by size."""
        return [
            Group(
                group["name"],
                group["bytes"],
                group["blocks"],
                {kind["kind"]: kind["bytes"] for kind in group["kinds"]},
            )
            for group in self._json["groups"]
        ]

    @property
    def notes(self) -> list[str]:
        """A hint, if the recording does not have what the groups need."""
        return [self._json["hint"]] if self._json["hint"] is not None else []

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self._json["groups"])

    def __getitem__(self, name: str | int) -> Group:
        groups = self.groups
        if isinstance(name, int):
            return groups[name]
        for group in groups:
            if group.name == name:
                return group
        raise KeyError(f"no group {name!r}; use one of {', '.join(group.name for group in groups)}")

    def _repr_html_(self) -> str:
        from ._html import groups

        return groups(self._json)
