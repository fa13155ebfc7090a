"""Writes torch.json and torch.safetensors: networks of torch as Kiln problems.

    pip install torch safetensors
    python3 tests/data/rnn/torch_cases.py

Tensors are named `case/tensor`. A case of NaN has one in an element of its input. Written with torch
2.15.0 on a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

STEPS, BATCH, INPUT, HIDDEN = 6, 3, 5, 8
LENGTHS = [4, 6, 1]
# As packed rows have them: never increasing.
SORTED = [6, 4, 1]

torch.manual_seed(3)


def case(name, cell, module, lengths=None, states=True, packed=False, nan=False):
    """The problem of a module, and its tensors."""
    directions = 2 if module.bidirectional else 1
    lstm, batch_first = cell == "lstm", module.batch_first
    shape = (BATCH, STEPS) if batch_first else (STEPS, BATCH)
    tensors = {key: value.detach() for key, value in module.named_parameters()}
    tensors["input"] = x = torch.randn(*shape, INPUT)
    if nan:
        x[2, 1, 3] = float("nan")
    count, named, given = module.num_layers * directions, [], None
    if states:
        given = h_0 = torch.randn(count, BATCH, module.proj_size or HIDDEN)
        tensors["h_0"] = h_0
        named.append("h_0")
        if lstm:
            tensors["c_0"] = c_0 = torch.randn(count, BATCH, HIDDEN)
            named.append("c_0")
            given = (h_0, c_0)
    if lengths:
        tensors["lengths"] = torch.tensor(lengths, dtype=torch.int32)
        named.append("lengths")
        x = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
    if packed:
        tensors["input"] = x.data
    with torch.no_grad():
        output, last = module(x, given)
    if packed:
        output = output.data
    elif lengths:
        output, _ = pad_packed_sequence(output, batch_first, total_length=STEPS)
    tensors["output"] = output
    tensors["h_n"] = last[0] if lstm else last
    named.append("h_n")
    if lstm:
        tensors["c_n"] = last[1]
        named.append("c_n")
    rnn = {
        "cell": cell,
        "input_size": INPUT,
        "hidden_size": HIDDEN,
        "layers": module.num_layers,
        "direction": "both" if module.bidirectional else "forward",
        "bias": "double" if module.bias else "none",
        "dtype": "f32",
        "layout": "batch_major" if batch_first else "sequence_major",
        "batch": BATCH,
        "steps": STEPS,
        "tensors": named,
    }
    if packed:
        del rnn["steps"]
        rnn |= {"layout": "packed", "rows": sum(lengths)}
    if module.proj_size:
        rnn["projection_size"] = module.proj_size
    tensors = {f"{name}/{key}": value.contiguous() for key, value in tensors.items()}
    return {"name": name, "problem": {"rnn": rnn}}, tensors


def modules():
    of = lambda module, **options: module(INPUT, HIDDEN, **options)
    yield "lstm", "lstm", of(torch.nn.LSTM), {}
    yield "lstm_stacked", "lstm", of(torch.nn.LSTM, num_layers=3), {"states": False}
    yield "lstm_both", "lstm", of(torch.nn.LSTM, num_layers=2, bidirectional=True), {}
    yield "lstm_ragged", "lstm", of(torch.nn.LSTM, bidirectional=True), {"lengths": LENGTHS}
    yield "lstm_projected", "lstm", of(torch.nn.LSTM, num_layers=2, proj_size=4), {}
    yield "gru", "gru", of(torch.nn.GRU, num_layers=2, batch_first=True), {}
    yield "gru_no_bias", "gru", of(torch.nn.GRU, bias=False, bidirectional=True), {}
    yield "tanh", "tanh", of(torch.nn.RNN, num_layers=2), {"lengths": LENGTHS}
    yield "relu", "relu", of(torch.nn.RNN, nonlinearity="relu"), {}
    packed, both = {"lengths": SORTED, "packed": True}, {"bidirectional": True}
    yield "lstm_packed", "lstm", of(torch.nn.LSTM, num_layers=2, **both), packed
    yield "gru_packed", "gru", of(torch.nn.GRU, num_layers=2, **both), packed
    yield "tanh_packed", "tanh", of(torch.nn.RNN), packed
    projected = of(torch.nn.LSTM, num_layers=2, proj_size=4, **both)
    yield "lstm_projected_packed", "lstm", projected, packed
    projected = of(torch.nn.LSTM, proj_size=4, **both)
    yield "lstm_projected_ragged", "lstm", projected, {"lengths": LENGTHS}
    relu = of(torch.nn.RNN, nonlinearity="relu", num_layers=2, **both)
    yield "relu_nan", "relu", relu, {"nan": True}
    yield "lstm_nan", "lstm", of(torch.nn.LSTM), {"nan": True, "lengths": LENGTHS}
    yield "gru_nan", "gru", of(torch.nn.GRU, **both), {"nan": True}


def main():
    cases, tensors = [], {}
    for name, cell, module, options in modules():
        made, own = case(name, cell, module, **options)
        cases.append(made)
        tensors |= own
    here = Path(__file__).parent
    save_file(tensors, here / "torch.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (here / "torch.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases of torch")


main()
