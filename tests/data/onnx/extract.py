"""Extracts cases of ONNX's backend node tests as Kiln problems.

Development only: the tests read the two files this script writes next to itself.

    python3 -m venv /tmp/onnx && /tmp/onnx/bin/pip install onnx==1.21.0 numpy
    /tmp/onnx/bin/python tests/data/onnx/extract.py

`cases.json` holds one problem per case, and the cases that are left out, by reason.
`cases.safetensors` holds the inputs and ONNX's expected output of each, named `case/tensor`.

A case is one node on elements alone, one that reduces (`reductions.py`), one that multiplies
matrices (`products.py`), a convolution (`convolutions.py`), a pooling or a resize
(`resampling.py`), or one of attention (`attentions.py`). Its graph is the mode of that node where
there is one, and otherwise a few operations that compute the same. Scalars become tensors of one element, and operands of lower rank
get leading dimensions of 1, as NumPy broadcasts them. The forms of a case expanded into ONNX's
function bodies (`*_expanded`) repeat its data and are not looked at.

`magnitude` is the largest value that ONNX's own computation rounds on the way to a result, where
that may exceed the result: it subtracts 1 from an exponential, say. The error of what ONNX expects
is relative to the larger of the two.

Both files depend on the data in the wheel only: every run writes the same bytes.
"""

import json
import struct
from pathlib import Path

import attentions
import convolutions
import numpy as np
import onnx
import products
import reductions
import resampling
from onnx import TensorProto, helper, numpy_helper

VERSION = "1.21.0"

# Name in problem files, name in safetensors, bytes.
DTYPES = {
    TensorProto.DOUBLE: ("f64", "F64", 8),
    TensorProto.FLOAT: ("f32", "F32", 4),
    TensorProto.FLOAT16: ("f16", "F16", 2),
    TensorProto.BFLOAT16: ("bf16", "BF16", 2),
    TensorProto.INT32: ("i32", "I32", 4),
    TensorProto.INT8: ("i8", "I8", 1),
    TensorProto.UINT8: ("u8", "U8", 1),
    TensorProto.BOOL: ("bool", "BOOL", 1),
}
WIDE = ("f64", "i32")
INTEGERS = ("i32", "i8", "u8")
LARGEST = {"f64": np.finfo("f8").max, "f32": np.finfo("f4").max, "f16": np.finfo("f2").max}


class Skip(Exception):
    """A case that can not be a problem, with the reason."""


class Operand:
    """A tensor of a graph; `array` is its ONNX value where it is an input."""

    def __init__(self, name, dtype, dims, array=None):
        self.name, self.dtype, self.dims, self.array = name, dtype, list(dims), array
        # In elements, where they are not those of packed rows.
        self.strides = None


