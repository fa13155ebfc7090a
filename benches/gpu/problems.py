"""Problem files of `kiln bench graph`, as the comparisons write them."""

import json
import pathlib
import tempfile

import peers


class Graph:
    """A problem file in the making."""

    def __init__(self):
        self.tensors, self.operations = [], []

    def tensor(self, name, dtype, dims, **more):
        self.tensors.append({"name": name, "dtype": dtype, "dims": dims, **more})
        return name

    def virtual(self, name, dims, dtype="f32"):
        return self.tensor(name, dtype, dims, virtual=True)

    def then(self, **operation):
        self.operations.append(operation)

    def pointwise(self, mode, inputs, output):
        self.then(pointwise=mode, inputs=inputs, output=output)

    def document(self):
        return {"graph": {"tensors": self.tensors, "operations": self.operations}}

    def write(self, folder, name):
        path = pathlib.Path(folder) / f"{name}.json"
        path.write_text(json.dumps(self.document()))
        return str(path)


def compare(options, name, cases, problem, calls, describe):
    """peers.compare of cases, each of which `problem` makes a graph."""
    with tempfile.TemporaryDirectory() as folder:
        files = {peers.key(case): problem(case).write(folder, at) for at, case in enumerate(cases)}

        def command(case):
            return ["graph", files[peers.key(case)]]

        return peers.compare(options, name, cases, command, calls, describe)
