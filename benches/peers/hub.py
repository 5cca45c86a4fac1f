"""What MLflow with SQLite and TensorBoard take for what benches/hub.rs does; prints a line per figure."""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

folder = tempfile.mkdtemp()
CURVES, POINTS = 50, 1000


def median(act, rounds=3):
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        act()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def mlflow():
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment("bench", artifact_location=f"file://{folder}")
    run = client.create_run(experiment).info.run_id
    begun = time.perf_counter()
    points = 20_000
    for first in range(0, points, 1000):
        batch = [Metric("loss", 1.0 / (s + 1), 0, s) for s in range(first, first + 1000)]
        client.log_batch(run, batch)
    print("ingest", points / (time.perf_counter() - begun))
    for _ in range(1000):
        run = client.create_run(experiment).info.run_id
        client.log_batch(run, [Metric(f"metric {m}", float(m), 0, 0) for m in range(10)])
    print("list", median(lambda: client.search_runs([experiment], max_results=1000)))


def tensorboard():
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in range(CURVES):
        writer = EventFileWriter(f"{folder}/events/run-{run}")
        for step in range(POINTS):
            value = Summary.Value(tag="curve", simple_value=float(step))
            writer.add_event(Event(wall_time=float(step), step=step, summary=Summary(value=[value])))
        writer.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/data/plugin/scalars/"
    command = [sys.executable, "-m", "tensorboard.main", "--host=127.0.0.1", f"--port={port}"]
    server = subprocess.Popen(
        command + [f"--logdir={folder}/events"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        tags = {}
        while len(tags) < CURVES and server.poll() is None:
            time.sleep(0.2)
            try:
                tags = json.load(urllib.request.urlopen(address + "tags"))
            except OSError:
                pass
        # All curves in one request, as its page asks for them.
        body = "tag=curve&" + "&".join(f"runs=run-{run}" for run in range(CURVES))

        def curves():
            found = json.load(urllib.request.urlopen(address + "scalars_multirun", body.encode()))
            assert len(found) == CURVES and all(len(curve) == POINTS for curve in found.values())

        print("curves", median(curves, 7))
    finally:
        server.kill()
        server.wait()


try:
    mlflow()
    tensorboard()
finally:
    shutil.rmtree(folder, ignore_errors=True)