class Graph:
    """A problem under construction: every result is virtual until it is the last."""

    def __init__(self):
        self.inputs, self.results, self.operations = [], [], []
        # The slot each operation writes to, and the names of what some operation reads.
        self.slots, self.used = [], set()
        self.magnitude = None
        # Whether NumPy adds up many values on the way, as we do.
        self.reduces = False

    def op(self, mode, *operands, dtype=None, **parameters):
        """Appends an operation. Its result has the type that is computed in unless stated."""
        wide = any(operand.dtype in WIDE for operand in operands)
        math = "f64" if wide else "f32"
        dims = list(np.broadcast_shapes(*(operand.dims for operand in operands)))
        result = Operand(f"t{len(self.results)}", dtype or math, dims)
        operation = {
            "pointwise": mode,
            "inputs": [operand.name for operand in operands],
            "output": result.name,
            **parameters,
        }
        if wide:
            operation["math"] = math
        return self.add(operation, "output", operands, result)

    def add(self, operation, slot, operands, result):
        """Appends an operation that writes a result to a slot."""
        self.results.append(result)
        self.operations.append(operation)
        self.slots.append(slot)
        self.used |= {operand.name for operand in operands}
        return result

    def input(self, name, dtype, dims, array):
        """A constant of the node, which is an input of the problem."""
        known = [operand for operand in self.inputs if operand.name == name]
        self.inputs += [] if known else [Operand(name, dtype, dims, array)]
        return self.inputs[-1]

    def reduce(self, op, x, dims, dtype=None):
        """Appends a reduction, whose result is that of a computation of its own in NumPy too."""
        math = "f64" if x.dtype in WIDE else "f32"
        result = Operand(f"t{len(self.results)}", dtype or math, dims)
        operation = {"reduction": op, "x": x.name, "y": result.name}
        if math == "f64":
            operation["math"] = math
        self.reduces = True
        return self.add(operation, "y", [x], result)

    def result(self, dims, dtype="f32"):
        """The next result, of an operation whose values NumPy adds up on the way."""
        self.reduces = True
        return Operand(f"t{len(self.results)}", dtype, [int(dim) for dim in dims])

    def matmul(self, a, b, dtype="f32"):
        """Appends a product of matrices, of batches of them."""
        math = {"f32": "f32", "f64": "f64", "i8": "i32", "u8": "i32"}[a.dtype]
        batches = np.broadcast_shapes(a.dims[:-2], b.dims[:-2])
        dims = [*map(int, batches), a.dims[-2], b.dims[-1]]
        result = Operand(f"t{len(self.results)}", dtype, dims)
        self.reduces = True
        operation = {"matmul": math, "a": a.name, "b": b.name, "c": result.name}
        return self.add(operation, "c", [a, b], result)

    def norm(self, mode, phase, x, slots, **parameters):
        """Appends a normalisation of `x` with operands by slot."""
        result = Operand(f"t{len(self.results)}", x.dtype, x.dims)
        operands = {"x": x, **slots}
        names = {slot: operand.name for slot, operand in operands.items()}
        operation = {"norm_forward": mode, "phase": phase, **parameters, **names, "y": result.name}
        self.reduces = True
        return self.add(operation, "y", operands.values(), result)

    def constant(self, like, value):
        """A value everywhere, NaN elements of `like` included: a clip to the empty range."""
        clips = {"relu_lower_clip": float(value), "relu_upper_clip": float(value)}
        return self.op("relu_fwd", like, dtype=like.dtype, **clips)

    def finish(self, result, name, dtype, dims):
        """Names the last result: it is stored, in the type of the output."""
        last = self.results.pop()
        assert last is result and result.dims == list(dims), (result.dims, dims)
        self.operations[-1][self.slots[-1]] = name
        tensor = lambda operand: {
            "name": operand.name,
            "dtype": operand.dtype,
            "dims": operand.dims,
            **({"strides": operand.strides} if operand.strides else {}),
        }
        self.inputs = [operand for operand in self.inputs if operand.name in self.used]
        tensors = [tensor(operand) for operand in self.inputs]
        tensors += [tensor(operand) | {"virtual": True} for operand in self.results]
        tensors.append({"name": name, "dtype": dtype, "dims": list(dims)})
        return {"graph": {"tensors": tensors, "operations": self.operations}}


def plain(mode):
    """The rule of a node that is one mode."""
    return lambda graph, inputs, attributes: graph.op(mode, *inputs)


def folded(mode):
    """The rule of a variadic node: one operand after the other, from the left."""

    def rule(graph, inputs, attributes):
        result = inputs[0]
        for operand in inputs[1:]:
            result = graph.op(mode, result, operand, dtype=result.dtype)
        return result if inputs[1:] else graph.op("identity", result)

    return rule


def arithmetic(mode, compute):
    """The rule of a node whose integer form wraps around, where a conversion of ours saturates."""

    def rule(graph, inputs, attributes):
        if inputs[0].dtype in INTEGERS:
            exact = compute(*(operand.array.astype(object) for operand in inputs))
            limits = np.iinfo(inputs[0].array.dtype)
            if np.min(exact) < limits.min or np.max(exact) > limits.max:
                raise Skip("ONNX wraps around on overflow; conversions to integers saturate")
        return graph.op(mode, *inputs)

    return rule


def div(graph, inputs, attributes):
    # ONNX truncates integer quotients, a conversion rounds: truncate by hand, in floating point.
    quotient = graph.op("div", *inputs)
    if inputs[0].dtype not in INTEGERS:
        return quotient
    negative = graph.op("relu_fwd", quotient, dtype="bool", alpha1=-1.0)
    up, down = graph.op("ceil", quotient), graph.op("floor", quotient)
    return graph.op("binary_select", up, down, negative)


