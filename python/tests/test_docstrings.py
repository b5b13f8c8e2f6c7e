"""Every public function and method has a docstring with its arguments, its result and an example."""

from __future__ import annotations

import inspect
import re
from typing import Any, Iterator

import pytest

import makeroom


def functions() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, and the methods of public classes that the package itself defines."""
    for name in [*makeroom.__all__, "open", "load_ipython_extension", "unload_ipython_extension"]:
        value = getattr(makeroom, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("makeroom."):
                    yield f"{name}.{method}", function


PUBLIC = {**dict(functions()), "spark.index": makeroom.spark.index, "ray.index": makeroom.ray.index}


def test_there_are_functions():
    assert {"explain", "open", "Trace.view", "Table.head", "Watch.step", "Explanation.text", "Pool.trim"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_function_is_documented(name: str):
    function = PUBLIC[name]
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    for argument in signature.parameters:
        assert argument == "self" or re.search(rf"^    \*?{argument}: ", text, re.MULTILINE), f"{argument} is not described"
    first = text.split("\n")[0]
    assert first.endswith((".", "…")), "the first line is one sentence"
    assert signature.return_annotation == "None" or "Returns:" in text or first.startswith("Return"), "the result"
    assert re.search(r"^Examples:\n    >>> ", text, re.MULTILINE), "an example"


def test_every_property_and_class_is_documented():
    for name in makeroom.__all__:
        value = getattr(makeroom, name)
        if inspect.isclass(value):
            assert value.__doc__, name
            for member, found in inspect.getmembers(value, lambda member: isinstance(member, property)):
                assert found.__doc__, f"{name}.{member}"
