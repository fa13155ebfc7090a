"""Writes torch_stacked.json and torch_stacked.safetensors: what torch computes, in double
precision, of stacks of recurrent layers over more steps than a chunk of layers side by side has,
and gradients.

    pip install torch safetensors numpy
    python3 tests/data/rnn/torch_stacked.py

Inputs, weights and gradients of outputs are not written: `hashed` makes them. Tensors are named
`case/tensor`, gradients behind `d_`; those of every step are written of a few steps. Written with
torch 2.15.0 on a CPU.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

sys.path.append(str(Path(__file__).parents[1]))
import hashed

STEPS, BATCH, INPUT, HIDDEN = 41, 3, 8, 16
# On both sides of the ends of chunks of 16 steps.
SHOWN = [0, 15, 16, 31, 32, 40]
# Largest magnitudes of tensors whose names begin so.
SCALES = {"weight": 0.25, "bias": 0.25, "h_0": 0.5}

torch.set_default_dtype(torch.float64)


def values(name, shape):
    """Hashed, with the scale of tensors whose names begin so."""
    scales = (scale for kind, scale in SCALES.items() if name.startswith(kind))
    return hashed.values(name, shape, next(scales, 1.0))


def case(name, cell, module, lengths=None):
    """The problem of a module, and what it computes."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(values(key, tuple(parameter.shape)))
    x = values("input", (STEPS, BATCH, INPUT)).requires_grad_()
    count, size = module.num_layers, module.proj_size or HIDDEN
    sizes = {"h_0": size} | ({"c_0": HIDDEN} if cell == "lstm" else {})
    states = {of: values(of, (count, BATCH, size)) for of, size in sizes.items()}
    states = {of: state.requires_grad_() for of, state in states.items()}
    given = tuple(states.values()) if cell == "lstm" else states["h_0"]
    fed = pack_padded_sequence(x, lengths, enforce_sorted=False) if lengths else x
    output, last = module(fed, given)
    if lengths:
        output, _ = pad_packed_sequence(output, total_length=STEPS)
    outputs = {"output": output, "h_n": last[0] if cell == "lstm" else last}
    if cell == "lstm":
        outputs["c_n"] = last[1]
    weights = [values(f"d_{of}", tuple(value.shape)) for of, value in outputs.items()]
    wanted = {"input": x} | states | parameters
    gradients = torch.autograd.grad(list(outputs.values()), list(wanted.values()), weights)
    written = outputs | {f"d_{of}": value for of, value in zip(wanted, gradients)}
    for of in ["output", "d_input"]:
        written[of] = written[of][SHOWN]
    rnn = {
        "name": name,
        "cell": cell,
        "input_size": INPUT,
        "hidden_size": HIDDEN,
        "layers": count,
        "projection_size": module.proj_size,
        "batch": BATCH,
        "steps": STEPS,
        "lengths": lengths,
        "shown": SHOWN,
    }
    return rnn, {f"{name}/{of}": value.detach().contiguous() for of, value in written.items()}


def modules():
    yield "lstm", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=3)
    yield "gru", "gru", torch.nn.GRU(INPUT, HIDDEN, num_layers=2)
    yield "ragged", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=2), [16, 41, 5]
    yield "tanh", "tanh", torch.nn.RNN(INPUT, HIDDEN, num_layers=2)
    yield "projected", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=2, proj_size=8)


def main():
    cases, tensors = [], {}
    for made in modules():
        rnn, own = case(*made)
        cases.append(rnn)
        tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "torch_stacked.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (here / "torch_stacked.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases of torch")


if __name__ == "__main__":
    main()
