"""Clients of other people against a running `salamander serve`: kserve's Python client, and Triton's perf_analyzer.

    salamander serve digits=RUN --http 127.0.0.1:8000           # a run of the zoo's mnist.yaml
    pip install kserve==0.21 numpy                              # in an environment of its own
    python benches/peers/serving_clients.py 127.0.0.1:8000 digits [--perf-analyzer PROGRAM]

perf_analyzer is in the wheel of tritonclient 2.51.0; it starts with Debian's libb64-0d and PyPI's
nvidia-cuda-runtime-cu12 on LD_LIBRARY_PATH. Both are heavy: CI asks with tritonclient, curl and the standard library.
"""

import argparse
import asyncio
import subprocess

import numpy as np


async def kserve(address, model):
    from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
    from kserve.inference_client import InferenceGRPCClient

    pixels = np.random.default_rng(7).integers(0, 256, (2, 1, 28, 28), dtype=np.uint8)
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    url = f"http://{address}"
    assert await rest.is_server_live(url) and await rest.is_server_ready(url)
    assert await rest.is_model_ready(url, model)
    image = InferInput("image", [2, 1, 28, 28], "UINT8")
    image.set_data_from_numpy(pixels, binary_data=False)
    answer = await rest.infer(url, InferRequest(model, [image]), model_name=model)
    scores = next(output for output in answer.outputs if output.name == "scores")
    told = np.array(scores.as_numpy()).reshape(2, 10)
    binary = InferInput("image", [2, 1, 28, 28], "UINT8")
    binary.set_data_from_numpy(pixels, binary_data=True)
    answer = await rest.infer(url, InferRequest(model, [binary]), model_name=model)
    scores = next(output for output in answer.outputs if output.name == "scores")
    assert np.array_equal(np.array(scores.as_numpy()).reshape(2, 10), told)
    older = InferenceRESTClient(RESTConfig(protocol="v1"))
    assert await older.is_server_live(url) and await older.is_model_ready(url, model)
    instances = {"instances": [{"image": one.flatten().tolist()} for one in pixels]}
    answer = await older.infer(url, instances, model_name=model)
    found = np.array([one["scores"] for one in answer["predictions"]], np.float32)
    assert np.array_equal(found, told.astype(np.float32))
    grpc = InferenceGRPCClient(address)
    assert await grpc.is_server_live() and await grpc.is_server_ready() and await grpc.is_model_ready(model)
    image = InferInput("image", [2, 1, 28, 28], "UINT8")
    image.set_data_from_numpy(pixels, binary_data=True)
    answer = await grpc.infer(InferRequest(model, [image]))
    scores = next(output for output in answer.outputs if output.name == "scores")
    assert np.array_equal(np.array(scores.as_numpy()).reshape(2, 10), told)
    print("kserve's client: v1, v2 with JSON and binary tensors, and gRPC have the same answers")


def perf_analyzer(program, address, model):
    for protocol in ("http", "grpc"):
        command = [program, "-m", model, "-u", address, "-i", protocol, "-b", "1", "--concurrency-range", "1:4:3",
                   "--measurement-interval", "2000", "--stability-percentage", "999", "--max-trials", "3"]
        if protocol == "grpc":
            # Over the stream too.
            subprocess.run([*command, "--async", "--streaming"], check=True)
        subprocess.run(command, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("model")
    parser.add_argument("--perf-analyzer")
    options = parser.parse_args()
    if options.perf_analyzer:
        perf_analyzer(options.perf_analyzer, options.address, options.model)
    else:
        asyncio.run(kserve(options.address, options.model))


main()
