"""Trains a character-level LSTM until it knows a sonnet by heart, and writes char_rnn.safetensors,
and the weights that it begins with as ../char_rnn_train/initial.safetensors.

    pip install torch safetensors
    python3 examples/char_rnn/train.py

The network reads a character as a vector with one 1; `head` turns its output into a number per
character. `alphabet` holds the characters' codes.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

# William Shakespeare, Sonnet 18 (1609).
TEXT = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
"""
HIDDEN = 64

torch.manual_seed(18)
alphabet = sorted(set(TEXT))
codes = torch.tensor([alphabet.index(character) for character in TEXT])
inputs = torch.nn.functional.one_hot(codes, len(alphabet)).float().unsqueeze(1)
lstm = torch.nn.LSTM(len(alphabet), HIDDEN)
head = torch.nn.Linear(HIDDEN, len(alphabet))
initial = {name: value.detach().clone() for name, value in lstm.named_parameters()}
initial |= {f"head.{name}": value.detach().clone() for name, value in head.named_parameters()}
save_file(initial, Path(__file__).parent.parent / "char_rnn_train" / "initial.safetensors")
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.01)
for epoch in range(400):
    output, _ = lstm(inputs[:-1])
    loss = torch.nn.functional.cross_entropy(head(output[:, 0]), codes[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
tensors = {name: value.detach().half() for name, value in lstm.named_parameters()}
tensors |= {f"head.{name}": value.detach().half() for name, value in head.named_parameters()}
tensors["alphabet"] = torch.tensor([ord(character) for character in alphabet], dtype=torch.int32)
save_file(tensors, Path(__file__).parent / "char_rnn.safetensors")
