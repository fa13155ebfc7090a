#!/usr/bin/env python3
"""Compares recurrent networks on one GPU, in one run: Kiln and torch.nn (cuDNN).

Every network is timed from its input vectors to its output: the input product is part of it. torch
runs eager and replayed as a CUDA graph.

The first group is the target: f16, one layer, one direction, where cuDNN has persistent kernels.
The others are what it runs step by step: bf16, GRU, both directions, two layers, more than 1024
units. Stacked ones have several layers, in chunks of steps as Kiln chooses and one after the other.
All these are inference; a pass in training is a forward pass, and the gradients of the input and of
all weights.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes rnn.json, or rnn-GROUP.json, to $OUT (or ./out) after every network, and a table to
stdout.
"""

import sys

import peers
import problems

# No call of it is here; a report says whether it could have been compared.
ABSENT = {"FlashRNN": "flashrnn"}


def cases(steps):
    """Networks by group: cell, units, batch, type, layers, both directions, layers in turn; in
    training also the probability of dropping an element between layers."""
    persistent = [
        ("lstm", units, batch, "f16", 1, False, False)
        for units in (256, 512, 768, 1024)
        for batch in (8, 32, 64, 128)
    ]
    others = [
        ("lstm", 512, 32, "bf16", 1, False, False),
        ("gru", 512, 32, "f16", 1, False, False),
        ("gru", 512, 32, "bf16", 1, False, False),
        ("lstm", 512, 32, "f16", 1, True, False),
        ("lstm", 512, 32, "f16", 2, False, False),
        ("lstm", 1536, 32, "f16", 1, False, False),
        ("lstm", 2048, 32, "f16", 1, False, False),
        ("lstm", 160, 44, "f32", 1, False, False),
    ]
    sizes = [(512, 8, 2), (512, 8, 4), (512, 32, 2), (256, 8, 2), (256, 32, 4), (128, 8, 8)]
    stacked = [
        (cell, units, batch, "f16", layers, False, in_turn)
        for cell, (units, batch, layers) in [("lstm", size) for size in sizes]
        + [("gru", (512, 16, 2))]
        for in_turn in (False, True)
    ]
    training = [
        ("lstm", units, batch, "f16", 1, False, False, 0.0)
        for units in (256, 512, 1024)
        for batch in (8, 32, 128)
    ] + [
        ("gru", 512, 32, "f16", 1, False, False, 0.0),
        ("lstm", 512, 32, "bf16", 1, False, False, 0.0),
        ("lstm", 512, 32, "f16", 1, True, False, 0.0),
        ("lstm", 512, 8, "f16", 2, False, False, 0.0),
        ("lstm", 512, 8, "f16", 2, False, True, 0.0),
        ("lstm", 512, 8, "f16", 2, False, False, 0.1),
        ("lstm", 512, 32, "f16", 4, False, False, 0.1),
        ("lstm", 512, 32, "f16", 4, False, True, 0.1),
    ]
    groups = {
        "persistent": persistent,
        "others": others,
        "stacked": stacked,
        "training": training,
    }
    keys = ("cell", "hidden", "batch", "dtype", "layers", "bidirectional", "in_turn", "dropout")
    return [
        dict(zip(keys, case), group=group, steps=steps)
        for group, cases_of in groups.items()
        for case in cases_of
    ]


def kiln_command(case):
    """The arguments of `kiln bench`."""
    command = ["rnn"]
    for key in ("cell", "hidden", "batch", "steps", "layers", "dtype"):
        command.append(f"--{key}={case[key]}")
    command += [f"--chunk-steps={case['steps']}"] * case.get("in_turn", False)
    if "dropout" in case:
        command += ["--training", f"--dropout={case['dropout']}"]
    return command + ["--bidirectional"] * case["bidirectional"]


def products(case):
    """The products of all steps' inputs, one for each layer and direction."""
    gates = {"lstm": 4, "gru": 3}[case["cell"]] * case["hidden"]
    directions = 1 + case["bidirectional"]
    for layer in range(case["layers"]):
        graph = problems.Graph()
        rows, width = case["steps"] * case["batch"], case["hidden"] * (directions if layer else 1)
        graph.tensor("x", case["dtype"], [1, rows, width])
        graph.tensor("w", case["dtype"], [1, width, gates], strides=[width * gates, 1, width])
        graph.tensor("y", "f32", [1, rows, gates])
        graph.then(matmul="f32", a="x", b="w", c="y")
        for _ in range(directions):
            yield graph


def network(case, steps):
    """The network of so many steps."""
    description = {key: case[key] for key in ("cell", "dtype", "batch", "layers")}
    sizes = {"input_size": case["hidden"], "hidden_size": case["hidden"], "steps": steps}
    direction = {"direction": "both"} if case["bidirectional"] else {}
    return {"rnn": description | sizes | direction}


def torch_calls(torch, case):
    """torch.nn, eager and as a CUDA graph."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[case["dtype"]]
    of_cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case["cell"]]
    units = case["hidden"]
    trains = "dropout" in case
    # What inference mode makes has no gradients.
    with torch.inference_mode(not trains):
        network = of_cell(
            units,
            units,
            num_layers=case["layers"],
            bidirectional=case["bidirectional"],
            dropout=case.get("dropout", 0.0),
        )
        network = network.to(device="cuda", dtype=dtype).train(trains)
        x = torch.randn(case["steps"], case["batch"], units, device="cuda", dtype=dtype)
        wanted = [x.requires_grad_(), *network.parameters()] if trains else []
        dy = torch.randn_like(network(x)[0]) if trains else None

    def forward():
        return network(x)

    def training():
        with torch.inference_mode(False), torch.enable_grad():
            return torch.autograd.grad(network(x)[0], wanted, dy)

    call = training if trains else forward
    return {"eager": lambda: call, "graph": lambda: peers.captured(torch, call)}


def describe(case):
    """A line's beginning."""
    name = f"{case['cell']} {case['dtype']} H {case['hidden']} B {case['batch']}"
    name += f" L {case['layers']}" + (" both" if case["bidirectional"] else "")
    name += f" dropout {case['dropout']}" if case.get("dropout") else ""
    return name + (" in turn" if case.get("in_turn", False) else "")


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--steps", type=int, default=512, help="steps of a sequence")
    groups = ("persistent", "others", "stacked", "training")
    parser.add_argument("--group", choices=groups, help="only these networks")
    options = parser.parse_args()
    chosen = [case for case in cases(options.steps) if options.group in (None, case["group"])]
    name = "rnn" if options.group is None else f"rnn-{options.group}"
    return peers.compare(options, name, chosen, kiln_command, torch_calls, describe, ABSENT)


if __name__ == "__main__":
    sys.exit(main())
