"""Unmodified clients of the Open Inference Protocol against a server whose model `double` gives y = 2 x, together = rows.

Every call of tritonclient's http, grpc and asyncio clients that a server of ours answers, compressed and not.
"""

import asyncio
import json
import queue
import sys
import urllib.request

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import InferenceServerException

URL = sys.argv[1]
X = np.arange(5, dtype=np.float32).reshape(5, 1)


def inputs(of, binary=None):
    x = of.InferInput("x", [5, 1], "FP32")
    if binary is None:
        x.set_data_from_numpy(X)
    else:
        x.set_data_from_numpy(X, binary_data=binary)
    return [x]


def check(result):
    assert np.array_equal(result.as_numpy("y"), X * 2), result.get_response()


def refused(call, text):
    try:
        call()
    except InferenceServerException as error:
        assert text in error.message(), error
    else:
        raise AssertionError("nothing was refused")


def common(client, json_of):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("double") and client.is_model_ready("double", "1")
    assert not client.is_model_ready("nobody")
    assert json_of(client.get_server_metadata)()["name"] == "salamander"
    assert json_of(client.get_model_metadata)("double")["inputs"][0]["name"] == "x"
    json_of(client.get_model_config)("double")
    assert json_of(client.get_inference_statistics)("double")["model_stats"][0]["name"] == "double"
    json_of(client.get_inference_statistics)()
    json_of(client.get_model_repository_index)()
    client.unload_model("double")
    assert not client.is_model_ready("double")
    client.load_model("double")
    assert client.is_model_ready("double")
    refused(lambda: client.load_model("double", config="{}"), "no parameter \"config\"")
    # Whether requests are logged can be changed, and nothing is traced.
    logged = json_of(client.get_log_settings)()
    assert "log_info" in logged.get("settings", logged), logged
    client.update_log_settings({"log_info": True, "log_verbose_level": 0})
    client.update_log_settings({"log_info": False})
    refused(lambda: client.update_log_settings({"log_file": "elsewhere.txt"}), "stays so")
    traced = json_of(client.get_trace_settings)()
    assert "trace_level" in traced.get("settings", traced), traced
    json_of(client.get_trace_settings)("double")
    client.update_trace_settings(settings={"trace_level": ["OFF"]})
    refused(lambda: client.update_trace_settings("double", {"trace_level": ["TIMESTAMPS"]}), "stays so")
    # Memory is not shared.
    for call in (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status,
                 client.unregister_system_shared_memory, client.unregister_cuda_shared_memory):
        refused(call, "")
    refused(lambda: client.register_system_shared_memory("region", "/region", 64), "")


def http():
    with httpclient.InferenceServerClient(URL, concurrency=4) as client:
        common(client, lambda call: call)
        for binary_in in (True, False):
            check(client.infer("double", inputs(httpclient, binary_in)))
            for binary_out in (True, False):
                wanted = [httpclient.InferRequestedOutput("y", binary_data=binary_out)]
                result = client.infer(
                    "double", inputs(httpclient, binary_in), outputs=wanted, request_id="7",
                    model_version="1", timeout=10_000_000, priority=1,
                )
                check(result)
                response = result.get_response()
                assert response["id"] == "7" and len(response["outputs"]) == 1, response
        for packed in ("gzip", "deflate"):
            check(client.infer(
                "double", inputs(httpclient),
                request_compression_algorithm=packed, response_compression_algorithm=packed,
            ))
        large = httpclient.InferInput("x", [4000, 1], "FP32")
        values = np.linspace(20, 30, 4000, dtype=np.float32).reshape(4000, 1)
        large.set_data_from_numpy(values)
        result = client.infer("double", [large], response_compression_algorithm="gzip")
        assert np.array_equal(result.as_numpy("y"), values * 2)
        waiting = [client.async_infer("double", inputs(httpclient)) for _ in range(20)]
        for one in waiting:
            check(one.get_result())
        refused(lambda: client.infer("nobody", inputs(httpclient)), 'no model "nobody"')
        refused(lambda: client.infer("double", inputs(httpclient), model_version="9"), 'no version "9"')


def grpc():
    def json_of(call):
        return lambda *args: call(*args, as_json=True)

    with grpcclient.InferenceServerClient(URL) as client:
        common(client, json_of)
        check(client.infer("double", inputs(grpcclient)))
        for packed in ("gzip", "deflate"):
            wanted = [grpcclient.InferRequestedOutput("y")]
            result = client.infer(
                "double", inputs(grpcclient), outputs=wanted, request_id="7",
                compression_algorithm=packed, client_timeout=60, timeout=10_000_000,
            )
            check(result)
            assert result.get_response().id == "7"
        answers = queue.Queue()
        waiting = [
            client.async_infer("double", inputs(grpcclient), lambda result, error: answers.put((result, error)))
            for _ in range(20)
        ]
        for _ in waiting:
            result, error = answers.get(timeout=60)
            assert error is None, error
            check(result)
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(20):
            client.async_stream_infer("double", inputs(grpcclient), request_id=str(number))
        for number in range(20):
            result, error = answers.get(timeout=60)
            assert error is None, error
            assert result.get_response().id == str(number)
            check(result)
        client.stop_stream()
        refused(lambda: client.infer("nobody", inputs(grpcclient)), 'no model "nobody"')


async def every_call(client):
    assert await client.is_server_live() and await client.is_server_ready()
    assert await client.is_model_ready("double") and not await client.is_model_ready("nobody")
    for call in (client.get_server_metadata, client.get_model_repository_index, client.get_inference_statistics,
                 client.get_log_settings, client.get_trace_settings):
        assert await call() is not None
    for call in (client.get_model_metadata, client.get_model_config, client.get_inference_statistics):
        assert await call("double") is not None
    await client.update_log_settings({"log_info": False})
    await client.update_trace_settings(settings={"trace_level": ["OFF"]})
    await client.unload_model("double")
    assert not await client.is_model_ready("double")
    await client.load_model("double")
    try:
        await client.get_system_shared_memory_status()
    except InferenceServerException:
        pass
    else:
        raise AssertionError("memory is not shared")


async def asynchronous():
    async with httpaio.InferenceServerClient(URL) as client:
        await every_call(client)
        for result in await asyncio.gather(*(client.infer("double", inputs(httpaio)) for _ in range(20))):
            check(result)
    async with grpcaio.InferenceServerClient(URL) as client:
        await every_call(client)
        for result in await asyncio.gather(*(client.infer("double", inputs(grpcaio)) for _ in range(20))):
            check(result)

        async def requests():
            for number in range(10):
                yield {"model_name": "double", "inputs": inputs(grpcaio), "request_id": str(number)}

        seen = 0
        async for result, error in client.stream_infer(requests()):
            assert error is None, error
            check(result)
            seen += 1
        assert seen == 10


def older():
    """KServe v1, and what pytorch-quik's batch client posts and reads: each record is called `data`."""
    head = {"Content-Type": "application/json"}
    for name in ("x", "data"):
        text = '{"instances":' + json.dumps([{name: 1.5}, {name: 2}]) + "}"
        for path in ("v1/models/double:predict", "predictions/double"):
            asked = urllib.request.Request(f"http://{URL}/{path}", bytes(text, "utf-8"), head)
            predictions = json.load(urllib.request.urlopen(asked))["predictions"]
            assert [one["y"] for one in predictions] == [[3.0], [4.0]], predictions
    assert json.load(urllib.request.urlopen(f"http://{URL}/ping"))["status"] == "Healthy"


http()
grpc()
asyncio.run(asynchronous())
older()
print("all clients were answered")
