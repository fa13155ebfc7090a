"""Writes augru.safetensors: gradients of AUGRU cells by torch's autograd.

    pip install torch safetensors
    python3 tests/data/onednn/augru_gradients.py

oneDNN 3.2's own are not the derivatives of its forward pass. The cells are written here as its
document has them ("RNN", AUGRU and LBR AUGRU), in double precision, from the inputs of the cases in
rnn.safetensors; that the forward pass is oneDNN's is checked first. Tensors are named as there.
Written with torch 2.15.0 on a CPU.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def forward(of, is_lbr):
    """All states, from those of the case."""
    gates = of["weights_layer"][0, 0], of["weights_iter"][0, 0], of["bias"][0, 0]
    (w_u, w_r, w_o), (r_u, r_r, r_o) = [[w[:, gate] for gate in range(3)] for w in gates[:2]]
    b_u, b_r, b_o = gates[2][:3]
    h, states = of["src_iter"][0, 0], []
    for x, attention in zip(of["src_layer"], of["attention"]):
        u = torch.sigmoid(x @ w_u + h @ r_u + b_u)
        r = torch.sigmoid(x @ w_r + h @ r_r + b_r)
        if is_lbr:
            o = torch.tanh(x @ w_o + r * (h @ r_o + gates[2][3]) + b_o)
        else:
            o = torch.tanh(x @ w_o + (r * h) @ r_o + b_o)
        u = (1 - attention) * u
        h = u * h + (1 - u) * o
        states.append(h)
    return torch.stack(states), h


def main():
    here = Path(__file__).parent
    known, written = load_file(here / "rnn.safetensors"), {}
    names = sorted({name.split("/")[0] for name in known if "augru" in name})
    for name in names:
        of = {
            tensor.split("/")[1]: values.double()
            for tensor, values in known.items()
            if tensor.startswith(f"{name}/")
        }
        inputs = ["src_layer", "src_iter", "attention", "weights_layer", "weights_iter", "bias"]
        for tensor in inputs:
            of[tensor].requires_grad_()
        layer, last = forward(of, name.startswith("lbr"))
        assert (layer - of["dst_layer"]).abs().max() < 1e-6, name
        assert (last - of["dst_iter"][0, 0]).abs().max() < 1e-6, name
        given = [of["diff_dst_layer"], of["diff_dst_iter"][0, 0]]
        gradients = torch.autograd.grad([layer, last], [of[tensor] for tensor in inputs], given)
        for tensor, gradient in zip(inputs, gradients):
            apart = (gradient - of[f"diff_{tensor}"]).abs().max()
            print(f"{name}: diff_{tensor}: oneDNN's is {apart:.2g} apart")
            written[f"{name}/diff_{tensor}"] = gradient.contiguous()
    save_file(written, here / "augru.safetensors")


if __name__ == "__main__":
    main()
