"""Number formats and Triton's random numbers, by their definitions."""

import numpy as np


def bf16(values):
    """Rounds to bfloat16; gives the rounded singles and their bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return (bits << 16).astype(np.uint32).view(np.float32), bits.astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def small(codes, exponent, fraction, infinite=False):
    """Values of a format of a few bits."""
    codes = np.asarray(codes, np.int64)
    f, e = codes & (1 << fraction) - 1, codes >> fraction & (1 << exponent) - 1
    bias = (1 << exponent - 1) - 1
    value = np.where(e == 0, f * 2.0 ** (1 - bias - fraction),
                     (1 + f * 2.0**-fraction) * 2.0 ** (e - bias))
    if infinite:
        value = np.where(e == (1 << exponent) - 1, np.where(f == 0, np.inf, np.nan), value)
    elif (exponent, fraction) == (4, 3):
        value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    return np.where(codes >> exponent + fraction & 1, -value, value)


E4M3 = small(np.arange(256), 4, 3)
E5M2 = small(np.arange(256), 5, 2, True)
E2M1 = small(np.arange(16), 2, 1)


def philox_uniform(seed, offsets):
    """Philox 4x32 of ten rounds (Salmon et al., 2011), and its first word as a uniform number."""
    c0 = offsets.astype(np.uint64)
    c1 = c2 = c3 = np.zeros_like(c0)
    k0, k1 = np.uint64(seed), np.uint64(0)
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> np.uint64(32)) ^ c1 ^ k0, b & mask, (a >> np.uint64(32)) ^ c3 ^ k1, a & mask)
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    word = c0.astype(np.uint32).view(np.int32)
    word = np.where(word < 0, -word - 1, word)
    return word.astype(np.float32) * np.float32(4.6566127342e-10)


def nearest(table, values):
    """Codes nearest to the values, the even one of two, for finite tables of magnitudes."""
    table = table[:128][np.isfinite(table[:128])]
    values = np.asarray(values, np.float64)
    magnitude = np.minimum(np.abs(values), table[-1])
    above = np.clip(np.searchsorted(table, magnitude), 1, len(table) - 1)
    low, high = magnitude - table[above - 1], table[above] - magnitude
    even = np.where((above - 1) % 2 == 0, above - 1, above)
    code = np.where(low < high, above - 1, np.where(low > high, above, even))
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
