"""What a benchmark is made of: figures, each with its peer and its goal.

A benchmark is a module in bench/figures. Each of its functions marked with `@figure` measures one figure, or one figure for
several inputs, and yields `Figure`s. `options(parser, quick)`, if the module has it, adds options of its own.
"""
import functools
from dataclasses import dataclass


class Skip(Exception):
    """This cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Goal:
    """A bound on a figure, or on its ratio to the peer."""

    sign: str
    limit: float
    of_ratio: bool = False

    def is_met(self, number):
        return {"<": number < self.limit, "<=": number <= self.limit, ">=": number >= self.limit}[self.sign]

    def __str__(self):
        return f"{'ratio ' if self.of_ratio else ''}{self.sign} {self.limit:.5g}"


def under(limit):
    return Goal("<", limit)


def at_most(limit):
    return Goal("<=", limit)


def at_least(limit):
    return Goal(">=", limit)


def ratio_at_most(limit):
    return Goal("<=", limit, of_ratio=True)


@dataclass
class Figure:
    """One number: what makeroom needs, what its peer needs, and the goal."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self):
        # A difference of two times can come out negative; a ratio to it means nothing.
        return self.value / self.peer_value if self.peer_value and self.peer_value > 0 else None

    @property
    def is_met(self):
        """None without a goal, or if the peer that the goal refers to is missing."""
        number = self.ratio if self.goal and self.goal.of_ratio else self.value
        return None if self.goal is None or number is None else self.goal.is_met(number)

    def as_json(self):
        return dict(figure=self.name, value=self.value, unit=self.unit, peer=self.peer or None, peer_value=self.peer_value,
                    ratio=self.ratio, goal=str(self.goal) if self.goal else None, met=self.is_met, note=self.note or None)


def figure(function):
    """Marks a function that measures a figure."""
    function.is_figure = True
    return function


def figures_of(module):
    """The marked functions of a module, in the order of its text."""
    marked = [value for value in vars(module).values() if getattr(value, "is_figure", False) and value.__module__ == module.__name__]
    return sorted(marked, key=lambda function: function.__code__.co_firstlineno)


def once(function):
    """A measurement that several figures share: it is made once for the same options."""
    results = {}

    @functools.wraps(function)
    def measured(options):
        if id(options) not in results:
            results[id(options)] = function(options)
        return results[id(options)]

    return measured
