"""Extracts cases of ONNX's backend node tests that move elements as Kiln problems.

    /tmp/onnx/bin/python tests/data/onnx/views.py

Writes `views.json` and `views.safetensors` in the form of `extract.py`, which says how to install what
it needs. Both files depend on the data in the wheel only: every run writes the same bytes.
"""

from pathlib import Path

import extract
import onnx
from extract import Skip
from onnx import TensorProto, helper, numpy_helper

extract.DTYPES[TensorProto.INT64] = ("i64", "I64", 8)
RANK_MAX = 8


class Problem:
    """A problem of one node, which becomes a few operations."""

    def __init__(self):
        self.tensors, self.operations, self.made = [], [], 0

    def tensor(self, name, dtype, dims, **keys):
        if not 0 < len(dims) <= RANK_MAX:
            raise Skip(f"tensors have 1 to {RANK_MAX} dimensions")
        self.tensors.append({"name": name, "dtype": dtype, "dims": [int(dim) for dim in dims], **keys})
        return self.tensors[-1]

    def virtual(self, like, dims):
        self.made += 1
        return self.tensor(f"t{self.made}", like["dtype"], dims, virtual=True)

    def reshape(self, x, y):
        self.operations.append({"reshape": y["dims"], "x": x["name"], "y": y["name"]})
        return y

    def transpose(self, x, axes, y=None):
        y = y or self.virtual(x, [x["dims"][axis] for axis in axes])
        self.operations.append({"transpose": list(axes), "x": x["name"], "y": y["name"]})
        return y

    def slice(self, x, begin, end, stride, y):
        own = {"slice": begin, "end": end, "stride": stride}
        self.operations.append({**own, "x": x["name"], "y": y["name"]})


def concat(problem, node, xs, ys, attributes, read):
    rank = len(xs[0]["dims"])
    names = [x["name"] for x in xs]
    own = {"concatenate": attributes["axis"] % rank, "x": names, "y": ys[0]["name"]}
    problem.operations.append(own)


def cut(problem, node, xs, ys, attributes, read):
    x, rank = xs[0], len(xs[0]["dims"])
    given = {slot: read(at + 1).tolist() for at, slot in enumerate(["starts", "ends", "axes", "steps"]) if at + 1 < len(node.input) and node.input[at + 1]}
    begin, end, stride = [0] * rank, list(x["dims"]), [1] * rank
    axes = given.get("axes", range(len(given["starts"])))
    for at, axis in enumerate(axes):
        step = given.get("steps", [1] * rank)[at]
        if step < 1:
            raise Skip("slices step forward")
        first, last, _ = slice(given["starts"][at], given["ends"][at], step).indices(x["dims"][axis])
        begin[axis], end[axis], stride[axis] = first, max(first, last), step
    problem.slice(x, begin, end, stride, ys[0])


def turn(problem, node, xs, ys, attributes, read):
    axes = attributes.get("perm", range(len(xs[0]["dims"]))[::-1])
    problem.transpose(xs[0], list(axes), ys[0])


def reshape(problem, node, xs, ys, attributes, read):
    problem.reshape(xs[0], ys[0])


def split(problem, node, xs, ys, attributes, read):
    x, axis, first = xs[0], attributes.get("axis", 0), 0
    axis %= len(x["dims"])
    for y in ys:
        begin, end = [0] * len(x["dims"]), list(x["dims"])
        begin[axis], end[axis] = first, first + y["dims"][axis]
        first = end[axis]
        problem.slice(x, begin, end, [1] * len(begin), y)


def depth_to_space(problem, node, xs, ys, attributes, read):
    x, block = xs[0], attributes["blocksize"]
    n, c, h, w = x["dims"]
    if attributes.get("mode", b"DCR") == b"DCR":
        dims, axes = [n, block, block, c // block**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        dims, axes = [n, c // block**2, block, block, h, w], [0, 1, 4, 2, 5, 3]
    parts = problem.reshape(x, problem.virtual(x, dims))
    problem.reshape(problem.transpose(parts, axes), ys[0])


def space_to_depth(problem, node, xs, ys, attributes, read):
    x, block = xs[0], attributes["blocksize"]
    n, c, h, w = x["dims"]
    parts = problem.reshape(x, problem.virtual(x, [n, c, h // block, block, w // block, block]))
    problem.reshape(problem.transpose(parts, [0, 3, 5, 1, 2, 4]), ys[0])


RULES = {
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Flatten": reshape,
    "Reshape": reshape,
    "Slice": cut,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": reshape,
    "Transpose": turn,
    "Unsqueeze": reshape,
}
# Operands beyond the first are elements of the others alone.
ONE_OPERAND = set(RULES) - {"Concat"}
NOT_MOVED = {
    "Expand": "elements are not repeated",
    "Pad": "a padding is a concatenation with what it holds",
    "Tile": "elements are not repeated",
}


def convert(model, folder):
    [node], data = model.graph.node, folder / "test_data_set_0"
    read = lambda name: numpy_helper.to_array(onnx.load_tensor(data / f"{name}.pb"))
    problem = Problem()
    operands = list(model.graph.input)[: 1 if node.op_type in ONE_OPERAND else None]
    xs = [problem.tensor(value.name, *extract.typed(value)) for value in operands]
    ys = [problem.tensor(value.name, *extract.typed(value)) for value in model.graph.output]
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    RULES[node.op_type](problem, node, xs, ys, attributes, lambda at: read(f"input_{at}"))
    arrays = {x["name"]: read(f"input_{at}") for at, x in enumerate(xs)}
    arrays |= {y["name"]: read(f"output_{at}") for at, y in enumerate(ys)}
    document = {"graph": {"tensors": problem.tensors, "operations": problem.operations}}
    return {"problem": document}, arrays


def main():
    assert onnx.__version__ == extract.VERSION, f"expected onnx {extract.VERSION}"
    cases, skipped, tensors = [], {}, {}
    for folder in sorted((Path(onnx.__file__).parent / "backend/test/data/node").iterdir()):
        name = folder.name.removeprefix("test_")
        model = onnx.load(folder / "model.onnx")
        kinds = [node.op_type for node in model.graph.node]
        if name.endswith("_expanded") or len(kinds) != 1 or kinds[0] not in {*RULES, *NOT_MOVED}:
            continue
        try:
            if kinds[0] in NOT_MOVED:
                raise Skip(NOT_MOVED[kinds[0]])
            case, arrays = convert(model, folder)
        except Skip as skip:
            skipped.setdefault(str(skip), []).append(name)
            continue
        cases.append({"name": name, **case})
        for tensor in case["problem"]["graph"]["tensors"]:
            if not tensor.get("virtual"):
                array = arrays[tensor["name"]]
                tensors[f"{name}/{tensor['name']}"] = (tensor["dtype"], tensor["dims"], array)
    here = Path(__file__).parent
    extract.write_safetensors(here / "views.safetensors", tensors)
    extract.write_index(here / "views.json", cases, skipped)
    print(f"{len(cases)} cases, {sum(map(len, skipped.values()))} skipped")


if __name__ == "__main__":
    main()
