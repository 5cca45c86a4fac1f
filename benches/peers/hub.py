"""What MLflow with SQLite takes for what benches/hub.rs does; prints a line per figure."""

import os
import statistics
import tempfile
import time

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

folder = tempfile.mkdtemp()
client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
experiment = client.create_experiment("bench", artifact_location=f"file://{folder}")


def median(act):
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        act()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


run = client.create_run(experiment).info.run_id
begun = time.perf_counter()
POINTS = 20_000
for first in range(0, POINTS, 1000):
    batch = [Metric("loss", 1.0 / (s + 1), 0, s) for s in range(first, first + 1000)]
    client.log_batch(run, batch)
print("ingest", POINTS / (time.perf_counter() - begun))

runs = []
for number in range(1000):
    run = client.create_run(experiment).info.run_id
    runs.append(run)
    client.log_batch(run, [Metric(f"metric {m}", float(m), 0, 0) for m in range(10)])
print("list", median(lambda: client.search_runs([experiment], max_results=1000)))

for run in runs[:50]:
    client.log_batch(run, [Metric("curve", float(s), 0, s) for s in range(1000)])
print("curves", median(lambda: [client.get_metric_history(run, "curve") for run in runs[:50]]))
