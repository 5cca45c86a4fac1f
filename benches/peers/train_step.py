"""Training steps of the zoo's networks in PyTorch: `train_step.py MODEL SECONDS THREADS` prints samples per second of the
clock and of the processor's time."""
import os
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


class Block(nn.Module):
    """A residual block of He et al. with the shortcut that has no parameters."""

    def __init__(self, before, after):
        super().__init__()
        self.stride, self.grown = (1, 0) if before == after else (2, after - before)
        self.conv1 = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)

    def forward(self, x):
        y = nn.functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        if self.grown:
            x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.grown))
        return nn.functional.relu(y + x, inplace=True)


def resnet20():
    channels = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        *[Block(before, after) for before, after in zip(channels, channels[1:])],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )


class Encoder(nn.Module):
    """Four layers, 256 wide, 8 heads, normalised in front, as the zoo's `sequence_encoder`."""

    def __init__(self, tokens=32, places=128, width=256, heads=8, layers=4):
        super().__init__()
        dropout = float(os.environ.get("DROPOUT", "0.1"))
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(places, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        rows = self.token(x) + self.place(torch.arange(x.shape[1]))
        return self.out(self.encoder(rows).mean(1))


def pictures_of(arch):
    import torchvision
    return torchvision.models.get_model(arch, weights=None, num_classes=10)


class Minilm(nn.Module):
    """A classifier of MiniLM's sizes in transformers, on texts that are padded to the longest."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification
        self.bert = BertForSequenceClassification(BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=2))

    def forward(self, x):
        return self.bert(input_ids=x, attention_mask=(x != 0).long()).logits


def gpt():
    from models import Gpt
    return Gpt()


# Tokens of 32 film reviews, as MiniLM's tokenizer cuts them; the same as in train_step.rs.
LENGTHS = [20, 25, 30, 22, 34, 29, 25, 23, 52, 52, 21, 46, 31, 32, 15, 28, 14, 14, 31, 21, 24, 14, 24, 30, 27, 25, 34, 7,
           22, 40, 26, 23]


def reviews():
    rows = [[1 + (at + length) * 7919 % 30521 for at in range(length)] for length in LENGTHS]
    return torch.tensor([row + [0] * (max(LENGTHS) - len(row)) for row in rows]), torch.arange(len(rows)) % 2


def passages():
    bytes_of = (torch.arange(16 * 128 + 1) * 7919) % 256
    return bytes_of[:-1].view(16, 128), bytes_of[1:].view(16, 128)


MODELS = {"mlp": mlp, "conv16": conv16, "conv32": conv32, "resnet20": resnet20, "encoder": Encoder,
          "resnet18": lambda: pictures_of("resnet18"), "mobilenet_v2": lambda: pictures_of("mobilenet_v2"),
          "minilm": Minilm, "gpt": gpt}
OPTIMIZERS = {
    "resnet18": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "mobilenet_v2": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "minilm": lambda p: torch.optim.AdamW(p, 2e-5, weight_decay=0.01),
    "gpt": lambda p: torch.optim.AdamW(p, 0.001, weight_decay=0.1),
    "encoder": lambda p: torch.optim.AdamW(p, 0.001),
    "resnet20": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "mlp": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "conv16": lambda p: torch.optim.Adam(p, 0.001),
    "conv32": lambda p: torch.optim.SGD(p, 0.01, momentum=0.5),
}


PICTURES = {"resnet20": (3, 32, 32), "resnet18": (3, 64, 64), "mobilenet_v2": (3, 64, 64)}


def batch(name, part):
    """A part of the records that a step is about, and their labels."""
    if name == "minilm":
        x, y = reviews()
        x, y = x[part], y[part]
        # Padded to the longest that is there.
        return x[:, :int((x != 0).sum(1).max())], y
    if name == "gpt":
        x, y = passages()
    elif name == "encoder":
        x, y = torch.randint(32, (BATCH, 128)), torch.arange(BATCH) % 2
    else:
        x, y = torch.rand(BATCH, *PICTURES.get(name, (1, 28, 28))), torch.arange(BATCH) % 10
    return x[part], y[part]


def prepared(name, part=slice(None)):
    """A model, and the records of a step."""
    model, (x, y) = MODELS[name](), batch(name, part)
    # Convolutions are faster in PyTorch with channels last; `TORCH_LAYOUT=contiguous` tries the other layout.
    if name not in ("mlp", "encoder", "minilm", "gpt") and os.environ.get("TORCH_LAYOUT") != "contiguous":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model.train(), x, y


def taken(model, optimizer, x, y):
    """A step of training."""
    def step():
        optimizer.zero_grad()
        scores = model(x)
        nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten()).backward()
        optimizer.step()
    return step


def main(name, seconds, threads=None):
    if threads:
        torch.set_num_threads(int(threads))
    model, x, y = prepared(name)
    step = taken(model, OPTIMIZERS[name](model.parameters()), x, y)

    for _ in range(3):
        step()
    rates, start, spent = [], time.perf_counter(), time.process_time()
    while len(rates) < 5 or time.perf_counter() - start < float(seconds):
        begun = time.perf_counter()
        step()
        rates.append(len(x) / (time.perf_counter() - begun))
    print(statistics.median(rates), len(x) * len(rates) / (time.process_time() - spent))


if __name__ == "__main__":
    main(*sys.argv[1:])
