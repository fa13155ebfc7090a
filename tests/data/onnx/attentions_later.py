"""Writes attentions_1_23.json and attentions_1_23.safetensors: ONNX 1.23's cases of attention that
`cases.json`, which `extract.py` writes first, has not, and those with a soft cap.

    python3 -m venv /tmp/onnx && /tmp/onnx/bin/pip install onnx==1.23.2 numpy
    /tmp/onnx/bin/python tests/data/onnx/attentions_later.py

The wheel has no data but what generates it, from one seed. Since 1.23 scores are capped before the
bias, which may be minus infinity; the files are otherwise as `extract.py` writes them.
"""

import json
from pathlib import Path

import attentions
import numpy as np
import onnx
from extract import Skip, write_index, write_safetensors
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

VERSION = "1.23.2"


def convert(case):
    """The problem of a case and its arrays by name."""
    [node] = case.model.graph.node
    [(inputs, outputs)] = case.data_sets
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    if any(array.dtype not in attentions.NAMES for array in [*inputs[:3], outputs[0]]):
        raise Skip("a type that NumPy does not have")
    given = [at for at, name in enumerate(node.input) if name]
    read = lambda slot: outputs[0] if slot == "output" else inputs[given.index(slot)]
    problem, arrays, magnitude = attentions.convert(node, attributes, read, later=True)
    return {"problem": problem, "magnitude": magnitude, "reduces": True}, arrays


def main():
    assert onnx.__version__ == VERSION, f"expected onnx {VERSION}, found {onnx.__version__}"
    np.random.seed(0)
    here = Path(__file__).parent
    known = {case["name"] for case in json.loads((here / "cases.json").read_text())["cases"]}
    cases, skipped, tensors = [], {}, {}
    found = {case.name: case for case in collect_testcases("Attention")}
    for name, case in sorted(found.items()):
        name, kinds = name.removeprefix("test_"), [node.op_type for node in case.model.graph.node]
        if name.endswith("_expanded") or kinds != ["Attention"]:
            continue
        if name in known and "softcap" not in name:
            continue
        try:
            converted, arrays = convert(case)
        except Skip as skip:
            skipped.setdefault(str(skip), []).append(name)
            continue
        cases.append({"name": name, **converted})
        for tensor in converted["problem"]["graph"]["tensors"]:
            array = arrays[tensor["name"]]
            tensors[f"{name}/{tensor['name']}"] = (tensor["dtype"], tensor["dims"], array)
    write_safetensors(here / "attentions_1_23.safetensors", tensors)
    write_index(here / "attentions_1_23.json", cases, skipped, VERSION)
    print(f"{len(cases)} cases, {sum(map(len, skipped.values()))} skipped")


if __name__ == "__main__":
    main()
