"""MNIST's small network behind HTTP: `salamander serve` beside FastAPI with onnxruntime, in turns, asked by wrk.

    apt install wrk
    pip install onnx onnxruntime fastapi uvicorn uvloop httptools numpy safetensors
    python benches/peers/serving.py target/release/salamander [--seconds 5] [--rounds 3] [--clients 32]

Both answer the same request: one picture of 28 x 28 bytes behind JSON, scores as bytes behind JSON. The server is
pinned to the first core and wrk to the second. A line for each: requests per second, p50 and p99 in milliseconds,
CPU-seconds of the server per 1,000 requests, memory. Answers are compared with each other before anything is measured.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")

SERVER = """
import json, sys
import numpy as np, onnxruntime
from fastapi import FastAPI, Request, Response
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
app = FastAPI()

@app.post("/v2/models/digits/infer")
async def infer(request: Request):
    body = await request.body()
    length = int(request.headers["inference-header-content-length"])
    shape = json.loads(body[:length])["inputs"][0]["shape"]
    pixels = np.frombuffer(body, np.uint8, offset=length).reshape(shape).astype(np.float32)
    image = pixels * np.float32(1 / 255)
    raw = session.run(None, {"image": image})[0].tobytes()
    head = json.dumps({"model_name": "digits", "model_version": "1", "outputs": [
        {"name": "scores", "datatype": "FP32", "shape": [shape[0], 10],
         "parameters": {"binary_data_size": len(raw)}}]}).encode()
    return Response(head + raw, media_type="application/octet-stream",
                    headers={"inference-header-content-length": str(len(head))})

import uvicorn
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def to_onnx(weights, path):
    """conv16 - pool - conv32 - pool - linear - softmax, as the zoo's `mnist_conv16` computes it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load_file

    tensors = load_file(weights)
    # Linear weights are kept with the inputs first.
    constants = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in tensors.items()]
    node = helper.make_node
    conv = {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Conv", ["image", "conv1.weight", "conv1.bias"], ["a"], **conv), node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], **pool),
        node("Conv", ["c", "conv2.weight", "conv2.bias"], ["d"], **conv), node("Relu", ["d"], ["e"]),
        node("MaxPool", ["e"], ["f"], **pool), node("Flatten", ["f"], ["g"]),
        node("Gemm", ["g", "out.weight", "out.bias"], ["h"], transB=int(tensors["out.weight"].shape[0] == 10)),
        node("Softmax", ["h"], ["scores"], axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 28, 28])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "conv16", [image], [scores], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def request_body():
    pixels = np.random.default_rng(7).integers(0, 256, (1, 1, 28, 28), dtype=np.uint8).tobytes()
    head = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 28, 28], "datatype": "UINT8",
                                   "parameters": {"binary_data_size": len(pixels)}}],
                       "outputs": [{"name": "scores", "parameters": {"binary_data": True}}]}).encode()
    return head + pixels, {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(url, body, headers):
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        length = int(answer.headers["inference-header-content-length"])
        return np.frombuffer(answer.read()[length:], np.float32)


def wait_until(ask, url):
    for _ in range(600):
        try:
            return ask()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def usage(pid):
    """CPU-seconds so far, and megabytes."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    resident = int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return (int(fields[11]) + int(fields[12])) / ticks, resident / 2**20


def train_digits(program, folder):
    """A run of `mnist_conv16`."""
    mnist = os.path.join(REPOSITORY, "model_zoo/mnist")
    train = [program, "train", "mnist.yaml", "--out", f"{folder}/runs", "--set", "searcher.max_length={batches: 50}"]
    subprocess.run(train, cwd=mnist, check=True, capture_output=True)
    return os.path.join(folder, "runs", next(name for name in os.listdir(f"{folder}/runs") if not name.startswith(".")))


def write_load(folder, more=""):
    """What wrk sends, and more of its script."""
    body, headers = request_body()
    open(f"{folder}/body", "wb").write(body)
    open(f"{folder}/ask.lua", "w").write(f"""
local file = io.open("{folder}/body", "rb")
wrk.method, wrk.body = "POST", file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = "{headers['Inference-Header-Content-Length']}"
done = function(summary, latency)
  local e = summary.errors
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
{more}""")
    return body, headers


def measure(server, url, script, options):
    before, _ = usage(server.pid)
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{options.clients}", f"-d{options.seconds}s", "--latency", "--timeout", "30s",
               "-s", script, url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after, memory = usage(server.pid)
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", told)
    requests, micros, p50, p99, errors = map(int, found.groups())
    if errors:
        raise SystemExit(f"{errors} errors: {told}")
    return {"rate": requests / (micros / 1e6), "p50": p50 / 1e3, "p99": p99 / 1e3,
            "cpu": (after - before) / requests * 1000, "memory": memory}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    with tempfile.TemporaryDirectory() as folder:
        run = train_digits(program, folder)
        subprocess.run([program, "export", run, "--out", f"{folder}/exported"], check=True, capture_output=True)
        to_onnx(f"{folder}/exported/model.safetensors", f"{folder}/model.onnx")
        body, headers = write_load(folder)
        open(f"{folder}/server.py", "w").write(SERVER)
        ours, theirs = free_port(), free_port()
        pinned = ["taskset", "-c", "0"]
        servers = {
            "salamander": subprocess.Popen([*pinned, program, "serve", f"digits={run}", "--http", f"127.0.0.1:{ours}",
                                            "--threads", "1"], stdout=subprocess.DEVNULL),
            "fastapi + onnxruntime": subprocess.Popen([*pinned, sys.executable, f"{folder}/server.py",
                                                       f"{folder}/model.onnx", str(theirs)]),
        }
        try:
            urls = dict(zip(servers, (f"http://127.0.0.1:{port}/v2/models/digits/infer" for port in (ours, theirs))))
            answers = [wait_until(lambda: ask(url, body, headers), url) for url in urls.values()]
            assert np.allclose(answers[0], answers[1], atol=1e-4), answers
            found = {name: [] for name in servers}
            for _ in range(options.rounds):
                for name, server in servers.items():
                    found[name].append(measure(server, urls[name], f"{folder}/ask.lua", options))
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()
        print(f"{'':24}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU-s/1000':>12}{'MB':>7}")
        median = {name: {key: statistics.median(one[key] for one in all) for key in all[0]} for name, all in found.items()}
        for name, one in median.items():
            print(f"{name:24}{one['rate']:12.0f}{one['p50']:9.2f}{one['p99']:9.2f}{one['cpu']:12.3f}{one['memory']:7.0f}")
        mine, other = median.values()
        print(f"ratio: {mine['rate'] / other['rate']:.2f}x requests, {mine['p99'] / other['p99']:.2f}x p99, "
              f"{mine['cpu'] / other['cpu']:.2f}x CPU, {mine['memory'] / other['memory']:.2f}x memory")


if __name__ == "__main__":
    main()
