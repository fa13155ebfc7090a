"""Binary floating formats, exactly: bits to rational numbers and back, in every rounding."""

from fractions import Fraction
from math import isqrt
from typing import NamedTuple

INFINITE = float("inf")
NAN = None


class Unknown(Exception):
    """Something that the specification leaves open, or that is not computed."""


class Format(NamedTuple):
    bits: int
    mantissa: int
    """Width of the stored significand."""
    nan: int
    """The canonical NaN."""
    infinite: bool = True
    """Whether the largest exponent is reserved for infinities and NaNs."""

    @property
    def bias(self):
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def largest(self):
        """The largest finite magnitude's bits."""
        exponents = 1 << (self.bits - self.mantissa - 1)
        return ((exponents - 1) << self.mantissa) - 1 if self.infinite else self.nan - 1


F16 = Format(16, 10, 0x7FFF)
BF16 = Format(16, 7, 0x7FFF)
F32 = Format(32, 23, 0x7FFFFFFF)
F64 = Format(64, 52, 0x7FF8000000000000)
TF32 = Format(19, 10, 0x3FFFF)
E4M3 = Format(8, 3, 0x7F, infinite=False)
E5M2 = Format(8, 2, 0x7F)


class Number(NamedTuple):
    """A sign and a magnitude: a fraction, `INFINITE` or `NAN`."""

    negative: bool
    magnitude: object

    @property
    def nan(self):
        return self.magnitude is NAN

    @property
    def finite(self):
        return not self.nan and self.magnitude != INFINITE

    @property
    def value(self):
        """The number for comparisons; it has no sign at zero."""
        return -self.magnitude if self.negative else self.magnitude

    def negated(self):
        return Number(not self.negative, self.magnitude)


def number(value, negative_zero=False):
    """The number of a fraction; a zero's sign is given."""
    return Number(value < 0 or (value == 0 and negative_zero), abs(Fraction(value)))


NOT_A_NUMBER = Number(False, NAN)


def decode(bits, form):
    negative = bool(bits >> (form.bits - 1) & 1)
    exponent = bits >> form.mantissa & ((1 << (form.bits - form.mantissa - 1)) - 1)
    fraction = bits & ((1 << form.mantissa) - 1)
    top = (1 << (form.bits - form.mantissa - 1)) - 1
    if form.infinite and exponent == top:
        return Number(negative, NAN if fraction else INFINITE)
    if not form.infinite and bits & (1 << (form.bits - 1)) - 1 == form.nan:
        return Number(negative, NAN)
    if exponent:
        fraction |= 1 << form.mantissa
    scale = max(exponent, 1) - form.bias - form.mantissa
    return Number(negative, Fraction(fraction) * Fraction(2) ** scale)


def exponent_of(magnitude):
    """The integer e with 2^e <= magnitude < 2^(e + 1)."""
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return e if Fraction(2) ** e <= magnitude else e - 1


def rounded_quotient(value, quantum, negative, mode):
    """`value / quantum` as an integer, for a magnitude."""
    whole, rest = divmod(value, quantum)
    up = {
        "rn": rest * 2 > quantum or rest * 2 == quantum and whole % 2 == 1,
        "rna": rest * 2 >= quantum,
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    return int(whole) + up


def encode(value, form, mode="rn", bounded=False):
    """The bits of a number; `bounded` puts the largest finite value for what is beyond."""
    if value.nan:
        return form.nan
    sign = int(value.negative) << (form.bits - 1)
    if value.magnitude == INFINITE:
        return sign | (form.largest if bounded else form.largest + 1)
    if value.magnitude == 0:
        return sign
    exponent = max(exponent_of(value.magnitude), 1 - form.bias)
    quantum = Fraction(2) ** (exponent - form.mantissa)
    count = rounded_quotient(value.magnitude, quantum, value.negative, mode)
    # The implied bit adds one to the exponent field, and a carry does too.
    bits = (exponent + form.bias - 1 << form.mantissa) + count
    if bits > form.largest:
        toward_zero = mode == "rz" or mode == ("rp" if value.negative else "rm")
        bits = form.largest if bounded or toward_zero else form.largest + 1
    return sign | bits


def is_subnormal(value, form):
    return value.finite and 0 < value.magnitude < Fraction(2) ** (1 - form.bias)


def flushed(value, form):
    """Subnormals to zeros of their sign."""
    return Number(value.negative, Fraction(0)) if is_subnormal(value, form) else value


def add(a, b, mode):
    if a.nan or b.nan or a.magnitude == b.magnitude == INFINITE and a.negative != b.negative:
        return NOT_A_NUMBER
    if not a.finite or not b.finite:
        return b if a.finite else a
    total = a.value + b.value
    if total == 0 and (a.negative != b.negative or a.magnitude != 0):
        return Number(mode == "rm", Fraction(0))
    return number(total, a.negative)


def multiply(a, b):
    negative = a.negative != b.negative
    if a.nan or b.nan or {a.magnitude, b.magnitude} == {0, INFINITE}:
        return NOT_A_NUMBER
    if not a.finite or not b.finite:
        return Number(negative, INFINITE)
    return Number(negative, a.magnitude * b.magnitude)


def divide(a, b):
    negative = a.negative != b.negative
    same = a.magnitude == b.magnitude and a.magnitude in (0, INFINITE)
    if a.nan or b.nan or same:
        return NOT_A_NUMBER
    if a.magnitude == INFINITE or b.magnitude == 0:
        return Number(negative, INFINITE)
    if b.magnitude == INFINITE:
        return Number(negative, Fraction(0))
    return Number(negative, a.magnitude / b.magnitude)


def square_root(a):
    """To 200 bits and a sticky one: enough for every format's rounding."""
    if a.nan or a.negative and a.magnitude != 0:
        return NOT_A_NUMBER
    if a.magnitude in (0, INFINITE):
        return a
    shift = 400 - 2 * (exponent_of(a.magnitude) // 2)
    scaled = a.magnitude * Fraction(2) ** shift
    root = isqrt(int(scaled))
    exact = Fraction(root) ** 2 == scaled
    return Number(False, Fraction(2 * root + (not exact)) / Fraction(2) ** (shift // 2 + 1))