def mod(graph, inputs, attributes):
    remainder = graph.op("mod", *inputs)
    if attributes.get("fmod", 0) == 1:
        return remainder
    # The sign of the divisor: shift the remainder, which has the dividend's, and divide again.
    return graph.op("mod", graph.op("add", remainder, inputs[1]), inputs[1])


def mean(graph, inputs, attributes):
    total = folded("add")(graph, inputs, attributes)
    return graph.op("div", total, graph.constant(inputs[0], len(inputs)))


def cast(graph, inputs, attributes):
    if inputs[0].dtype not in INTEGERS and attributes["to"] in (
        TensorProto.INT32,
        TensorProto.INT8,
        TensorProto.UINT8,
    ):
        raise Skip("ONNX truncates floating point to integers; a conversion of ours rounds")
    return graph.op("identity", *inputs)


def clip(graph, inputs, attributes):
    x, low, high = (list(inputs) + [None, None])[:3]
    bound = lambda operand: float(operand.array.reshape(()))
    clips = {"relu_lower_clip": bound(low)} if low else {}
    if low and high and bound(low) <= bound(high):
        clips["relu_upper_clip"] = bound(high)
        return graph.op("relu_fwd", x, **clips)
    if low and not high:
        return graph.op("relu_fwd", x, **clips)
    if not low and not high:
        return graph.op("identity", x)
    # ReLU always has a lower clip, at most the upper one: what has not is two operations.
    raised = graph.op("max", x, low) if low else x
    return graph.op("min", raised, high)


def leaky_relu(graph, inputs, attributes):
    return graph.op("relu_fwd", *inputs, relu_lower_clip_slope=attributes.get("alpha", 0.01))


def prelu(graph, inputs, attributes):
    x, slope = inputs
    positive = graph.op("relu_fwd", x, dtype="bool")
    return graph.op("binary_select", x, graph.op("mul", x, slope), positive)


def elu(graph, inputs, attributes):
    alpha = attributes.get("alpha", 1.0)
    graph.magnitude = alpha
    return graph.op("elu_fwd", *inputs, elu_alpha=alpha)


def selu(graph, inputs, attributes):
    alpha = attributes.get("alpha", 1.67326319217681884765625)
    gamma = attributes.get("gamma", 1.05070102214813232421875)
    graph.magnitude = alpha * gamma
    scaled = graph.op("elu_fwd", *inputs, elu_alpha=alpha)
    return graph.op("identity", scaled, alpha1=gamma)


def celu(graph, inputs, attributes):
    alpha = attributes.get("alpha", 1.0)
    graph.magnitude = alpha
    if np.log2(alpha) % 1 != 0:
        raise Skip("x / alpha is exact for powers of two only")
    return graph.op("identity", graph.op("elu_fwd", *inputs, alpha1=1 / alpha), alpha1=alpha)


def gelu(graph, inputs, attributes):
    approximate = attributes.get("approximate", b"none") == b"tanh"
    graph.magnitude = largest(inputs[0])
    return graph.op("gelu_approx_tanh_fwd" if approximate else "gelu_fwd", *inputs)


def softplus(graph, inputs, attributes):
    graph.magnitude = 1.0
    return graph.op("softplus_fwd", *inputs)


def swish(graph, inputs, attributes):
    return graph.op("swish_fwd", *inputs, swish_beta=attributes.get("alpha", 1.0))


def mish(graph, inputs, attributes):
    graph.magnitude = largest(inputs[0])
    return graph.op("mul", inputs[0], graph.op("tanh_fwd", graph.op("softplus_fwd", *inputs)))


def hard_sigmoid(graph, inputs, attributes):
    alpha, beta = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    graph.magnitude = 1.0
    line = graph.op("add", inputs[0], graph.constant(inputs[0], beta), alpha1=alpha)
    return graph.op("relu_fwd", line, relu_upper_clip=1.0)


def hard_swish(graph, inputs, attributes):
    gate = hard_sigmoid(graph, inputs, {"alpha": 1 / 6, "beta": 0.5})
    graph.magnitude = largest(inputs[0])
    return graph.op("mul", inputs[0], gate)


