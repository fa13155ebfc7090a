#!/usr/bin/env python3
"""Translates the CUDA files of this folder with NVRTC, for both of its compilers.

    sim/tests/cuda/compile.py [stem ..]

Each `stem.cu` becomes `stem.<target>.ptx` for the targets of its first `// targets:` line, or for
sm_80 and sm_120. Up to compute_90a an older compiler translates, from compute_100 a newer one; their
texts differ, so tests run both. The library is the one that `make setup` installs, or the one that
KILN_NVRTC names. Kernels that include CUDA's headers also need the PyPI packages
nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl of the same release; CUDA_INCLUDE is their
folder.
"""

import ctypes
import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NVRTC = FOLDER.parents[2] / "third_party/nvrtc/nvidia/cu13/lib/libnvrtc.so.13"
TARGETS = ["sm_80", "sm_120"]


def check(library, status):
    if status:
        text = library.nvrtcGetErrorString(status).decode()
        raise RuntimeError(f"NVRTC failed: {text}")


def output(library, program, what):
    """The PTX or the log of a program: `what` is the function's name after `nvrtcGet`."""
    size = ctypes.c_size_t()
    check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(library, getattr(library, f"nvrtcGet{what}")(program, text))
    return text.value.decode()


def translate(library, source, target):
    options = [f"-arch={target.replace('sm', 'compute')}", "-lineinfo", "-std=c++17", "--device-int128"]
    if "CUDA_INCLUDE" in os.environ:
        root = os.environ["CUDA_INCLUDE"]
        options += [f"-I{root}", f"-I{root}/cccl"]
    array = (ctypes.c_char_p * len(options))(*map(str.encode, options))
    program = ctypes.c_void_p()
    text, name = source.read_text().encode(), source.name.encode()
    created = library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    check(library, created)
    if library.nvrtcCompileProgram(program, len(options), array):
        sys.exit(f"{source.name} for {target}:\n{output(library, program, 'ProgramLog')}")
    ptx = output(library, program, "PTX")
    check(library, library.nvrtcDestroyProgram(ctypes.byref(program)))
    # Names of files are of the folder of whoever runs this.
    return re.sub(r'(\.file\s+\d+ )".*/', r'\1"', ptx)


def main():
    path = Path(os.environ.get("KILN_NVRTC", NVRTC))
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        # NVRTC looks for it by name, which only finds what is loaded.
        ctypes.CDLL(builtins)
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    stems = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.cu"))
    for stem in stems:
        source = FOLDER / f"{stem}.cu"
        named = re.search(r"^// targets: (.*)$", source.read_text(), re.MULTILINE)
        for target in named[1].split() if named else TARGETS:
            (FOLDER / f"{stem}.{target}.ptx").write_text(translate(library, source, target))


if __name__ == "__main__":
    main()
