"""The inputs of tests whose results torch computed: a file of results need not hold them."""

import numpy
import torch


def values(name, shape, scale=1.0):
    """Multiples of 1/128 of the scale, by a hash of the name (FNV-1a) and the element's number: they
    have at most 8 bits, so that they are the same in every type. `hashed` of `tests/it/harness.rs`
    makes the same."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 % 2**32
    with numpy.errstate(over="ignore"):
        mixed = numpy.arange(numpy.prod(shape), dtype=numpy.uint32) * numpy.uint32(0x9E3779B1)
        mixed ^= numpy.uint32(seed)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            mixed = (mixed ^ mixed >> numpy.uint32(shift)) * numpy.uint32(factor)
        mixed ^= mixed >> numpy.uint32(16)
    exact = (mixed % 255).astype(numpy.float64) - 127
    return torch.from_numpy(exact / 128 * scale).reshape(shape)
