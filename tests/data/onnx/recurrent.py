"""Extracts ONNX's node tests of RNN, LSTM and GRU as Kiln problems of the kind `rnn`.

Development only, as `extract.py`, with the same environment:

    /tmp/onnx/bin/python tests/data/onnx/recurrent.py

`recurrent.json` holds a problem per case, `recurrent.safetensors` its tensors, named `case/tensor`.
Weights W, R, B, P stand as ONNX has them; inputs, states and results as Kiln lays them out: both
directions of a vector one after the other, states of all directions first.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from extract import VERSION, write_safetensors
from onnx import helper, numpy_helper

CELLS = {"LSTM": "lstm", "GRU": "gru_reset_before", "RNN": "tanh"}
INPUTS = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
NAMES = {"X": "input", "sequence_lens": "lengths", "initial_h": "h_0", "initial_c": "c_0"}


def convert(model, folder):
    """The problem of a case and its arrays by name."""
    [node], data = model.graph.node, folder / "test_data_set_0"
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    known = {"hidden_size", "direction", "layout", "linear_before_reset", "clip"}
    assert set(attributes) <= known, attributes
    read = lambda kind, at: numpy_helper.to_array(onnx.load_tensor(data / f"{kind}_{at}.pb"))
    given = [slot for slot, name in zip(INPUTS, node.input) if name]
    arrays = {slot: read("input", at) for at, slot in enumerate(given)}
    batchwise = attributes.get("layout", 0) == 1
    direction = attributes.get("direction", b"forward").decode()
    tensors = [NAMES[slot] for slot in given if slot in NAMES and slot != "X"]
    wanted = ["output", "h_n", "c_n"][: len(node.output)]
    results = [name for name, output in zip(wanted, node.output) if output]
    made = {name: read("output", at) for at, name in enumerate(results)}
    x = arrays["X"]
    steps, batch = (x.shape[1], x.shape[0]) if batchwise else x.shape[:2]
    if "output" in made:
        y = made["output"]  # [T, D, B, H], or [B, T, D, H]
        y = y if batchwise else y.transpose(0, 2, 1, 3)
        made["output"] = y.reshape(*y.shape[:2], -1)
    for name in ("h_n", "c_n"):
        if name in made and batchwise:
            made[name] = made[name].transpose(1, 0, 2)
    cell = CELLS[node.op_type]
    if attributes.get("linear_before_reset", 0):
        cell = "gru"
    rnn = {
        "cell": cell,
        "input_size": x.shape[2],
        "hidden_size": attributes["hidden_size"],
        "direction": {"bidirectional": "both"}.get(direction, direction),
        "bias": "double" if "B" in arrays else "none",
        "dtype": "f32",
        "layout": "batch_major" if batchwise else "sequence_major",
        "batch": batch,
        "steps": steps,
        "tensors": tensors + [name for name in made if name != "output"],
    }
    rnn |= {"peephole": True} if "P" in arrays else {}
    rnn |= {"gate_clip": attributes["clip"]} if "clip" in attributes else {}
    for slot in ("initial_h", "initial_c"):
        if slot in arrays and batchwise:
            arrays[slot] = arrays[slot].transpose(1, 0, 2)
    stored = {NAMES.get(slot, slot): array for slot, array in arrays.items()}
    return {"rnn": rnn}, stored | made


def main():
    assert onnx.__version__ == VERSION, f"expected onnx {VERSION}, found {onnx.__version__}"
    cases, tensors = [], {}
    for folder in sorted((Path(onnx.__file__).parent / "backend/test/data/node").iterdir()):
        name = folder.name.removeprefix("test_")
        model = onnx.load(folder / "model.onnx")
        kinds = [node.op_type for node in model.graph.node]
        if name.endswith("_expanded") or len(kinds) != 1 or kinds[0] not in CELLS:
            continue
        problem, arrays = convert(model, folder)
        cases.append({"name": name, "problem": problem})
        for key, array in arrays.items():
            dtype = "i32" if key == "lengths" else "f32"
            array = np.ascontiguousarray(array.astype({"i32": "i4", "f32": "f4"}[dtype]))
            tensors[f"{name}/{key}"] = (dtype, list(array.shape), array)
    here = Path(__file__).parent
    write_safetensors(here / "recurrent.safetensors", tensors)
    lines = ",\n".join(f"    {json.dumps(case)}" for case in cases)
    source = f"onnx {VERSION}, backend node test data, Apache-2.0"
    text = f'{{\n  "source": "{source}",\n  "cases": [\n{lines}\n  ]\n}}\n'
    (here / "recurrent.json").write_text(text)
    print(f"{len(cases)} cases of recurrent networks")


main()