def hyperbolic(sign):
    """The rule of cosh and sinh: half the sum or difference of two exponentials."""

    def rule(graph, inputs, attributes):
        grows, falls = graph.op("exp", *inputs), graph.op("exp", *inputs, alpha1=-1.0)
        return graph.op("add", grows, falls, alpha1=0.5, alpha2=sign * 0.5)

    return rule


def softsign(graph, inputs, attributes):
    one = graph.constant(inputs[0], 1)
    return graph.op("div", inputs[0], graph.op("add", graph.op("abs", *inputs), one))


def reciprocal(graph, inputs, attributes):
    return graph.op("div", graph.constant(inputs[0], 1), inputs[0])


def round_even(graph, inputs, attributes):
    # The conversion rounds, ties to even.
    return graph.op("identity", graph.op("identity", *inputs, dtype="i32"))


def sign(graph, inputs, attributes):
    positive = graph.op("relu_fwd", *inputs, dtype="bool")
    negative = graph.op("relu_fwd", *inputs, dtype="bool", alpha1=-1.0)
    return graph.op("sub", positive, negative)


def is_nan(graph, inputs, attributes):
    return graph.op("cmp_neq", inputs[0], inputs[0])


def is_inf(graph, inputs, attributes):
    # Beyond the largest finite value, in magnitude or on one side of it.
    x, limit = inputs[0], LARGEST[inputs[0].dtype]
    if not attributes.get("detect_positive", 1):
        return graph.op("cmp_lt", x, graph.constant(x, -limit))
    limit = graph.constant(x, limit)
    both = attributes.get("detect_negative", 1)
    return graph.op("cmp_gt", graph.op("abs", x) if both else x, limit)


def thresholded_relu(graph, inputs, attributes):
    x = inputs[0]
    above = graph.op("cmp_gt", x, graph.constant(x, attributes.get("alpha", 1.0)), dtype="bool")
    return graph.op("binary_select", x, graph.constant(x, 0), above)


def binarizer(graph, inputs, attributes):
    return graph.op("cmp_gt", inputs[0], graph.constant(inputs[0], attributes["threshold"]))


def shrink(graph, inputs, attributes):
    x, zero = inputs[0], graph.constant(inputs[0], 0)
    limit, bias = attributes.get("lambd", 0.5), graph.constant(x, attributes.get("bias", 0.0))
    below = graph.op("cmp_lt", x, graph.constant(x, -limit), dtype="bool")
    above = graph.op("cmp_gt", x, graph.constant(x, limit), dtype="bool")
    raised = graph.op("binary_select", graph.op("add", x, bias), zero, below)
    return graph.op("binary_select", graph.op("sub", x, bias), raised, above)


def where(graph, inputs, attributes):
    condition, x, y = inputs
    if not condition.dims == x.dims == y.dims:
        raise Skip("operands of a select are not broadcast")
    return graph.op("binary_select", x, y, condition)


def along_axis(inputs, attributes):
    """Lays scale and zero point along their axis of the first operand."""
    if attributes.get("block_size", 0):
        raise Skip("a scale per block of elements is not broadcast")
    if len(inputs) < 3:
        raise Skip("there is no zero point that states the type")
    x, axis = inputs[0], attributes.get("axis", 1)
    for operand in inputs[1:]:
        count = operand.array.size
        operand.dims = [count if at == axis else 1 for at in range(len(x.dims))]
        assert operand.array.size == np.prod(operand.dims)
    return inputs


def quantize(graph, inputs, attributes):
    x, scale, zero = along_axis(inputs, attributes)
    return graph.op("add", graph.op("div", x, scale, dtype="i32"), zero)


def dequantize(graph, inputs, attributes):
    x, scale, zero = along_axis(inputs, attributes)
    return graph.op("mul", graph.op("sub", x, zero), scale)


def largest(operand):
    return float(np.abs(operand.array.astype("f8")).max())


