"""Multiplies a matrix that is larger than the GPU by a small one: `makeroom.chunks` copies as many rows as fit.

    python product.py          copies all rows first, and runs out of memory
    python product.py fixed    one part of the rows after the other
"""

import sys

import cupy
import numpy

import makeroom

rows = numpy.ones((200_000, 10_000))
weights = cupy.ones((10_000, 8))
if sys.argv[1:] == ["fixed"]:
    result = makeroom.chunks(rows, lambda part: part @ weights)
else:
    result = cupy.asnumpy(cupy.asarray(rows) @ weights)
print(result.shape)
