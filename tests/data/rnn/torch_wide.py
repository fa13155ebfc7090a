"""Writes torch_wide.json and torch_wide.safetensors: what torch computes, in double precision, of
networks whose kernels have several blocks and warps.

    pip install torch safetensors numpy
    python3 tests/data/rnn/torch_wide.py

Their inputs and weights are not written: `hashed` makes them. Outputs are written in f32. Written with
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

# Largest magnitudes of tensors whose names begin so.
SCALES = {"input": 1.0, "h_0": 0.5, "c_0": 1.0, "weight": 0.125, "bias": 0.25}

torch.set_default_dtype(torch.float64)


def values(name, shape):
    """Hashed, with the scale of tensors whose names begin so."""
    scale = next(scale for kind, scale in SCALES.items() if name.startswith(kind))
    return hashed.values(name, shape, scale)


def case(name, cell, module, steps, batch, lengths=None):
    """The problem of a module, and what it computes."""
    directions = 2 if module.bidirectional else 1
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            parameter.copy_(values(key, tuple(parameter.shape)))
        x = values("input", (steps, batch, module.input_size))
        count = module.num_layers * directions
        states = {"h_0": values("h_0", (count, batch, module.proj_size or module.hidden_size))}
        if cell == "lstm":
            states["c_0"] = values("c_0", (count, batch, module.hidden_size))
        given = tuple(states.values()) if cell == "lstm" else states["h_0"]
        if lengths:
            x = pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, last = module(x, given)
    if lengths:
        output, _ = pad_packed_sequence(output, total_length=steps)
    outputs = {"output": output, "h_n": last[0] if cell == "lstm" else last}
    if cell == "lstm":
        outputs["c_n"] = last[1]
    rnn = {
        "cell": cell,
        "input_size": module.input_size,
        "hidden_size": module.hidden_size,
        "layers": module.num_layers,
        "direction": "both" if module.bidirectional else "forward",
        "bias": "double",
        "batch": batch,
        "steps": steps,
        "tensors": [*states, *(["lengths"] if lengths else []), "h_n"],
    }
    if cell == "lstm":
        rnn["tensors"].append("c_n")
    if module.proj_size:
        rnn["projection_size"] = module.proj_size
    problem = {"name": name, "lengths": lengths or [], "problem": {"rnn": rnn}}
    return problem, {f"{name}/{key}": value.float().contiguous() for key, value in outputs.items()}


def main():
    lstm, gru = torch.nn.LSTM, torch.nn.GRU
    made = [
        case("lstm_256", "lstm", lstm(24, 256), 6, 8),
        case("lstm_512_lengths", "lstm", lstm(40, 512), 4, 11, [4, 1, 3, 4, 2, 4, 1, 3, 4, 2, 3]),
        case("lstm_projected", "lstm", lstm(16, 320, proj_size=136), 4, 8),
        case("gru_256_both", "gru", gru(24, 256, num_layers=2, bidirectional=True), 4, 9),
        case("tanh_520", "tanh", torch.nn.RNN(16, 520), 5, 17),
    ]
    here = Path(__file__).parent
    save_file({key: value for _, own in made for key, value in own.items()},
              here / "torch_wide.safetensors")
    lines = ",\n".join(json.dumps(problem) for problem, _ in made)
    (here / "torch_wide.json").write_text(f"[\n{lines}\n]\n")


main()
