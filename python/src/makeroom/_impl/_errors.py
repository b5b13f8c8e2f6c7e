"""The exceptions that belong to one: its causes, its contexts, and the members of its groups."""

from __future__ import annotations

from typing import Iterator


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that led to it, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # Groups are new in Python 3.11.
        members = getattr(each, "exceptions", ())
        waiting += [member for member in members if isinstance(member, BaseException)] if isinstance(members, tuple) else []
        waiting.append(each.__cause__ or each.__context__)
