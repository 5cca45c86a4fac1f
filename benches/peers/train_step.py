"""Training steps per second of the zoo's networks in PyTorch: `train_step.py MODEL SECONDS THREADS` prints samples/s."""
import statistics
import sys
import time

import torch
from torch import nn

BATCH = 64


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def conv16():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )


def conv32():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )


OPTIMIZERS = {
    "mlp": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "conv16": lambda p: torch.optim.Adam(p, 0.001),
    "conv32": lambda p: torch.optim.SGD(p, 0.01, momentum=0.5),
}

name, seconds = sys.argv[1], float(sys.argv[2])
if len(sys.argv) > 3:
    torch.set_num_threads(int(sys.argv[3]))
model = {"mlp": mlp, "conv16": conv16, "conv32": conv32}[name]()
optimizer = OPTIMIZERS[name](model.parameters())
loss_of = nn.CrossEntropyLoss()
x, y = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10


def step():
    optimizer.zero_grad()
    loss_of(model(x), y).backward()
    optimizer.step()


for _ in range(3):
    step()
rates, start = [], time.perf_counter()
while len(rates) < 5 or time.perf_counter() - start < seconds:
    begun = time.perf_counter()
    step()
    rates.append(BATCH / (time.perf_counter() - begun))
print(statistics.median(rates))