RULES = {
    "Abs": plain("abs"),
    "Add": arithmetic("add", np.add),
    "And": plain("logical_and"),
    "Binarizer": binarizer,
    "Cast": cast,
    "Ceil": plain("ceil"),
    "Celu": celu,
    "Clip": clip,
    "Cos": plain("cos"),
    "Cosh": hyperbolic(1),
    "DequantizeLinear": dequantize,
    "Div": div,
    "Elu": elu,
    "Equal": plain("cmp_eq"),
    "Erf": plain("erf"),
    "Exp": plain("exp"),
    "Floor": plain("floor"),
    "Gelu": gelu,
    "Greater": plain("cmp_gt"),
    "GreaterOrEqual": plain("cmp_ge"),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Identity": plain("identity"),
    "IsInf": is_inf,
    "IsNaN": is_nan,
    "LeakyRelu": leaky_relu,
    "Less": plain("cmp_lt"),
    "LessOrEqual": plain("cmp_le"),
    "Log": plain("log"),
    "Max": folded("max"),
    "Mean": mean,
    "Min": folded("min"),
    "Mish": mish,
    "Mod": mod,
    "Mul": arithmetic("mul", np.multiply),
    "Neg": plain("neg"),
    "Not": plain("logical_not"),
    "Or": plain("logical_or"),
    "PRelu": prelu,
    "Pow": plain("pow"),
    "QuantizeLinear": quantize,
    "Reciprocal": reciprocal,
    "Relu": plain("relu_fwd"),
    "Round": round_even,
    "Selu": selu,
    "Shrink": shrink,
    "Sigmoid": plain("sigmoid_fwd"),
    "Sign": sign,
    "Sin": plain("sin"),
    "Sinh": hyperbolic(-1),
    "Softplus": softplus,
    "Softsign": softsign,
    "Sqrt": plain("sqrt"),
    "Sub": arithmetic("sub", np.subtract),
    "Sum": folded("add"),
    "Swish": swish,
    "Tan": plain("tan"),
    "Tanh": plain("tanh_fwd"),
    "ThresholdedRelu": thresholded_relu,
    "Where": where,
    "Xor": plain("cmp_neq"),
    **convolutions.RULES,
    **products.RULES,
    **reductions.RULES,
    **resampling.RULES,
}

NO_MODE = {
    **dict.fromkeys(["Acos", "Asin", "Atan"], "no inverse trigonometric mode"),
    **dict.fromkeys(["Acosh", "Asinh", "Atanh"], "no inverse hyperbolic mode"),
    **dict.fromkeys(
        ["BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"],
        "no mode works on bits",
    ),
    "Bernoulli": "no mode draws random numbers",
    "CastLike": "repeats the data of the Cast case of the same types",
    "Dropout": "no mode draws random numbers",
    "StringConcat": "strings are no elements",
}


