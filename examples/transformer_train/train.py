"""Trains a transformer block until it knows a sonnet by heart: initial.safetensors gets the weights
that it begins with, and the loss that main.rs is to reach is printed.

    pip install torch safetensors
    python3 examples/transformer_train/train.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

TEXT = (Path(__file__).parent.parent / "training" / "sonnet.txt").read_text()
WIDTH, HEADS = 32, 4

torch.manual_seed(18)
alphabet = sorted(set(TEXT))
codes = torch.tensor([alphabet.index(character) for character in TEXT])
rows = len(codes) - 1


class Block(torch.nn.Module):
    """Pre-norm, as GPT-2 has it."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(alphabet), WIDTH)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(rows, WIDTH))
        self.norm1 = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.norm2 = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.norm3 = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, len(alphabet))

    def forward(self, codes):
        x = self.embedding(codes) + self.positions
        split = lambda of: of.view(rows, HEADS, WIDTH // HEADS).transpose(0, 1)
        q, k, v = map(split, self.qkv(self.norm1(x)).split(WIDTH, dim=1))
        o = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + self.out(o.transpose(0, 1).reshape(rows, WIDTH))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.norm3(x))


block = Block()
initial = {name: value.detach().clone() for name, value in block.named_parameters()}
save_file(initial, Path(__file__).parent / "initial.safetensors")
optimizer = torch.optim.Adam(block.parameters(), lr=0.01)
for epoch in range(1, 201):
    loss = F.cross_entropy(block(codes[:-1]), codes[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch == 1 or epoch % 25 == 0:
        print(f"epoch {epoch:3}  loss {loss.item():.4f}")
