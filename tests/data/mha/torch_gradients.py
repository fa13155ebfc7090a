"""Writes torch.json and torch.safetensors: gradients of torch.nn.MultiheadAttention.

    pip install torch safetensors
    python3 tests/data/mha/torch_gradients.py

Problems are documents as `kiln run` reads them; tensors are named `case/tensor`, in double precision.
Keys and values beyond the length of a sequence are NaN: torch is given 0. Written with torch 2.15.0 on
a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

BATCH, QUERIES, KEYS, HEADS, SIZE = 2, 3, 4, 2, 8
DEPTH = SIZE // HEADS
NAN = float("nan")

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)


def case(name, batch_first, bias=True, sizes=(SIZE, SIZE), lengths=None, causal=False):
    """A module as a problem, and its tensors and gradients."""
    k_size, v_size = sizes
    module = torch.nn.MultiheadAttention(SIZE, HEADS, bias=bias, kdim=k_size, vdim=v_size,
                                         batch_first=batch_first)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    shape = lambda steps, size: (BATCH, steps, size) if batch_first else (steps, BATCH, size)
    q, k, v = (torch.randn(shape(*of), requires_grad=True)
               for of in ((QUERIES, SIZE), (KEYS, k_size), (KEYS, v_size)))
    length = torch.tensor(lengths or [KEYS] * BATCH)
    beyond = torch.arange(KEYS) >= length[:, None]
    high = [KEYS] * QUERIES if not causal else list(range(1, QUERIES + 1))
    unseen = torch.arange(KEYS) >= torch.tensor(high)[:, None]
    out, _ = module(q, k, v, key_padding_mask=beyond, attn_mask=unseen, need_weights=False)
    gradient = torch.randn_like(out)
    out.backward(gradient)

    def named(of):
        """Weights and biases, or their gradients, as the layer's tensors."""
        if module.in_proj_weight is not None:
            inner = of(module.in_proj_weight).chunk(3)
        else:
            parts = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
            inner = [of(part) for part in parts]
        made = {f"w_{n}": part.reshape(HEADS, DEPTH, -1) for n, part in zip("qkv", inner)}
        outer = of(module.out_proj.weight)
        made["w_o"] = outer.reshape(SIZE, HEADS, DEPTH).permute(1, 0, 2)
        if bias:
            biases = of(module.in_proj_bias).chunk(3)
            made |= {f"b_{n}": part.reshape(HEADS, DEPTH, 1) for n, part in zip("qkv", biases)}
            made["b_o"] = of(module.out_proj.bias).reshape(1, SIZE, 1)
        return made

    # Beams of one candidate: behind the first two axes.
    beam = lambda tensor: tensor.detach().unsqueeze(2)
    padding = beyond if batch_first else beyond.T
    padded = lambda tensor: tensor.detach().masked_fill(padding[:, :, None], NAN)
    tensors = {
        "queries": beam(q), "keys": beam(padded(k)), "values": beam(padded(v)),
        "output": beam(out), "output_gradient": beam(gradient),
        "query_gradients": beam(q.grad), "key_gradients": beam(k.grad),
        "value_gradients": beam(v.grad),
        "query_lengths": torch.full((BATCH, 1), QUERIES, dtype=torch.int32),
        "key_lengths": length.reshape(BATCH, 1).to(torch.int32),
        "low_window": torch.zeros(QUERIES, dtype=torch.int32),
        "high_window": torch.tensor(high, dtype=torch.int32),
    }
    tensors |= named(lambda parameter: parameter)
    gradients = named(lambda parameter: parameter.grad)
    tensors |= {f"{of}_gradient": value for of, value in gradients.items()}
    order = ["batch", "time", "beam"] if batch_first else ["time", "batch", "beam"]
    problem = {"mha": {
        "heads": HEADS, "q_size": SIZE, "k_size": k_size, "v_size": v_size, "biases": bias,
        "dtype": "f64", "batch": BATCH, "queries": QUERIES, "keys": KEYS, "layout": order,
        "backward": True,
    }}
    tensors = {f"{name}/{of}": value.detach().contiguous() for of, value in tensors.items()}
    return {"name": name, "problem": problem}, tensors


def main():
    made = [
        case("batch_first", True),
        case("time_first", False),
        case("no_bias", True, bias=False),
        case("other_sizes", False, sizes=(5, 6)),
        case("lengths", True, lengths=[4, 1]),
        case("causal_lengths", False, lengths=[2, 4], causal=True),
    ]
    here = Path(__file__).parent
    save_file({name: value for _, own in made for name, value in own.items()},
              here / "torch.safetensors")
    lines = ",\n".join(json.dumps(index) for index, _ in made)
    (here / "torch.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(made)} cases of torch")


if __name__ == "__main__":
    main()
