"""Seconds that TensorBoard's fast loader takes to open 50 runs with 10 tags of 1,000 points each."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

RUNS, TAGS, POINTS = 50, 10, 1000
folder = tempfile.mkdtemp()
try:
    for run in range(RUNS):
        writer = EventFileWriter(f"{folder}/run-{run:02}")
        for step in range(POINTS):
            values = [Summary.Value(tag=f"metric {tag}", simple_value=float(step)) for tag in range(TAGS)]
            writer.add_event(Event(wall_time=float(step), step=step, summary=Summary(value=values)))
        writer.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/data/plugin/scalars/"
    command = [sys.executable, "-m", "tensorboard.main", "--host=127.0.0.1", f"--port={port}", "--load_fast=true"]
    begun = time.perf_counter()
    server = subprocess.Popen(
        command + [f"--logdir={folder}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        body = "tag=metric%209&" + "&".join(f"runs=run-{run:02}" for run in range(RUNS))
        while server.poll() is None:
            try:
                found = json.load(urllib.request.urlopen(address + "scalars_multirun", body.encode()))
                if len(found) == RUNS and all(len(curve) == POINTS for curve in found.values()):
                    break
            except OSError:
                pass
            time.sleep(0.005)
        assert server.poll() is None, "TensorBoard ended"
        print(time.perf_counter() - begun)
    finally:
        server.kill()
        server.wait()
finally:
    shutil.rmtree(folder, ignore_errors=True)
