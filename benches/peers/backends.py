"""One area of the bench `backends` in PyTorch: `backends.py AREA MATRIX,BATCH,TOKENS,THOUSANDS SECONDS DEVICE` prints a rate."""
import statistics
import sys
import time

import torch
from torch import nn

area, sizes, seconds, device = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
matrix, batch, tokens, thousands = (int(size) for size in sizes.split(","))
DIM, ROWS, WIDTH = 64, 10_000, 256


def uniform(*shape):
    return torch.rand(*shape, device=device) * 2 - 1


def network(model, optimizer):
    model = model.to(device)
    optimizer = optimizer(model.parameters())
    loss_of = nn.CrossEntropyLoss()
    x, y = torch.rand(batch, 1, 28, 28, device=device), torch.arange(batch, device=device) % 10

    def step():
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def matmul():
    a, b = uniform(matrix, matrix), uniform(matrix, matrix)
    return 2 * matrix**3 / 1e9, lambda: a @ b


def conv_forward():
    conv, images = nn.Conv2d(32, 64, 3).to(device), uniform(batch, 32, 26, 26)

    def step():
        with torch.no_grad():
            conv(images)

    return batch, step


def conv_backward():
    conv, images = nn.Conv2d(32, 64, 3).to(device), uniform(batch, 32, 26, 26).requires_grad_()
    return batch, lambda: conv(images).sum().backward()


def mlp_step():
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return batch, network(model, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9))


def cnn_step():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )
    return batch, network(model, lambda p: torch.optim.SGD(p, 0.01, momentum=0.5))


def embedding():
    table = uniform(ROWS, DIM).requires_grad_()
    ids = torch.arange(batch * tokens, device=device) * 7919 % ROWS
    return batch * tokens, lambda: (table[ids] ** 2).sum().backward()


def optimizer():
    weight = uniform(1000, thousands).requires_grad_()
    weight.grad = uniform(1000, thousands)
    adam = torch.optim.Adam([weight], 0.001)
    return thousands / 1e3, adam.step


def attention():
    block = nn.MultiheadAttention(WIDTH, 8, batch_first=True).to(device)
    x = uniform(batch, tokens, WIDTH)
    return batch * tokens, lambda: block(x, x, x, need_weights=False)[0].sum().backward()


items, step = globals()[area]()
sync = torch.cuda.synchronize if device == "cuda" else lambda: None
step()
sync()
rates, start = [], time.perf_counter()
while len(rates) < 5 or time.perf_counter() - start < seconds:
    begun = time.perf_counter()
    step()
    sync()
    rates.append(items / (time.perf_counter() - begun))
print(statistics.median(rates))
