"""Writes gradients.json and gradients.safetensors: gradients of torch's recurrent networks.

    pip install torch safetensors
    python3 tests/data/rnn/torch_gradients.py

Tensors are named `case/tensor`, gradients behind `d_`, in double precision. Inputs and gradients of
outputs beyond the length of a sequence are NaN: torch does not read them. Written with torch 2.15.0
on a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

STEPS, BATCH, INPUT, HIDDEN = 4, 3, 4, 5
LENGTHS = [3, 4, 1]
# As packed rows have them: never increasing.
SORTED = [4, 3, 1]

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)


def beyond(tensor, lengths, batch_first):
    """NaN in the steps beyond each length."""
    tensor = tensor.clone()
    for b, length in enumerate(lengths):
        (tensor[b, length:] if batch_first else tensor[length:, b]).fill_(float("nan"))
    return tensor


def case(name, cell, module, lengths=None, packed=False):
    """The network of a module, and its tensors and gradients."""
    directions = 2 if module.bidirectional else 1
    lstm, batch_first = cell == "lstm", module.batch_first
    shape = (BATCH, STEPS) if batch_first else (STEPS, BATCH)
    count = module.num_layers * directions
    x = torch.randn(*shape, INPUT, requires_grad=True)
    state = lambda size: torch.randn(count, BATCH, size, requires_grad=True)
    states = [state(module.proj_size or HIDDEN)] + ([state(HIDDEN)] if lstm else [])
    given = tuple(states) if lstm else states[0]
    fed = x
    if lengths:
        fed = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
    output, last = module(fed, given)
    rows = output.data if packed else None
    if lengths:
        output, _ = pad_packed_sequence(output, batch_first, total_length=STEPS)
    outputs = [output] + (list(last) if lstm else [last])
    weights = [torch.randn_like(of) for of in outputs]
    parameters = dict(module.named_parameters())
    wanted = [x, *states, *parameters.values()]
    gradients = torch.autograd.grad(outputs, wanted, weights)
    names = ["input", "h_0", "c_0"][: 1 + len(states)] + list(parameters)
    tensors = dict(zip(names, wanted)) | {
        f"d_{of}": value for of, value in zip(names, gradients)
    }
    tensors |= dict(zip(["output", "h_n", "c_n"], outputs))
    tensors |= dict(zip(["d_output", "d_h_n", "d_c_n"], weights))
    if lengths:
        tensors["lengths"] = torch.tensor(lengths, dtype=torch.int32)
        for of in ["input", "d_output"]:
            tensors[of] = beyond(tensors[of].detach(), lengths, batch_first)
    if packed:
        order = [(step, b) for step in range(STEPS) for b in range(BATCH) if step < lengths[b]]
        for of in ["input", "d_input", "output", "d_output"]:
            tensors[of] = torch.stack([tensors[of][step, b] for step, b in order])
        assert torch.equal(rows, tensors["output"])
    tensors = {f"{name}/{of}": value.detach().contiguous() for of, value in tensors.items()}
    network = {
        "name": name,
        "cell": cell,
        "input_size": INPUT,
        "hidden_size": HIDDEN,
        "layers": module.num_layers,
        "both": module.bidirectional,
        "bias": module.bias,
        "layout": "packed" if packed else "batch_major" if batch_first else "sequence_major",
        "lengths": bool(lengths),
        "projection_size": module.proj_size,
    }
    return network, tensors


def modules():
    of = lambda module, **options: module(INPUT, HIDDEN, **options)
    both = {"bidirectional": True}
    yield "lstm", "lstm", of(torch.nn.LSTM), {}
    yield "lstm_both", "lstm", of(torch.nn.LSTM, num_layers=2, **both), {}
    yield "lstm_ragged", "lstm", of(torch.nn.LSTM, num_layers=2, **both), {"lengths": LENGTHS}
    projected = {"num_layers": 2, "proj_size": 3, **both}
    yield "projected", "lstm", of(torch.nn.LSTM, proj_size=2), {}
    yield "projected_ragged", "lstm", of(torch.nn.LSTM, **projected), {"lengths": LENGTHS}
    packed = {"lengths": SORTED, "packed": True}
    yield "lstm_packed", "lstm", of(torch.nn.LSTM, num_layers=2, **both), packed
    yield "projected_packed", "lstm", of(torch.nn.LSTM, **projected), packed
    yield "gru", "gru", of(torch.nn.GRU, num_layers=2, batch_first=True), {"lengths": LENGTHS}
    yield "gru_no_bias", "gru", of(torch.nn.GRU, bias=False, **both), {}
    yield "gru_packed", "gru", of(torch.nn.GRU, num_layers=2), packed
    yield "tanh", "tanh", of(torch.nn.RNN, num_layers=3), {}
    yield "relu", "relu", of(torch.nn.RNN, nonlinearity="relu", **both), {"lengths": LENGTHS}


def main():
    cases, tensors = [], {}
    for name, cell, module, options in modules():
        made, own = case(name, cell, module, **options)
        cases.append(made)
        tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "gradients.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (here / "gradients.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases of torch")


if __name__ == "__main__":
    main()
