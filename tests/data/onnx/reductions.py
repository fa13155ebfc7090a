"""Rules of ONNX's nodes that reduce: what `extract.py` makes of them.

Axes are an operand of integers in ONNX and the dimensions of a result here, so `extract.py` hands
them on as an attribute. What is reduced stays as a dimension of 1. Statistics that ONNX stores
beside a normalised tensor are not looked at.
"""

import numpy as np


def reduced(x, attributes):
    """The dimensions of a reduction's result."""
    rank = len(x.dims)
    axes = [axis % rank for axis in attributes.get("axes", [])]
    if not axes and attributes.get("noop_with_empty_axes", 0):
        return x.dims
    return [1 if not axes or axis in axes else dim for axis, dim in enumerate(x.dims)]


def reduce(op, before=None, after=None):
    """The rule of a reduction, of another mode's results, whose result goes through another."""

    def rule(graph, inputs, attributes):
        x = inputs[0]
        dims = reduced(x, attributes)
        value = graph.op(before, *[x] * (2 if before == "mul" else 1)) if before else x
        result = graph.reduce(op, value, dims, dtype=None if after else x.dtype)
        return graph.op(after, result) if after else result

    return rule


def along(x, attributes):
    axis = attributes.get("axis", -1) % len(x.dims)
    return [1 if at == axis else dim for at, dim in enumerate(x.dims)]


def softmax(logarithm):
    def rule(graph, inputs, attributes):
        [x] = inputs
        row = along(x, attributes)
        shifted = graph.op("sub", x, graph.reduce("max", x, row))
        exponential = graph.op("exp", shifted)
        total = graph.reduce("add", exponential, row)
        if logarithm:
            return graph.op("sub", shifted, graph.op("log", total))
        return graph.op("div", exponential, total)

    return rule


def channels(x, operand):
    """Lays one value per channel along dimension 1."""
    operand.dims = [operand.array.size if at == 1 else 1 for at in range(len(x.dims))]
    return operand


def epsilon(graph, x, attributes):
    value = np.full([1] * len(x.dims), attributes.get("epsilon", 1e-5), np.float32)
    return graph.input("epsilon", "f32", list(value.shape), value)


def norm(mode, per_channel):
    """The rule of a normalisation that computes its statistics."""

    def rule(graph, inputs, attributes):
        x, parameters = inputs[0], inputs[1:]
        if per_channel:
            parameters = [channels(x, operand) for operand in parameters]
        slots = dict(zip(["scale", "bias"], parameters))
        groups = {"groups": attributes["num_groups"]} if mode == "group" else {}
        attributes.setdefault("epsilon", 1e-5)
        slots["epsilon"] = epsilon(graph, x, attributes)
        return graph.norm(mode, "training", x, slots, **groups)

    return rule


def batch(graph, inputs, attributes):
    x = inputs[0]
    scale, bias, mean, variance = (channels(x, operand) for operand in inputs[1:])
    if attributes.get("training_mode", 0):
        slots = {"scale": scale, "bias": bias, "epsilon": epsilon(graph, x, attributes)}
        return graph.norm("batch", "training", x, slots)
    raised = graph.op("add", variance, epsilon(graph, x, attributes))
    inverse = graph.op("rsqrt", raised)
    slots = {"scale": scale, "bias": bias, "epsilon": epsilon(graph, x, attributes)}
    slots |= {"mean": mean, "inv_variance": inverse}
    return graph.norm("batch", "inference", x, slots)


RULES = {
    "BatchNormalization": batch,
    "GroupNormalization": norm("group", True),
    "InstanceNormalization": norm("instance", True),
    "LayerNormalization": norm("layer", False),
    "LogSoftmax": softmax(True),
    "RMSNormalization": norm("rms", False),
    "ReduceL1": reduce("norm1"),
    "ReduceL2": reduce("norm2"),
    "ReduceLogSum": reduce("add", after="log"),
    "ReduceLogSumExp": reduce("add", before="exp", after="log"),
    "ReduceMax": reduce("max"),
    "ReduceMean": reduce("avg"),
    "ReduceMin": reduce("min"),
    "ReduceProd": reduce("mul"),
    "ReduceSum": reduce("add"),
    "ReduceSumSquare": reduce("add", before="mul"),
    "Softmax": softmax(False),
}
