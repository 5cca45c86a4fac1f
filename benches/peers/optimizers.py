"""Prints the weight after ten steps of each optimizer: the figures in optimizer/update.rs come from here."""
import math
import torch

torch.set_default_dtype(torch.float32)
CASES = [
    lambda p: torch.optim.SGD(p, 0.1),
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    lambda p: torch.optim.Adagrad(p, 0.1, initial_accumulator_value=0.1),
    lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1),
    lambda p: torch.optim.RMSprop(p, 0.1),
    lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9, centered=True),
]
for case in CASES:
    weight = torch.ones(1, requires_grad=True)
    optimizer = case([weight])
    for step in range(1, 11):
        weight.grad = torch.tensor([math.sin(0.3 * step)])
        optimizer.step()
    print(f"{weight.item():.9f},")
