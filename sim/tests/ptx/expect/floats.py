"""Floating instructions, comparisons and conversions, as the PTX specification defines them.

A result is its bits, or `Near`: the true value and the error that the specification allows.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import integers
from formats import (
    BF16, E4M3, E5M2, F16, F32, F64, INFINITE, NOT_A_NUMBER, TF32, Number, Unknown, add, decode,
    divide, encode, flushed, multiply, number, rounded_quotient, square_root,
)

FORMATS = {
    "f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "tf32": TF32, "e4m3": E4M3, "e5m2": E5M2,
}
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
ZERO, ONE = number(0), number(1)


class Near(NamedTuple):
    value: float
    bound: str


def rounding(form):
    return next((mode for mode in ROUNDINGS if form.has(mode)), "rn")


def lower(a, b):
    """The smaller of two numbers; -0 is below +0."""
    if a.value == b.value:
        return a if a.negative else b
    return a if a.value < b.value else b


def higher(a, b):
    return lower(a.negated(), b.negated()).negated()


def extremum(form, operands):
    pick = lower if form.opcode == "min" else higher
    if form.has("xorsign"):
        sign = operands[0].negative != operands[1].negative
        operands = [Number(False, value.magnitude) for value in operands]
    result = operands[0]
    for other in operands[1:]:
        if result.nan or other.nan:
            kept = other if result.nan else result
            result = NOT_A_NUMBER if form.has("NaN") else kept
        else:
            result = pick(result, other)
    return Number(sign, result.magnitude) if form.has("xorsign") else result


def exact(form, operands, mode):
    """The result before it is rounded."""
    a, *rest = operands
    op = form.opcode
    if op in ("min", "max"):
        return extremum(form, operands)
    if op == "add":
        return add(a, rest[0], mode)
    if op == "sub":
        return add(a, rest[0].negated(), mode)
    if op == "mul":
        return multiply(a, rest[0])
    if op in ("fma", "mad"):
        return add(multiply(a, rest[0]), rest[1], mode)
    if op == "div":
        return divide(a, rest[0])
    return {
        "rcp": lambda: divide(ONE, a),
        "sqrt": lambda: square_root(a),
        "abs": lambda: Number(False, a.magnitude),
        "neg": a.negated,
        "copysign": lambda: Number(a.negative, rest[0].magnitude),
    }[op]()


def scalar(form, operands, ty):
    """The bits of an exactly rounded result."""
    kind = FORMATS[ty]
    values = [decode(bits, kind) for bits in operands]
    if form.has("ftz"):
        values = [flushed(value, kind) for value in values]
    mode = rounding(form)
    result = exact(form, values, mode)
    if form.has("sat"):
        result = saturated(result)
    if form.has("relu") and result.negative:
        result = ZERO
    bits = encode(result, kind, mode)
    return encode(flushed(decode(bits, kind), kind), kind) if form.has("ftz") else bits


def saturated(value):
    """Within 0 and 1; a NaN is zero."""
    if value.nan or value.negative or value.magnitude == 0:
        return ZERO
    return ONE if value.magnitude > 1 else value


def arithmetic(form, operands, _):
    """A pair gives the list of its halves."""
    ty = form.types[0]
    one = approximate if form.has("approx") or form.has("full") else scalar
    if ty.endswith("x2"):
        return [one(form, [bits >> at & 0xFFFF for bits in operands], ty[:-2]) for at in (0, 16)]
    return one(form, operands, ty)


BOUNDS = {
    ("div", "f32"): "2ulp",
    ("rcp", "f32"): "1ulp",
    ("sqrt", "f32"): "rel 2^-23",
    ("rsqrt", "f32"): "rel 2^-22.9",
    ("ex2", "f32"): "rel 2^-22",
    ("lg2", "f32"): "abs 2^-22",
    ("sin", "f32"): "abs 2^-20.5",
    ("cos", "f32"): "abs 2^-20.5",
    ("tanh", "f32"): "rel 2^-11",
    ("tanh", "f16"): "abs 2^-10.987",
    ("tanh", "bf16"): "abs 2^-8 bf16",
    ("ex2", "f16"): "rel 2^-9.9",
    ("ex2", "bf16"): "rel 2^-7 bf16",
}

"""What a function gives at -inf, +inf and at a zero: None where the specification has no line."""
SPECIAL = {
    "ex2": (0.0, math.inf, 1.0),
    "lg2": (math.nan, math.inf, -math.inf),
    "sin": (math.nan, math.nan, "same"),
    "cos": (math.nan, math.nan, 1.0),
    "tanh": (-1.0, 1.0, "same"),
    "rsqrt": (math.nan, 0.0, "infinite"),
}
FUNCTIONS = {
    "ex2": lambda x: 2.0**x,
    "lg2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "rsqrt": lambda x: 1 / math.sqrt(x),
}


def real(value):
    """A `Number` from a float."""
    if math.isnan(value):
        return NOT_A_NUMBER
    if math.isinf(value):
        return Number(value < 0, INFINITE)
    return number(Fraction(value), math.copysign(1, value) < 0)


def approximate(form, operands, ty):
    kind = FORMATS[ty]
    values = [decode(bits, kind) for bits in operands]
    if form.has("ftz"):
        values = [flushed(value, kind) for value in values]
    a = values[0]
    if (form.opcode, ty) not in BOUNDS:
        raise Unknown(form)
    bound = BOUNDS[form.opcode, ty]
    if form.opcode in ("div", "rcp", "sqrt"):
        result = exact(form, values, "rn")
        if form.has("ftz"):
            result = flushed(result, kind)
        if not result.finite or result.magnitude == 0:
            return encode(result, kind)
        return Near(float(result.value), bound)
    if a.nan:
        return kind.nan
    below, above, zero = SPECIAL[form.opcode]
    if a.magnitude == INFINITE:
        return encode(real(below if a.negative else above), kind)
    if a.magnitude == 0:
        result = {"same": a, "infinite": Number(a.negative, INFINITE)}.get(zero)
        return encode(result or real(zero), kind)
    if form.opcode in ("lg2", "rsqrt") and a.negative:
        return kind.nan
    result = FUNCTIONS[form.opcode](float(a.value))
    if form.opcode == "lg2" and not 0.5 < a.value < 2:
        bound = "rel 2^-22"
    if form.opcode == "ex2" and encode(real(result), kind) == kind.largest + 1:
        return kind.largest + 1
    if form.has("ftz") and flushed(real(result), kind).magnitude == 0:
        return 0
    return Near(result, bound)


def holds(form, operands, ty, unordered=False):
    """Whether a comparison holds."""
    relation = next(name for name in RELATIONS if form.has(name))
    if ty not in FORMATS:
        a, b = (integers.read(bits, ty) for bits in operands)
        return integers.RELATIONS[relation](a, b)
    kind = FORMATS[ty]
    values = [decode(bits, kind) for bits in operands]
    if form.has("ftz"):
        values = [flushed(value, kind) for value in values]
    unordered = any(value.nan for value in values)
    if relation in ("num", "nan"):
        return unordered == (relation == "nan")
    if unordered:
        return relation.endswith("u")
    return integers.RELATIONS[relation[:2]](values[0].value, values[1].value)


RELATIONS = [*integers.RELATIONS, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "u16": 0xFFFF, "s16": 0xFFFF}


def combined(form, truth, operands):
    if form.has("and"):
        return truth and operands[2]
    if form.has("or"):
        return truth or operands[2]
    return truth != bool(operands[2]) if form.has("xor") else truth


def compare(form, operands, _):
    """`setp`: one truth and its opposite, or the truths of a pair."""
    ty = form.types[-1]
    if ty.endswith("x2"):
        parts = [[bits >> at & 0xFFFF for bits in operands[:2]] for at in (0, 16)]
        return tuple(int(combined(form, holds(form, part, ty[:-2]), operands)) for part in parts)
    truth = holds(form, operands[:2], ty)
    both = (truth, not truth)
    return tuple(int(combined(form, bool(each), operands)) for each in both)


def compare_to_value(form, operands, _):
    """`set`."""
    result, ty = form.types
    truths = compare(form, operands, None)
    if ty.endswith("x2"):
        one = TRUE.get(result.removesuffix("x2"), 0xFFFF)
        return sum(one << 16 * i for i in range(2) if truths[i])
    return TRUE.get(result, 0xFFFFFFFF) if truths[0] else 0


def test(form, operands, _):
    """`testp`: zeros count as normal."""
    kind = FORMATS[form.types[0]]
    value = decode(operands[0], kind)
    subnormal = flushed(value, kind) != value
    return (int({
        "finite": value.finite,
        "infinite": not value.finite and not value.nan,
        "number": not value.nan,
        "notanumber": value.nan,
        "normal": value.finite and not subnormal,
        "subnormal": subnormal,
    }[form.modifiers[0]]),)


def select(form, operands, _):
    a, b, c = operands
    if form.opcode == "selp":
        return a if c else b
    if form.types[1] == "s32":
        return a if integers.read(c, "s32") >= 0 else b
    value = decode(c, F32)
    if form.has("ftz"):
        value = flushed(value, F32)
    return a if not value.nan and value.value >= 0 else b


def pair_bits(form, values, kind):
    """Converts, in order from the highest part."""
    result = 0
    for value in values:
        if form.has("relu") and value.negative and not value.nan:
            value = ZERO
        bits = encode(value, kind, rounding(form), form.has("satfinite"))
        result = result << kind.bits | bits
    return result


def convert(form, operands, _):
    to, source = form.types
    if to.endswith("x2"):
        if source.endswith("x2"):
            kind = FORMATS[source[:-2]]
            values = [decode(operands[0] >> at & (1 << kind.bits) - 1, kind)
                      for at in (kind.bits, 0)]
        else:
            values = [decode(bits, FORMATS[source]) for bits in operands]
        return pair_bits(form, values, FORMATS[to[:-2]])
    if to in FORMATS and source in FORMATS:
        return float_to_float(form, operands[0], FORMATS[to], FORMATS[source])
    if source in FORMATS:
        return float_to_integer(form, operands[0], to, FORMATS[source])
    value = integers.read(operands[0], source)
    if to in FORMATS:
        result = number(value)
        result = saturated(result) if form.has("sat") else result
        return encode(result, FORMATS[to], rounding(form))
    return integers.clamp(value, to) if form.has("sat") else integers.read(value, to)


def whole(value, mode):
    """Rounded to an integer, its sign kept."""
    if not value.finite:
        return value
    return Number(value.negative, Fraction(
        rounded_quotient(value.magnitude, Fraction(1), value.negative, mode)))


def integral_rounding(form):
    return next((mode[:2] for mode in ("rni", "rzi", "rmi", "rpi") if form.has(mode)), None)


def float_to_float(form, bits, to, source):
    """Only singles are flushed."""
    value = decode(bits, source)
    if form.has("ftz") and source is F32:
        value = flushed(value, source)
    if integral_rounding(form):
        value = whole(value, integral_rounding(form))
    if form.has("sat"):
        value = saturated(value)
    if form.has("relu") and value.negative and not value.nan:
        value = ZERO
    bits = encode(value, to, rounding(form))
    if form.has("ftz") and to is F32:
        bits = encode(flushed(decode(bits, to), to), to)
    # A tf32 is the upper 19 bits of a single.
    return bits << 13 if to is TF32 else bits


def float_to_integer(form, bits, to, source):
    """Clamped to the type. A NaN gives zero, or the top bit where either is 64 bits wide."""
    value = decode(bits, source)
    if form.has("ftz"):
        value = flushed(value, source)
    if value.nan:
        wide = source is F64 or to in ("u64", "s64")
        return integers.read(1 << (integers.bits_of(to) - 1), to) if wide else 0
    low, high = integers.bounds(to)
    if not value.finite:
        return low if value.negative else high
    return integers.clamp(int(whole(value, integral_rounding(form)).value), to)


OPCODES = {
    **dict.fromkeys(
        "add sub mul fma mad div min max abs neg rcp sqrt rsqrt ex2 lg2 sin cos tanh copysign"
        .split(),
        arithmetic,
    ),
    "setp": compare,
    "set": compare_to_value,
    "testp": test,
    "selp": select,
    "slct": select,
    "cvt": convert,
}
