"""Twelve layers of six operations, each from a line of its own, some twenty frames deep: training.py LIBRARY."""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.cold.restype = ctypes.c_double
library.begin_cold()


def report():
    library.report_cold()


def linear():
    report()


def norm():
    report()
    linear()


def attention():
    linear()
    norm()
    linear()


def block(number):
    if number % 2:
        attention()
    else:
        norm()
    linear()


def layer(number):
    block(number)


def model():
    for number in range(12):
        layer(number)


def deep(depth):
    return model() if depth == 0 else deep(depth - 1)


for step in range(40):
    deep(12)
print(library.cold())
