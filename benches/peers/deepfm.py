"""Steps per second of the zoo's DeepFM in PyTorch with sparse embeddings: `deepfm.py SECONDS THREADS` prints
them."""
import statistics
import sys
import time

import torch
from torch import nn

BATCH, FIELDS, DIM, IDS = 512, 39, 8, 520_000


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Embedding(IDS, 1, sparse=True)
        self.factors = nn.Embedding(IDS, DIM, sparse=True)
        self.tower = nn.Sequential(
            nn.Linear(FIELDS * DIM, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(64, 1),
        )

    def forward(self, ids):
        factors = self.factors(ids)
        pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1) * 0.5
        return self.linear(ids).sum((1, 2)) + pairs + self.tower(factors.flatten(1)).squeeze(1)


torch.set_num_threads(int(sys.argv[2]))
model = DeepFm()
tables = torch.optim.Adagrad([*model.linear.parameters(), *model.factors.parameters()], 0.02)
dense = torch.optim.Adam(model.tower.parameters(), 0.001)
loss_of = nn.BCEWithLogitsLoss()
# Frequencies like those of the data: a power law within each field.
rank = torch.rand(64, BATCH, FIELDS).pow(-1.0).clamp(max=IDS // FIELDS).long() - 1
batches = rank + torch.arange(FIELDS) * (IDS // FIELDS)
labels = (torch.rand(64, BATCH) < 0.25).float()


def step(at):
    tables.zero_grad()
    dense.zero_grad()
    loss_of(model(batches[at % 64]), labels[at % 64]).backward()
    tables.step()
    dense.step()


for at in range(5):
    step(at)
rates, start = [], time.perf_counter()
while len(rates) < 20 or time.perf_counter() - start < float(sys.argv[1]):
    begun = time.perf_counter()
    step(len(rates))
    rates.append(1.0 / (time.perf_counter() - begun))
print(statistics.median(rates))
