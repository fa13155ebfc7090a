"""Writes lstm.safetensors: a torch LSTM with its parameters, an input, and what it gives.

    pip install torch safetensors
    python3 examples/torch_lstm/make.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

torch.manual_seed(1)
lstm = torch.nn.LSTM(input_size=8, hidden_size=16, num_layers=2, bidirectional=True)
tensors = {name: value.detach() for name, value in lstm.named_parameters()}
tensors["input"] = torch.randn(10, 4, 8)  # steps, batch, elements
tensors["h_0"], tensors["c_0"] = torch.randn(4, 4, 16), torch.randn(4, 4, 16)
with torch.no_grad():
    output, (h_n, c_n) = lstm(tensors["input"], (tensors["h_0"], tensors["c_0"]))
tensors |= {"output": output, "h_n": h_n, "c_n": c_n}
tensors = {name: value.contiguous() for name, value in tensors.items()}
save_file(tensors, Path(__file__).parent / "lstm.safetensors")
