"""Extracts ONNX's node tests of Loop, Scan and If as Kiln networks with loops.

Development only: the tests read `loops.json`, which this script writes next to itself. Set up as for
`extract.py`.

A model is converted layer by layer. `Loop` is a loop with a count, a condition that is a recurrence,
and a recurrence for each carried value; `Scan` one with iterators; of version 8 it is in another
loop, over the batch. `If` is a conditional. A slice of one element at the number of the trip is an
iterator. Scalars become tensors of one element, and 64-bit counts 32-bit ones; what is stacked of
scalars keeps an axis of extent 1.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

VERSION = "1.21.0"
CONTROL = {"If", "Loop", "Scan"}
MODES = {"Add": "add", "Ceil": "ceil", "Div": "div", "Relu": "relu_fwd", "Sub": "sub"}
CASTS = {1: "f32", 6: "i32", 7: "i32", 9: "bool"}
NAMES = {"float32": "f32", "int32": "i32", "int64": "i32", "bool": "bool"}


class Skip(Exception):
    """A model that can not be a network, with the reason."""


class Network:
    def __init__(self):
        self.tensors, self.loops, self.layers, self.values = [], [], [], {}

    def tensor(self, dtype, dims, virtual=True, name=None):
        name = name or f"t{len(self.tensors)}"
        tensor = {"name": name, "dtype": dtype, "dims": list(dims) or [1]}
        self.tensors.append(tensor | ({"virtual": True} if virtual else {}))
        return tensor

    def given(self, name, array):
        tensor = self.tensor(NAMES[str(array.dtype)], array.shape, False, name)
        self.values[tensor["name"]] = [float(value) for value in array.ravel()]
        return tensor

    def pointwise(self, mode, xs, dtype, y=None):
        dims = np.broadcast_shapes(*(x["dims"] for x in xs))
        y = y or self.tensor(dtype, dims)
        names = [x["name"] for x in xs]
        self.layers.append({"pointwise": mode, "inputs": names, "output": y["name"]})
        return y

    def loop(self, name):
        self.loops.append({"name": name})
        return name

    def layer(self, kind, **keys):
        shown = lambda value: value["name"] if isinstance(value, dict) else value
        written = {key: shown(value) for key, value in keys.items()}
        self.layers.append({"layer": kind} | written)

    def iterator(self, loop, x, axis=0):
        y = self.tensor(x["dtype"], x["dims"][:axis] + x["dims"][axis + 1 :])
        self.layer("iterator", loop=loop, axis=axis, x=x, y=y)
        return y

    def recurrence(self, loop, initial):
        """The value of a trip, and what sets the next one."""
        y = self.tensor(initial["dtype"], initial["dims"])
        settled = lambda to: self.layer("recurrence", loop=loop, initial=initial, next=to, y=y)
        return y, settled

    def last(self, loop, x):
        y = self.tensor(x["dtype"], x["dims"])
        self.layer("loop_output", loop=loop, output="last_value", x=x, y=y)
        return y

    def stacked(self, loop, x, length):
        y = self.tensor(x["dtype"], [length] + x["dims"])
        self.layer("loop_output", loop=loop, output="concatenate", axis=0, length=length, x=x, y=y)
        return y


def attributes(node):
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


class Model:
    """A graph with what its names mean."""

    def __init__(self, network, known, length, trip=None):
        self.network, self.known, self.length = network, dict(known), length
        # What is known of values that are a trip's number and so much more, and of constants.
        self.trip, self.numbers, self.constants = trip, {}, {}

    def run(self, graph):
        for node in graph.node:
            self.node(node)
        return [self.known[value.name] for value in graph.output]

    def inside(self, trip=None):
        return Model(self.network, self.known, self.length, trip or self.trip)

    def node(self, node):
        given, network = attributes(node), self.network
        if node.op_type == "Constant":
            array = numpy_helper.to_array(given["value"])
            self.known[node.output[0]] = network.given(f"c{len(network.tensors)}", array)
            if array.size == 1:
                self.constants[node.output[0]] = int(array.ravel()[0])
            return
        of_trip = [self.numbers.get(name) for name in node.input]
        if node.op_type in ("Add", "Unsqueeze") and of_trip[0] is not None:
            added = self.constants[node.input[1]] if node.op_type == "Add" else 0
            self.numbers[node.output[0]] = of_trip[0] + added
            return
        if node.op_type == "Slice":
            if of_trip[1:3] != [0, 1]:
                raise Skip("slices at computed places other than a trip's number")
            element = network.iterator(self.within, self.known[node.input[0]])
            self.known[node.output[0]] = element
            return
        if node.op_type in CONTROL:
            results = getattr(self, node.op_type.lower())(node, given)
            self.known |= zip(node.output, results)
            return
        if node.op_type not in MODES and node.op_type not in ("Cast", "Identity"):
            raise Skip(f"{node.op_type} is no layer")
        xs = [self.known[name] for name in node.input]
        mode, dtype = MODES.get(node.op_type, "identity"), xs[0]["dtype"]
        if node.op_type == "Cast":
            dtype = CASTS[given["to"]]
        self.known[node.output[0]] = network.pointwise(mode, xs, dtype)

    def loop_of(self, node):
        self.network.loop(f"{node.op_type.lower()}{len(self.network.loops)}")
        return self.network.loops[-1]["name"]

    def loop(self, node, given):
        network, body = self.network, given["body"]
        loop = self.loop_of(node)
        count, condition, *carried = node.input
        names = [value.name for value in body.input]
        inner = self.inside(names[0])
        inner.numbers[names[0]] = 0
        inner.within = loop
        if count:
            network.layer("trip_limit", loop=loop, limit="count", x=self.known[count])
        truth, next_truth = network.recurrence(loop, self.known[condition])
        network.layer("trip_limit", loop=loop, limit="while", x=truth)
        inner.known[names[1]] = truth
        states = [network.recurrence(loop, self.known[name]) for name in carried]
        inner.known |= zip(names[2:], [state for state, _ in states])
        results = inner.run(body)
        next_truth(results[0])
        for (_, settle), value in zip(states, results[1:]):
            settle(value)
        lasts = [network.last(loop, state) for state, _ in states]
        rest = results[1 + len(states) :]
        return lasts + [network.stacked(loop, value, self.length) for value in rest]

    def scan(self, node, given):
        network, body = self.network, given["body"]
        operands = [self.known[name] for name in node.input if name]
        count, batched = given["num_scan_inputs"], self.version < 9
        outer = None
        if batched:
            outer = self.loop_of(node)
            batch = network.given("batch", np.array([operands[0]["dims"][0]], "i4"))
            network.layer("trip_limit", loop=outer, limit="count", x=batch)
            operands = [network.iterator(outer, x) for x in operands]
        loop = self.loop_of(node)
        steps = network.given("steps", np.array([operands[-1]["dims"][0]], "i4"))
        network.layer("trip_limit", loop=loop, limit="count", x=steps)
        inner = self.inside()
        names = [value.name for value in body.input]
        states = [network.recurrence(loop, x) for x in operands[:-count]]
        rows = [network.iterator(loop, x) for x in operands[-count:]]
        inner.known |= zip(names, [state for state, _ in states] + rows)
        results = inner.run(body)
        for (_, settle), value in zip(states, results):
            settle(value)
        length = operands[-1]["dims"][0]
        given = [network.last(loop, state) for state, _ in states]
        given += [network.stacked(loop, value, length) for value in results[len(states) :]]
        if batched:
            given = [network.stacked(outer, value, batch_of(network)) for value in given]
        return given

    def branches(self, node, given):
        condition = self.known[node.input[0]]
        then, other = (self.inside().run(given[f"{of}_branch"]) for of in ("then", "else"))
        ys = [self.network.tensor(value["dtype"], value["dims"]) for value in then]
        names = lambda values: [value["name"] for value in values]
        keys = {"then": names(then), "else": names(other), "y": names(ys)}
        self.network.layers.append({"layer": "conditional", "condition": condition["name"]} | keys)
        return ys


setattr(Model, "if", Model.branches)


def batch_of(network):
    return int(network.values["batch"][0])


def used(graph):
    for node in graph.node:
        yield node.op_type
        for item in node.attribute:
            if item.type == AttributeProto.GRAPH:
                yield from used(item.g)


def convert(model, folder):
    data = folder / "test_data_set_0"
    values = list(model.graph.input) + list(model.graph.output)
    if not all(value.type.HasField("tensor_type") for value in values):
        raise Skip("sequences and optional values are no tensors")
    if any(of.startswith("Sequence") for of in used(model.graph)):
        raise Skip("sequences and optional values are no tensors")
    if "Shape" in set(used(model.graph)):
        raise Skip("shapes are not computed")
    read = lambda name: numpy_helper.to_array(onnx.load_tensor(data / f"{name}.pb"))
    network = Network()
    known = {}
    for at, value in enumerate(model.graph.input):
        known[value.name] = network.given(value.name, read(f"input_{at}"))
    expected = {value.name: read(f"output_{at}") for at, value in enumerate(model.graph.output)}
    length = max((array.shape[0] for array in expected.values() if array.ndim), default=0)
    top = Model(network, known, length)
    Model.version = model.opset_import[0].version
    for (name, array), y in zip(expected.items(), top.run(model.graph)):
        output = network.tensor(y["dtype"], y["dims"], False, name)
        network.pointwise("identity", [y], y["dtype"], output)
        assert int(np.prod(y["dims"])) == array.size, name
    document = {"tensors": network.tensors, "loops": network.loops, "layers": network.layers}
    outputs = {name: [float(value) for value in array.ravel()] for name, array in expected.items()}
    return {"problem": {"loop": document}, "inputs": network.values, "outputs": outputs}


def main():
    assert onnx.__version__ == VERSION, onnx.__version__
    root = Path(onnx.__file__).parent / "backend/test/data/node"
    cases, skipped = [], {}
    for path in sorted(root.glob("*/model.onnx")):
        model = onnx.load(path)
        name = path.parent.name.removeprefix("test_")
        if CONTROL.isdisjoint(used(model.graph)):
            continue
        try:
            cases.append({"name": name} | convert(model, path.parent))
        except Skip as reason:
            skipped.setdefault(str(reason), []).append(name)
    lines = ",\n    ".join(json.dumps(case) for case in cases)
    reasons = (f"{json.dumps(reason)}: {json.dumps(names)}" for reason, names in skipped.items())
    left_out = ",\n    ".join(reasons)
    Path(__file__).with_name("loops.json").write_text(
        "{\n"
        f'  "source": "onnx {VERSION}, backend node test data, Apache-2.0",\n'
        f'  "cases": [\n    {lines}\n  ],\n'
        f'  "skipped": {{\n    {left_out}\n  }}\n'
        "}\n"
    )


if __name__ == "__main__":
    main()
