"""Writes cases.json: networks as Kiln problems, and what the oracle says they give.

    python3 -m venv /tmp/rnn && /tmp/rnn/bin/pip install numpy==2.3.5
    /tmp/rnn/bin/python tests/data/rnn/vectors.py

Inputs are not stored: element i of a tensor is low + (high - low) * ((i + seed) * 7919 % 251) / 250.
Every run writes the same bytes on the same machine; elsewhere the last digits of exp and tanh may
differ.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
from oracle import GATES, Network, pack, unpack

T, B, I, H, O = 4, 3, 2, 3, 2
# Of networks whose units are shared by blocks: a multiple of 8 and one more.
WIDE, WIDE_O = 17, 9
LENGTHS = [4, 2, 0]


class Inputs:
    """The inputs of a case by torch's names, and how to make them again."""

    def __init__(self):
        self.recipes, self.arrays = {}, {}

    def make(self, name, dims, low=-1.0, high=1.0):
        seed = 37 * len(self.recipes)
        index = np.arange(int(np.prod(dims)))
        values = low + (high - low) * (((index + seed) * 7919 % 251) / 250)
        self.recipes[name] = {"dims": list(dims), "seed": seed, "low": low, "high": high}
        self.arrays[name] = values.reshape(dims)
        return self.arrays[name]


def parameters(inputs, rnn, cell, peephole):
    """The parameters of every layer and direction."""
    hidden, projected = rnn["hidden_size"], "projection_size" in rnn
    gates, state = GATES[cell] * hidden, rnn.get("projection_size", hidden)
    directions = 2 if rnn["direction"] == "both" else 1
    wide = directions if rnn["stacking"] == "joined" else 1
    bias = rnn["bias"]
    layers = []
    for layer in range(rnn["layers"]):
        row = []
        for direction in range(directions):
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            columns = wide * state if layer else rnn["input_size"]
            p = {}
            if layer or rnn["input_mode"] == "linear":
                p["W"] = inputs.make("weight_ih" + suffix, [gates, columns])
            p["R"] = inputs.make("weight_hh" + suffix, [gates, state])
            if projected:
                p["proj"] = inputs.make("weight_hr" + suffix, [state, hidden])
            if peephole:
                p["P"] = inputs.make("parameters" + suffix, [3, hidden])
            if bias in ("single_input", "double"):
                p["bW"] = inputs.make("bias_ih" + suffix, [gates])
            if bias in ("single_recurrent", "double"):
                p["bR"] = inputs.make("bias_hh" + suffix, [gates])
            row.append(p)
        layers.append(row)
    return layers


def case(name, cell, layout="sequence_major", lengths=None, states=True, reset=False, history=False,
         peephole=False, clip=None, gate_clip=None, fill=0.0, **options):
    """A case; `clip` is (min, max, point)."""
    rnn = {"cell": cell, "input_size": I, "hidden_size": H, "layers": 1, "direction": "forward",
           "join": "concat", "stacking": "joined", "bias": "double", "input_mode": "linear",
           "dtype": "f64", "layout": layout, **options}
    inputs, lstm = Inputs(), cell == "lstm"
    params = parameters(inputs, rnn, cell, peephole)
    state = rnn.get("projection_size", rnn["hidden_size"])
    count = len(params) * len(params[0])
    packed = layout == "packed"
    held = np.array(LENGTHS if lengths is None else lengths)
    shape = {"sequence_major": [T, B], "batch_major": [B, T], "packed": [int(held.sum())]}[layout]
    dense = lambda rows: unpack(rows.reshape(-1, rows.shape[-1]), T, held, layout)
    x = dense(inputs.make("input", [*shape, rnn["input_size"]]))
    given, named = {}, []
    if states:
        given["h_0"] = inputs.make("h_0", [count, B, state])
        named += ["h_0", "h_n"]
        if lstm:
            given["c_0"] = inputs.make("c_0", [count, B, rnn["hidden_size"]])
            named += ["c_0", "c_n"]
    if lengths is not None or packed:
        named.append("lengths")
        given["lengths"] = held
    if "au" in cell:
        given["attention"] = dense(inputs.make("row_inputs", [*shape, 1], low=0.0))[:, :, 0]
    if reset:
        named.append("reset")
        given["reset"] = dense(inputs.make("reset", [*shape, 1]))[:, :, 0] > 0.6
    if history:
        named.append("history")
    steps = {"rows": int(held.sum())} if packed else {"steps": T}
    rnn |= {"batch": B, **steps, "tensors": named}
    rnn |= {"peephole": True} if peephole else {}
    rnn |= {"fill": fill} if fill else {}
    rnn |= {"gate_clip": gate_clip} if gate_clip else {}
    if clip:
        rnn["cell_clip"] = dict(zip(("min", "max", "point"), clip))
    network = Network(cell, params, rnn["direction"], rnn["join"], rnn["stacking"], rnn["bias"],
                      rnn["input_mode"], clip and clip[:2], clip[2] if clip else "read", gate_clip,
                      fill)
    made = network.forward(x, **given)
    lay = lambda dense: pack(dense, held, layout, fill)
    outputs = {"output": lay(made["output"])}
    outputs |= {key: made[key] for key in ("h_n", "c_n") if key in named}
    if history:
        outputs["history"] = np.stack([lay(states) for states in made["history"]])
    return {
        "name": name,
        "problem": {"rnn": rnn},
        "inputs": inputs.recipes,
        "lengths": held.tolist(),
        "outputs": {key: value.reshape(-1).tolist() for key, value in outputs.items()},
    }


