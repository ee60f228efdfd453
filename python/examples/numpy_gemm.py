#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A product of matrices by tiles, in several threads.

numpy.matmul() releases the interpreter's lock while it computes, so that two bodies compute at
the same time.  Each tile of the result is a var with its data.  The products that are added to
one tile run one after the other, those of different tiles in parallel, and the check of a tile
begins when the tile is complete.

BLAS creates its own threads, unless the environment forbids that before numpy is imported.
"""
import os
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402

import pawl  # noqa: E402

TILES, SIZE = 4, 64 if "--quick" in sys.argv else 384


def multiply_add(a, b, out):
    """out += a @ b; out is a tile that this op may write, a and b are views for reading."""
    out += a @ b


def run(engine):
    """The product on this engine; returns the seconds that it took, and the result."""
    grid = range(TILES)
    random = np.random.default_rng(1)
    a, b = ([[engine.array(random.random((SIZE, SIZE))) for _ in grid] for _ in grid] for _ in "ab")
    out = [[engine.array(np.zeros((SIZE, SIZE))) for _ in grid] for _ in grid]
    begin = time.perf_counter()
    for i in grid:
        for j in grid:
            for k in grid:
                engine.push(multiply_add, a[i][k], b[k][j], out[i][j], writes=out[i][j])
    result = np.block([[tile.wait() for tile in row] for row in out])
    seconds = time.perf_counter() - begin
    expected = np.block([[t.data for t in row] for row in a]) @ \
        np.block([[t.data for t in row] for row in b])
    assert np.allclose(result, expected)
    return seconds


def best(workers):
    with pawl.Engine(workers) as engine:
        return min(run(engine) for _ in range(1 if "--quick" in sys.argv else 5))


workers = min(len(os.sched_getaffinity(0)), 8)
serial, parallel = best(1), best(workers)
print(f"{TILES**3} products of {SIZE} x {SIZE}: one worker {serial * 1e3:.1f} ms, "
      f"{workers} workers {parallel * 1e3:.1f} ms, gain {serial / parallel:.2f}")
