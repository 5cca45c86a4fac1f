"""Writes tests/fixtures/points.{pt,safetensors} and the outputs that PyTorch computes with them."""
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
with open(f"{folder}/points_outputs.rs", "w") as file:
    file.write("/// Made by `benches/peers/points_fixture.py`.\n")
    file.write(f"const TORCH_OUTPUTS: [f64; 4] = [{', '.join(f'{v:.8f}' for v in out)}];\n")