VARIANTS = {
    **{cell: {"cell": cell} for cell in GATES},
    "lstm_peephole": {"cell": "lstm", "peephole": True},
    "lstm_projected": {"cell": "lstm", "projection_size": O},
    "lstm_both": {"cell": "lstm", "peephole": True, "projection_size": O},
}
WAYS = {
    "forward": {},
    "reverse": {"direction": "reverse"},
    "joined": {"direction": "both"},
    "separate": {"direction": "both", "stacking": "separate"},
    "summed": {"direction": "both", "stacking": "separate", "join": "sum"},
}
LAYOUTS = ["sequence_major", "batch_major", "packed"]
BIASES = ["none", "single_input", "single_recurrent"]


def cases():
    for (variant, cell), (way, options) in product(VARIANTS.items(), WAYS.items()):
        yield case(f"{variant}_{way}", layers=2, lengths=LENGTHS, **cell, **options)
    for cell, bias in product(("tanh", "lstm", "gru", "gru_reset_before"), BIASES):
        yield case(f"{cell}_bias_{bias}", cell, bias=bias, states=False)
    for cell in GATES:
        yield case(f"{cell}_skip", cell, input_mode="skip", input_size=H, layers=2)
    for cell, layout in product(("lstm", "augru"), LAYOUTS):
        lengths = LENGTHS if layout != "packed" else None
        fill = 0.0 if layout == "packed" else -0.5
        history = cell == "lstm"
        yield case(f"{cell}_{layout}", cell, layout, lengths, direction="both", fill=fill,
                   history=history)
        yield case(f"{cell}_{layout}_reset", cell, layout, lengths, reset=True, direction="both",
                   history=history)
    for point, peephole in product(("read", "stored"), (False, True)):
        yield case(f"lstm_clip_{point}" + ("_peephole" if peephole else ""), "lstm",
                   clip=(-0.25, 0.125, point), peephole=peephole, history=True)
    for cell in GATES:
        yield case(f"{cell}_gate_clip", cell, gate_clip=0.25)
    yield case("gru_summed_one_layer", "gru", direction="both", join="sum")
    for at, (variant, cell) in enumerate(VARIANTS.items()):
        cell = cell | ({"projection_size": WIDE_O} if "projection_size" in cell else {})
        layout = LAYOUTS[at % 3]
        direction = ("both", "forward", "reverse", "forward")[at % 4]
        yield case(f"{variant}_wide", layout=layout, hidden_size=WIDE, direction=direction,
                   lengths=LENGTHS if layout != "packed" else None, reset=at % 2 == 0, **cell)


def main():
    made = list(cases())
    lines = ",\n".join(json.dumps(case) for case in made)
    (Path(__file__).parent / "cases.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(made)} cases")


main()
