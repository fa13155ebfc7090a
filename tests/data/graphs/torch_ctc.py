"""Writes ctc.json and ctc.safetensors: CTC losses of torch with the gradients that autograd gives,
as Kiln problems.

    pip install torch safetensors
    python3 tests/data/graphs/torch_ctc.py

Tensors are named `case/tensor`. torch computes in f64, of what f32 holds where a case says so. Its
gradient by logarithms of probabilities is that by the activations in front of a softmax. Written
with torch 2.15.0 on a CPU.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.int32: "i32"}

# Steps, classes, labels of each sequence, and its steps.
CASES = {
    "plain": (12, 6, [[1, 2, 3], [4, 5]], [12, 12], {}),
    "lengths": (15, 7, [[1, 2, 3, 4], [6], [5, 4], [3, 2, 1]], [15, 9, 3, 12], {}),
    "repeats": (14, 4, [[1, 1, 1], [2, 2, 3, 3], [3, 1, 3, 1, 3]], [14, 13, 10], {}),
    "empty": (8, 5, [[], [1, 2], [], [4]], [8, 7, 1, 5], {}),
    "exact": (5, 4, [[1, 1, 2], [3, 2, 1, 2, 1], [2, 2, 2]], [4, 5, 5], {}),
    "too_long": (6, 5, [[1, 1, 2, 2], [1, 2, 3, 4, 1, 2, 3], [4, 3]], [5, 6, 6], {}),
    "one_step": (1, 3, [[1], [], [2, 2]], [1, 1, 1], {}),
    "blank": (11, 6, [[0, 1, 5], [5, 5, 0, 4], [2]], [11, 10, 6], dict(blank=3)),
    "many": (90, 11, [[(7 * i) % 10 + 1 for i in range(40)], [9] * 35], [90, 80], {}),
    "speech": (40, 32, [[(i * i) % 31 + 1 for i in range(20)], [7, 8], [30] * 9], [40, 36, 19], {}),
    "sure": (20, 5, [[1, 2, 3], [4, 4]], [20, 16], dict(scale=8.0)),
}
INPUTS = {
    "logits": lambda x: (x, functional.log_softmax(x, 2)),
    "log_probabilities": lambda x: (logs := functional.log_softmax(x, 2).detach(), logs),
    "probabilities": lambda x: (of := functional.softmax(x, 2).detach(), of.log()),
}


def case(name, kind, precision, zero, concatenated):
    steps, classes, labels, lengths, options = CASES[name]
    blank = options.get("blank", 0)
    own = torch.randn(steps, len(labels), classes, dtype=torch.float64) * options.get("scale", 1.0)
    x, logs = INPUTS[kind](own)
    # What the operation is given.
    x = x.to(precision).double()
    logs = {"logits": lambda: x, "log_probabilities": lambda: x, "probabilities": x.log}[kind]()
    logs = logs.detach().requires_grad_()
    given = functional.log_softmax(logs, 2) if kind == "logits" else logs
    most = max(len(row) for row in labels)
    padded = torch.tensor([row + [blank] * (most - len(row)) for row in labels], dtype=torch.int32)
    joined = torch.tensor(sum(labels, []), dtype=torch.int32)
    label_lengths = torch.tensor([len(row) for row in labels], dtype=torch.int32)
    input_lengths = torch.tensor(lengths, dtype=torch.int32)
    loss = functional.ctc_loss(
        given, padded.long(), input_lengths.long(), label_lengths.long(), blank, "none", zero
    )
    (dx,) = torch.autograd.grad(loss.sum(), logs)
    tensors = {
        "x": x.to(precision),
        "labels": joined if concatenated else padded,
        "label_lengths": label_lengths,
        "input_lengths": input_lengths,
        "loss": loss.detach().to(precision),
        "dx": dx.to(precision),
    }
    operation = {
        "ctc_loss": kind,
        "label_length_max": most,
        **({"blank": blank} if blank else {}),
        **({"infinite": "zero"} if zero else {}),
        **({"math": "f64"} if precision == torch.float64 else {}),
        **{slot: slot for slot in tensors},
    }
    described = [
        {"name": slot, "dtype": NAMES[of.dtype], "dims": list(of.shape)}
        for slot, of in tensors.items()
    ]
    full = f"{name}_{kind}_{NAMES[precision]}{'_zero' if zero else ''}"
    problem = {"graph": {"tensors": described, "operations": [operation]}}
    named = {f"{full}/{slot}": of.contiguous() for slot, of in tensors.items()}
    return {"name": full, "problem": problem}, named


def main():
    torch.manual_seed(1)
    all_cases, tensors = [], {}
    for at, name in enumerate(CASES):
        for number, kind in enumerate(INPUTS):
            is_large = CASES[name][0] >= 40
            for precision in [torch.float32] if is_large else [torch.float64, torch.float32]:
                zeros = [False, True] if kind == "logits" else [bool((at + number) % 2)]
                for zero in zeros:
                    own, values = case(name, kind, precision, zero, (at + number) % 2 == 0)
                    all_cases.append(own)
                    tensors |= values
    folder = Path(__file__).parent
    text = ",\n".join(json.dumps(own) for own in all_cases)
    (folder / "ctc.json").write_text(f"[\n{text}\n]\n")
    save_file(tensors, folder / "ctc.safetensors")
    print(len(all_cases), "cases")


if __name__ == "__main__":
    main()
