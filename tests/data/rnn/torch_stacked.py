"""Writes torch_stacked.json and torch_stacked.safetensors: what torch computes, in double
precision, of stacks of recurrent layers over more steps than a chunk of layers side by side has,
and gradients.

    pip install torch safetensors numpy
    python3 tests/data/rnn/torch_stacked.py

Inputs, weights and gradients of outputs are not written: `hashed` makes them. Tensors are named
`case/tensor`, gradients behind `d_`; those of every step are written of a few steps. Between
layers elements are dropped that numpy draws: torch on a CPU has no Philox4x32-10. Written with
torch 2.15.0 on a CPU.
"""

import json
import sys
from pathlib import Path

import numpy
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
# Seed of the random numbers of dropouts.
SEED = -77

torch.set_default_dtype(torch.float64)


def values(name, shape):
    """Hashed, with the scale of tensors whose names begin so."""
    scales = (scale for kind, scale in SCALES.items() if name.startswith(kind))
    return hashed.values(name, shape, next(scales, 1.0))


def philox(key, counter):
    """Four random words for each counter (Salmon et al. 2011, "Parallel Random Numbers: As Easy as
    1, 2, 3", section 4.3), of shape [4, n]."""
    low, high = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    (k0, k1), (c0, c1, c2, c3) = key, counter.astype(numpy.uint64)
    for _ in range(10):
        a, b = c0 * numpy.uint64(0xD2511F53), c2 * numpy.uint64(0xCD9E8D57)
        c0, c2 = b >> high ^ c1 ^ numpy.uint64(k0), a >> high ^ c3 ^ numpy.uint64(k1)
        c1, c3 = b & low, a & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return numpy.stack([c0, c1, c2, c3])


def kept(at, shape, probability):
    """What the dropout behind a layer keeps of its results, numbered step by step."""
    groups = int(numpy.prod(shape)) // 4
    counter = numpy.zeros((4, groups), dtype=numpy.uint64)
    counter[0], counter[2] = at, numpy.arange(groups)
    words = philox((SEED % 2**32, SEED // 2**32 % 2**32), counter)
    ones = words.T.reshape(shape) < (1 - probability) * 2**32
    return torch.from_numpy(ones.astype(numpy.float64)) / (1 - probability)


def dropping(module, probability, x, given):
    """The layers of a module one by one, with dropouts between them."""
    parameters, own = dict(module.named_parameters()), []
    for layer in range(module.num_layers):
        if layer > 0:
            x = x * kept(layer - 1, tuple(x.shape), probability)
        names = [name for name in parameters if name.endswith(f"_l{layer}")]
        weights = {name.replace(f"_l{layer}", "_l0"): parameters[name] for name in names}
        alone = type(module)(x.shape[-1], HIDDEN)
        states = tuple(state[layer : layer + 1] for state in given)
        x, last = torch.func.functional_call(alone, weights, (x, states))
        own.append(last)
    return x, tuple(torch.cat(states) for states in zip(*own))


def case(name, cell, module, lengths=None, probability=0.0):
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
    drops = probability > 0
    output, last = dropping(module, probability, x, given) if drops else module(fed, given)
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
        "dropout": {"probability": probability, "seed": SEED},
        "shown": SHOWN,
    }
    return rnn, {f"{name}/{of}": value.detach().contiguous() for of, value in written.items()}


def modules():
    yield "lstm", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=3)
    yield "gru", "gru", torch.nn.GRU(INPUT, HIDDEN, num_layers=2)
    yield "ragged", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=2), [16, 41, 5]
    yield "tanh", "tanh", torch.nn.RNN(INPUT, HIDDEN, num_layers=2)
    yield "projected", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=2, proj_size=8)
    yield "dropped", "lstm", torch.nn.LSTM(INPUT, HIDDEN, num_layers=3), None, 0.25


def main():
    published = ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]  # Random123's kat_vectors
    drawn = philox((0, 0), numpy.zeros((4, 1)))
    assert [f"{int(word):08x}" for (word,) in drawn] == published
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