def typed(value):
    """The type and dimensions of a graph's input or output."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise Skip("not a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type not in DTYPES:
        name = helper.tensor_dtype_to_string(tensor.elem_type).removeprefix("TensorProto.")
        raise Skip(f"{name.lower()} is not an element type")
    return DTYPES[tensor.elem_type][0], [dim.dim_value for dim in tensor.shape.dim]


def convert(model, folder):
    """The problem of a case and its arrays by name."""
    [node], data = model.graph.node, folder / "test_data_set_0"
    read = lambda name: numpy_helper.to_array(onnx.load_tensor(data / f"{name}.pb"))
    if node.op_type == "Attention":
        return attention(node, read)
    reduces = node.op_type.startswith("Reduce")
    resizes = node.op_type in resampling.RESIZES
    operands = list(model.graph.input)[: 1 if reduces or resizes else None]
    signature = [typed(value) for value in [*operands, model.graph.output[0]]]
    rank = max(1, *(len(dims) for _, dims in signature))
    padded = [(dtype, [1] * (rank - len(dims)) + dims) for dtype, dims in signature]
    graph = Graph()
    for index, value in enumerate(operands):
        graph.inputs.append(Operand(value.name, *padded[index], read(f"input_{index}")))
    given = {operand.name: operand for operand in graph.inputs}
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    if reduces and len(model.graph.input) > 1:
        attributes["axes"] = [int(axis) for axis in read("input_1")]
    if node.op_type in resampling.RULES:
        attributes |= {"op_type": node.op_type, "output_dims": signature[-1][1]}
        attributes["name"] = folder.name.removeprefix("test_")
        slots = ["roi", "scales", "sizes"] if node.op_type == "Resize" else ["scales"]
        names = {value.name: at for at, value in enumerate(model.graph.input)}
        taken = dict(zip(slots, node.input[1:]))
        given_as = lambda slot: read(f"input_{names[taken[slot]]}") if taken.get(slot) else None
        attributes |= {slot: given_as(slot) for slot in ("scales", "sizes")} if resizes else {}
    result = RULES[node.op_type](graph, [given.get(name) for name in node.input], attributes)
    output, (dtype, dims) = model.graph.output[0], padded[-1]
    # What ONNX drops of a reduced tensor, and of a product with a vector, are dimensions of 1.
    drops = reduces or node.op_type == "MatMul"
    problem = graph.finish(result, output.name, dtype, result.dims if drops else dims)
    arrays = {operand.name: operand.array for operand in graph.inputs}
    arrays[output.name] = read("output_0")
    case = {"problem": problem}
    if graph.reduces:
        case["reduces"] = True
    if graph.magnitude is not None:
        case["magnitude"] = graph.magnitude
    return case, arrays


def attention(node, read):
    """The same of an attention node; inputs that are left out have no file."""
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    files = {slot: at for at, slot in enumerate(at for at, name in enumerate(node.input) if name)}
    load = lambda slot: read("output_0" if slot == "output" else f"input_{files[slot]}")
    problem, arrays, magnitude = attentions.convert(node, attributes, load)
    return {"problem": problem, "magnitude": magnitude, "reduces": True}, arrays


def write_safetensors(path, tensors):
    """Writes (dtype, dims, array) by name, wide elements first so that each is aligned."""
    kinds = {name: (kind, size) for name, kind, size in DTYPES.values()}
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors, key=lambda name: (-kinds[tensors[name][0]][1], name)):
        dtype, dims, array = tensors[name]
        kind, size = kinds[dtype]
        blob = np.ascontiguousarray(array).tobytes()
        assert len(blob) == size * np.prod(dims), name
        end = offset + len(blob)
        header[name] = {"dtype": kind, "shape": dims, "data_offsets": [offset, end]}
        blobs.append(blob)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_index(path, cases, skipped, version=VERSION):
    """Writes one line per case and per reason."""
    line = lambda value: json.dumps(value, separators=(", ", ": "))
    lines = lambda values: ",\n".join(f"    {value}" for value in values)
    reasons = [f"{line(reason)}: {line(skipped[reason])}" for reason in sorted(skipped)]
    path.write_text(
        "{\n"
        f'  "source": "onnx {version}, backend node test data, Apache-2.0",\n'
        f'  "count": {len(cases)},\n'
        f'  "skipped_count": {sum(len(names) for names in skipped.values())},\n'
        f'  "cases": [\n{lines(map(line, cases))}\n  ],\n'
        f'  "skipped": {{\n{lines(reasons)}\n  }}\n'
        "}\n"
    )


def main():
    assert onnx.__version__ == VERSION, f"expected onnx {VERSION}, found {onnx.__version__}"
    cases, skipped, tensors = [], {}, {}
    for folder in sorted((Path(onnx.__file__).parent / "backend/test/data/node").iterdir()):
        name = folder.name.removeprefix("test_")
        model = onnx.load(folder / "model.onnx")
        kinds = [node.op_type for node in model.graph.node]
        if name.endswith("_expanded") or len(kinds) != 1 or kinds[0] not in {*RULES, *NO_MODE, "Attention"}:
            continue
        try:
            if kinds[0] in NO_MODE:
                raise Skip(NO_MODE[kinds[0]])
            case, arrays = convert(model, folder)
        except (Skip, resampling.Inexpressible) as skip:
            skipped.setdefault(str(skip), []).append(name)
            continue
        cases.append({"name": name, **case})
        for tensor in case["problem"]["graph"]["tensors"]:
            if not tensor.get("virtual"):
                array = arrays[tensor["name"]]
                tensors[f"{name}/{tensor['name']}"] = (tensor["dtype"], tensor["dims"], array)
    here = Path(__file__).parent
    write_safetensors(here / "cases.safetensors", tensors)
    write_index(here / "cases.json", cases, skipped)
    print(f"{len(cases)} cases, {sum(map(len, skipped.values()))} skipped")


if __name__ == "__main__":
    main()
