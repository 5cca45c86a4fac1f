"""Writes kernels/tests/fixtures/torch.json: what PyTorch computes for operations of random shapes, with all gradients.

Inputs are drawn by the generator of kernels/tests/kernels/random.rs, so the file holds only shapes, seeds and some of each
result's values. PyTorch computes in f64, from inputs in f32.
"""
import json
import math
import random
import sys

import numpy
import torch
from torch.nn import functional as F

KEPT = 40
MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = ((seed * 0x9E3779B97F4A7C15) & MASK) ^ 0x5851F42D4C957F2D

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return self.state >> 33

    def between(self, first, last):
        return first + self.next() % (last - first + 1)

    def values(self, *shape):
        drawn = numpy.array([self.next() for _ in range(math.prod(shape))], dtype=numpy.float32)
        values = drawn / numpy.float32(1 << 30) - numpy.float32(1)
        return torch.tensor(values.reshape(shape), dtype=torch.float64, requires_grad=True)


def kept(tensor):
    flat = tensor.detach().flatten()
    return [float(f"{value:.7g}") for value in flat[:: max(1, math.ceil(len(flat) / KEPT))].tolist()]


def linear(draw, rows, inputs, outputs):
    x, w, b = draw.values(rows, inputs), draw.values(inputs, outputs), draw.values(outputs)
    return x @ w + b, [x, w, b]


def conv2d(draw, batch, groups, group_in, group_out, height, width, kernel, stride, padding, dilation):
    x = draw.values(batch, groups * group_in, height, width)
    w = draw.values(groups * group_out, group_in, kernel, kernel)
    b = draw.values(groups * group_out)
    return F.conv2d(x, w, b, stride, padding, dilation, groups), [x, w, b]


def max_pool2d(draw, planes, height, width, kernel, stride, padding):
    x = draw.values(1, planes, height, width)
    return F.max_pool2d(x, kernel, stride, padding), [x]


def cross_entropy(draw, rows, classes):
    x = draw.values(rows, classes)
    labels = torch.tensor([draw.between(0, classes - 1) for _ in range(rows)])
    return F.cross_entropy(x, labels, reduction="none"), [x]


def layer_norm(draw, rows, width):
    x, gamma, beta = draw.values(rows, width), draw.values(width), draw.values(width)
    return F.layer_norm(x, [width], gamma, beta, 1e-5), [x, gamma, beta]


def gelu(draw, count):
    x = draw.values(count)
    return F.gelu(x * 4), [x]


def attention(draw, batch, heads, queries, keys, width, masked):
    columns = heads * width
    q, k, v = draw.values(batch, queries, columns), draw.values(batch, keys, columns), draw.values(batch, keys, columns)
    by_head = lambda x: x.reshape(batch, -1, heads, width).transpose(1, 2)
    mask = draw.values(batch, 1, queries, keys) > 0.5 if masked else torch.zeros(1, dtype=torch.bool)
    bias = torch.zeros(batch, 1, queries, keys, dtype=torch.float64).masked_fill(mask, -1e4)
    out = F.scaled_dot_product_attention(by_head(q), by_head(k), by_head(v), attn_mask=bias)
    return out.transpose(1, 2).reshape(batch, queries, columns), [q, k, v]


def shapes(pick):
    some = pick.randint
    yield from (("linear", [some(1, 70), some(1, 200), some(1, 200)]) for _ in range(5))
    yield "linear", [2500, 48, 70]
    for _ in range(8):
        kernel, dilation = some(1, 4), some(1, 2)
        size = (kernel - 1) * dilation + 1
        yield "conv2d", [some(1, 4), some(1, 3), some(1, 5), some(1, 6), some(size, 14), some(size, 14), kernel,
                         some(1, 2), some(0, 2), dilation]
    yield "conv2d", [3, 1, 16, 32, 14, 14, 3, 1, 1, 1]
    for _ in range(5):
        kernel = some(1, 4)
        yield "max_pool2d", [some(1, 6), some(kernel, 15), some(kernel, 15), kernel, some(1, 3), some(0, kernel // 2)]
    yield from (("cross_entropy", [some(1, 70), some(1, 40)]) for _ in range(5))
    yield from (("layer_norm", [some(1, 70), some(2, 200)]) for _ in range(5))
    yield "layer_norm", [1200, 96]
    yield from (("gelu", [some(1, 3000)]) for _ in range(3))
    yield from (("attention", [some(1, 3), some(1, 4), some(1, 40), some(1, 40), some(1, 20), at % 2]) for at in range(6))
    yield "attention", [2, 2, 150, 33, 8, 1]


cases = []
for seed, (name, dims) in enumerate(shapes(random.Random(1)), 100):
    output, inputs = globals()[name](Random(seed), *dims)
    # The weights of `trace` in kernels/tests/kernels/main.rs.
    weights = Random(7).values(output.numel()).detach().reshape(output.shape)
    (output * weights).sum().backward()
    results = [kept(output)] + [kept(x.grad) for x in inputs]
    cases.append({"operation": name, "seed": seed, "dims": dims, "results": results})
with open(sys.argv[1], "w") as file:
    json.dump({"torch": torch.__version__, "cases": cases}, file, separators=(",", ":"))
    file.write("\n")
