"""Writes rnn.json and rnn.safetensors: what oneDNN's RNN primitive computes on a CPU.

    python3 -m venv onednn
    onednn/bin/pip install onednn-cpu-iomp==2023.2.0 onednn-devel-cpu-iomp==2023.2.0 \\
        'intel-cmplr-lib-rt<2024' numpy safetensors
    onednn/bin/python tests/data/onednn/vectors.py

Compiles vectors.cpp with g++ and runs it. A case has sizes, and tensors named `case/tensor` in
oneDNN's plain layouts (tnc, ldnc, ldigo, ldgo, ldio); gradients begin with `diff_`. What the
library has no primitive for is left out. Written with oneDNN 3.2.0.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from safetensors.numpy import save_file

TYPES = {"f32": numpy.float32, "u8": numpy.uint8, "i8": numpy.int8}


def compiled(folder):
    """The program."""
    prefix, here = Path(sys.prefix), Path(__file__).parent
    program = Path(folder) / "vectors"
    libraries = ["-ldnnl", "-liomp5", "-lintlc"]
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-w", f"-I{prefix}/include", str(here / "vectors.cpp")]
        + ["-o", str(program), f"-L{prefix}/lib", *libraries],
        check=True,
    )
    return program, os.environ | {"LD_LIBRARY_PATH": f"{prefix}/lib", "OMP_NUM_THREADS": "1"}


def number(text):
    """A number, or the text."""
    for of in (int, float):
        try:
            return of(text)
        except ValueError:
            pass
    return text


def main():
    with tempfile.TemporaryDirectory() as folder:
        program, environment = compiled(folder)
        ran = dict(env=environment, check=True, capture_output=True, text=True)
        output = subprocess.run([program], **ran)
    cases, tensors, version = {}, {}, None
    for line in output.stdout.splitlines():
        kind, name, *rest = line.split()
        if kind == "version":
            version = name
        elif kind == "case":
            fields = (field.split("=") for field in rest)
            cases[name] = {"name": name} | {key: number(value) for key, value in fields}
        elif kind == "none":
            del cases[name]
            tensors = {key: of for key, of in tensors.items() if key.split("/")[0] != name}
        else:
            dtype, *values = rest
            colon = values.index(":")
            dims = [int(extent) for extent in values[:colon]]
            tensors[name] = numpy.array(values[colon + 1 :], dtype=TYPES[dtype]).reshape(dims)
    here = Path(__file__).parent
    save_file(tensors, here / "rnn.safetensors")
    (here / "rnn.safetensors").chmod(0o644)
    lines = ",\n".join(json.dumps(case) for case in cases.values())
    (here / "rnn.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases of oneDNN {version}")


main()
