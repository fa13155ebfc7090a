"""Integer, bit and selection instructions, as the PTX specification defines them."""


def bits_of(ty):
    return int(ty[1:])


def mask(bits):
    return (1 << bits) - 1


def signed(value, bits):
    value &= mask(bits)
    return value - (1 << bits) if value >> (bits - 1) else value


def read(value, ty):
    """The integer that a register holds as a type."""
    bits = bits_of(ty)
    return signed(value, bits) if ty[0] == "s" else value & mask(bits)


def bounds(ty):
    bits = bits_of(ty)
    return (-(1 << (bits - 1)), mask(bits - 1)) if ty[0] == "s" else (0, mask(bits))


def clamp(value, ty):
    low, high = bounds(ty)
    return max(low, min(high, value))


def quotient(a, b):
    """Division toward zero."""
    whole = abs(a) // abs(b)
    return -whole if (a < 0) != (b < 0) else whole


def arithmetic(form, operands, flags):
    """`flags["carry"]` is the condition code's carry."""
    ty, bits = form.types[0], bits_of(form.types[0])
    a, b, c = ([read(value, ty) for value in operands] + [0, 0])[:3]
    op = form.opcode
    if op == "mad" and form.has("wide"):
        return a * b + operands[2]
    if op in ("mul", "mad", "madc"):
        product = a * b
        if form.has("hi"):
            product >>= bits
        if op == "mul":
            return product
        if form.carries:
            return with_carry(form, product & mask(bits), c, flags, bits)
        return product + c
    if op in ("mul24", "mad24"):
        narrow = lambda value: signed(value, 24) if ty == "s32" else value & mask(24)
        product = narrow(a) * narrow(b)
        return (product >> 16 if form.has("hi") else product & mask(32)) + c
    if op in ("add", "addc", "sub", "subc"):
        if form.carries:
            return with_carry(form, a, b, flags, bits)
        total = a + b if op == "add" else a - b
        return clamp(total, ty) if form.has("sat") else total
    return {
        "div": lambda: quotient(a, b),
        "rem": lambda: a - b * quotient(a, b),
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "abs": lambda: abs(a),
        "neg": lambda: -a,
        "sad": lambda: c + abs(a - b),
    }[op]()


def with_carry(form, a, b, flags, bits):
    """Adds with the carry. A difference is the sum of a, the complement of b and a carry of 1 where
    nothing is borrowed."""
    subtracts = form.opcode.startswith("sub")
    carry = flags["carry"] if form.opcode in ("addc", "subc", "madc") else int(subtracts)
    a, b = a & mask(bits), (~b if subtracts else b) & mask(bits)
    total = a + b + carry
    if form.has("cc"):
        flags["carry"] = int(total > mask(bits))
    return total


def dot(form, operands, _):
    a, b, c = operands
    kinds = form.types
    width, count = (8, 4) if form.opcode == "dp4a" else (16, 2)
    first = 2 if form.has("hi") else 0
    part = lambda value, ty, bits, index: read(value >> (bits * index), ty[0] + str(bits))
    return c + sum(
        part(a, kinds[0], width, i) * part(b, kinds[1], 8, first + i) for i in range(count)
    )


def logic(form, operands, _):
    a, *rest = operands
    return {
        "and": lambda: a & rest[0],
        "or": lambda: a | rest[0],
        "xor": lambda: a ^ rest[0],
        "not": lambda: ~a,
        "cnot": lambda: int(a & mask(bits_of(form.types[0])) == 0),
    }[form.opcode]()


def shift(form, operands, _):
    """An amount beyond the width counts as the width."""
    ty = form.types[0]
    amount = min(operands[1] & mask(32), bits_of(ty))
    value = read(operands[0], ty)
    return value << amount if form.opcode == "shl" else value >> amount


def funnel(form, operands, _):
    a, b, c = (value & mask(32) for value in operands)
    amount = min(c, 32) if form.has("clamp") else c & 31
    pair = b << 32 | a
    return (pair << amount) >> 32 if form.has("l") else pair >> amount


def extract(form, operands, _):
    ty, bits = form.types[0], bits_of(form.types[0])
    a, position, length = operands[0], operands[1] & 0xFF, operands[2] & 0xFF
    top = bits - 1
    fill = 0 if ty[0] == "u" or length == 0 else a >> min(position + length - 1, top) & 1
    return sum(
        (a >> (position + i) & 1 if i < length and position + i <= top else fill) << i
        for i in range(bits)
    )


def insert(form, operands, _):
    bits = bits_of(form.types[0])
    a, b, position, length = operands[0], operands[1], operands[2] & 0xFF, operands[3] & 0xFF
    for i in range(min(length, max(0, bits - position))):
        at = position + i
        b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def measure(form, operands, _):
    ty, bits = form.types[0], bits_of(form.types[0])
    a = operands[0] & mask(bits)
    if form.opcode == "popc":
        return bin(a).count("1")
    if form.opcode == "clz":
        return bits - a.bit_length()
    if form.opcode == "brev":
        return sum((a >> i & 1) << (bits - 1 - i) for i in range(bits))
    if ty[0] == "s" and a >> (bits - 1):
        a ^= mask(bits)
    found = a.bit_length() - 1
    return bits - 1 - found if form.has("shiftamt") and found >= 0 else found


def look_up(_, operands, __):
    """`lop3`: the bits of a, b and c number the bit of the table."""
    a, b, c, table = operands
    return sum(
        (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
    )


"""The bytes that each mode of `prmt` selects for each c, the highest first."""
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


def permute(form, operands, _):
    a, b, c = operands
    pair = (b & mask(32)) << 32 | a & mask(32)
    mode = next((mode for mode in MODES if form.has(mode)), None)
    selectors = [c >> (4 * i) & 15 for i in range(4)]
    if mode:
        selectors = [int(digit) for digit in reversed(MODES[mode][c & 3])]
    result = 0
    for i, selector in enumerate(selectors):
        byte = pair >> (8 * (selector & 7)) & 0xFF
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * i)
    return result


RELATIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}

OPCODES = {
    **dict.fromkeys(
        "add addc sub subc mul mad madc mul24 mad24 div rem min max abs neg sad".split(), arithmetic
    ),
    **dict.fromkeys(["dp4a", "dp2a"], dot),
    **dict.fromkeys("and or xor not cnot".split(), logic),
    **dict.fromkeys(["shl", "shr"], shift),
    "shf": funnel,
    "bfe": extract,
    "bfi": insert,
    **dict.fromkeys("popc clz brev bfind".split(), measure),
    "lop3": look_up,
    "prmt": permute,
}
