"""Calls malloc and free from 20 Python frames down: mallocs.py LIBRARY COUNT."""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.mallocs.restype = ctypes.c_double


def deep(depth):
    return library.mallocs(int(sys.argv[2])) if depth == 0 else deep(depth - 1)


print(deep(20))
