"""Writes tests/fixtures/points.{pt,safetensors} and the outputs that PyTorch computes with them."""
import json
import sys
import torch
from safetensors.torch import save_file

torch.manual_seed(11)


class Points(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(2, 4)
        self.fc2 = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


folder = sys.argv[1]
model = Points()
torch.save(model.state_dict(), f"{folder}/points.pt")
save_file(model.state_dict(), f"{folder}/points.safetensors", metadata={"format": "pt"})
with torch.no_grad():
    out = model(torch.tensor([[0.5, -1.0], [-0.25, 2.0]])).flatten().tolist()
with open(f"{folder}/points_outputs.json", "w") as file:
    json.dump(out, file)
