"""Computes what the stores of the instruction files must hold, without the simulator.

    python3 sim/tests/ptx/expect           checks every expectation it can compute
    python3 sim/tests/ptx/expect --write   writes them beside the stores

It follows straight-line code of arithmetic, logic, comparisons and conversions by the rules of the
PTX specification, in exact rational arithmetic. Files with branches, memory or warps say by hand
what they must hold; their stores are counted as not computed.
"""

import re
import sys
from pathlib import Path

import floats
import integers
from formats import Unknown

STORE = re.compile(r"^\s*st\.global\.[bufs](\d+) \[%out\+\d+\], (%\w+);")
WORDS = {**floats.FORMATS, **{k + str(n): 0 for k in "busp" for n in (8, 16, 32, 64)}}
PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")


class Form:
    """An opcode and its modifiers."""

    def __init__(self, text):
        self.opcode, *self.modifiers = text.split(".")
        self.types = [m for m in self.modifiers if m in WORDS or m in PAIRS or m == "pred"]

    def has(self, name):
        return name in self.modifiers

    @property
    def carries(self):
        return self.has("cc") or self.opcode in ("addc", "subc", "madc")


def literal(text, ty):
    if text.startswith("0f"):
        return int(text[2:], 16)
    if text.startswith("0d"):
        return int(text[2:], 16)
    try:
        return int(text, 0)
    except ValueError:
        raise Unknown(text) from None


def split(text):
    """Operands, with those in braces kept together."""
    return [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{}]+", text) if part.strip()]


class Machine:
    def __init__(self):
        self.registers = {}
        self.flags = {"carry": 0}

    def value(self, text, ty):
        if text.startswith("!"):
            return 1 - self.value(text[1:], ty)
        if text.startswith("%"):
            if self.registers.get(text) is None:
                raise Unknown(text)
            return self.registers[text]
        return literal(text, ty)

    def move(self, form, target, source):
        if not form.types:
            raise Unknown(form)
        bits = integers.bits_of(form.types[0]) if form.types[0] != "pred" else 1
        if source.startswith("{"):
            parts = [self.value(part, None) for part in split(source[1:-1])]
            width = bits // len(parts)
            whole = sum((part & integers.mask(width)) << width * i for i, part in enumerate(parts))
        elif isinstance(self.registers.get(source), list):
            self.registers.update(zip(split(target[1:-1]), self.registers[source]))
            return
        else:
            whole = self.value(source, None) & integers.mask(bits)
        if not target.startswith("{"):
            self.registers[target] = whole
            return
        targets = split(target[1:-1])
        width = bits // len(targets)
        for i, name in enumerate(targets):
            self.registers[name] = whole >> width * i & integers.mask(width)

    def step(self, form, operands):
        if form.opcode == "mov":
            return self.move(form, *operands)
        tables = (integers.OPCODES, floats.OPCODES)
        if form.opcode not in {**tables[0], **tables[1]}:
            raise Unknown(form.opcode)
        floating = any(ty in floats.FORMATS or ty in PAIRS for ty in form.types)
        chosen = tables[1] if floating or form.opcode not in tables[0] else tables[0]
        values = [self.value(text, form.types[-1]) for text in operands[1:]]
        result = chosen[form.opcode](form, values, self.flags)
        targets = operands[0].split("|")
        if isinstance(result, list) and all(isinstance(half, int) for half in result):
            result = result[0] | result[1] << 16
        if isinstance(result, (floats.Near, list)):
            self.registers[targets[0]] = result
        elif isinstance(result, tuple):
            self.registers.update(zip(targets, result))
        elif form.types[0] == "pred":
            self.registers[targets[0]] = result & 1
        else:
            # Narrow results are extended by their sign to whatever register they go to.
            self.registers[targets[0]] = result
        return None


def statements(line):
    code = line.split("//")[0]
    return [part.strip() for part in code.split(";") if part.strip()]


def run(machine, statement):
    match = re.match(r"^([a-z][\w.:]*)\s+(.*)$", statement)
    if not match or match[1].startswith(("st.", "red.")):
        return
    form, operands = Form(match[1]), split(match[2])
    try:
        machine.step(form, operands)
    except Unknown:
        for name in re.findall(r"%\w+", operands[0]):
            machine.registers[name] = None


def expectation(machine, line):
    """What follows a store, or None if it is not computed."""
    match = STORE.match(line)
    if not match:
        return None
    value = machine.registers.get(match[2])
    if value is None or isinstance(value, list):
        return None
    if isinstance(value, floats.Near):
        return f"// ~ {value.value!r} {value.bound}"
    bits = int(match[1])
    return f"// = 0x{value & integers.mask(bits):0{bits // 4}x}"


def says(line, want):
    """Whether a line already says this; a value may be written in any base."""
    have = line.split("// ")[-1]
    numbers = [re.fullmatch(r"= (\w+)", text) for text in (have, want[3:])]
    if all(numbers):
        return int(numbers[0][1], 0) == int(numbers[1][1], 0)
    return have == want[3:]


def process(path, write):
    """The number of expectations that were computed, and the lines that say another."""
    lines = path.read_text().splitlines()
    branches = any(re.match(r"\s*(@|\w+:)", line) for line in lines)
    machine, computed, wrong = Machine(), 0, []
    for index, line in enumerate(lines):
        for statement in statements(line):
            run(machine, statement)
        want = None if branches else expectation(machine, line)
        if want is None:
            continue
        computed += 1
        code = line.split("//")[0].rstrip()
        if not says(line, want):
            wrong.append(f"{path}:{index + 1}: {want}")
            lines[index] = f"{code} {want}"
    if write and wrong:
        path.write_text("\n".join(lines) + "\n")
    return computed, wrong


def main():
    write = "--write" in sys.argv
    folder = Path(__file__).resolve().parent.parent
    computed, wrong, stores = 0, [], 0
    for path in sorted(folder.glob("*/*.ptx")):
        count, lines = process(path, write)
        computed += count
        wrong += lines
        stores += len(re.findall(r"// [=~]", path.read_text()))
    if not write:
        print(*wrong, sep="\n", end="\n" * bool(wrong))
    done = "written" if write else "differ"
    print(f"{computed} of {stores} expectations computed, {len(wrong)} {done}")
    sys.exit(bool(wrong) and not write)


main()
