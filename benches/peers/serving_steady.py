"""Reloads under load, and four times as much load as can be served: `salamander serve` on a classifier of texts.

    pip install numpy
    python benches/peers/serving_steady.py target/release/salamander --weights DIR --texts FILE [--reloads 1000]

DIR and FILE are those of `serving_text.py`. The server is pinned to the first core, the load to the second. First the
peak: 32 clients that ask again at once. Then half of it, requests at even distances whatever is answered, without and
with reloads: the exported model is touched and `POST /v2/repository/models/M/load` loads and warms it beside the one in
service. Then four times the peak. A latency begins when a request is due.
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time

from serving import free_port, usage, wait_until
from serving_text import prepare, scores, texts_of

PATH = "/v2/models/reviews/infer"


class Load:
    """Connections that are kept, and what was answered."""

    def __init__(self, port, texts):
        self.port, self.at, self.free = port, 0, []
        self.bodies = [json.dumps({"text": text}).encode() for text in texts]
        self.clear()

    def clear(self):
        self.good, self.refused, self.failed = [], [], 0

    async def ask(self, due):
        body = self.bodies[self.at % len(self.bodies)]
        self.at += 1
        try:
            connection = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = connection
            begin = time.perf_counter()
            writer.write(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (PATH.encode(), len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))[15:])
            await reader.readexactly(length)
            self.free.append(connection)
        except (OSError, asyncio.IncompleteReadError):
            self.failed += 1
            return
        now = time.perf_counter()
        status = int(head.split(b" ", 2)[1])
        if status == 200:
            self.good.append(now - due)
        elif status == 503:
            self.refused.append(now - begin)
        else:
            self.failed += 1

    async def again_and_again(self, clients, seconds):
        self.clear()
        end = time.perf_counter() + seconds

        async def client():
            while time.perf_counter() < end:
                await self.ask(time.perf_counter())

        await asyncio.gather(*(client() for _ in range(clients)))
        return len(self.good) / seconds

    async def at_rate(self, rate, done):
        """Until `done()`; the seconds that it took."""
        self.clear()
        begin, asked, tasks = time.perf_counter(), 0, set()
        while not done():
            due = begin + asked / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            elif asked % 64 == 0:
                await asyncio.sleep(0)
            task = asyncio.create_task(self.ask(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            asked += 1
        took = time.perf_counter() - begin
        if tasks:
            await asyncio.wait(tasks)
        return took


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1e3 if values else float("nan")


async def reload(port, weights, number):
    # Another time of change is another version.
    os.utime(weights, (number, number))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v2/repository/models/reviews/load HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 200 " in answer.split(b"\r\n", 1)[0], answer


def told(name, load, took):
    print(f"{name:28}{len(load.good) / took:10.0f}{share(load.good, 0.5):9.1f}{share(load.good, 0.99):9.1f}"
          f"{len(load.refused):9}{share(load.refused, 0.99):12.2f}{load.failed:8}", flush=True)


async def run(options, server, port, weights, texts):
    load, seconds = Load(port, texts), options.seconds
    await load.again_and_again(32, 2)
    peak = await load.again_and_again(32, seconds)
    print(f"{'':28}{'answers/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'refused':>9}{'their p99':>12}{'failed':>8}")
    told("peak, 32 clients", load, seconds)
    until = lambda end: (lambda: time.perf_counter() > end)
    took = await load.at_rate(peak / 2, until(time.perf_counter() + seconds))
    told("half of it", load, took)
    _, before = usage(server.pid)
    memory, reloading = [before], {"done": 0}

    async def reloads():
        for number in range(options.reloads):
            await reload(port, weights, 1_000_000_000 + number)
            reloading["done"] += 1
            if number % max(1, options.reloads // 10) == 0:
                memory.append(usage(server.pid)[1])

    task = asyncio.create_task(reloads())
    took = await load.at_rate(peak / 2, lambda: task.done())
    await task
    told(f"half, {options.reloads} reloads", load, took)
    memory.append(usage(server.pid)[1])
    print("MB before, during and after reloads:", " ".join(f"{one:.0f}" for one in memory))
    threads = len(os.listdir(f"/proc/{server.pid}/task"))
    print(f"{reloading['done']} reloads in {took:.0f} s, {threads} threads at the end")
    took = await load.at_rate(peak * 4, until(time.perf_counter() + seconds))
    told("four times the peak", load, took)
    print(f"goodput: {len(load.good) / took / peak:.2f} of the peak")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--reloads", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    program, texts, port = os.path.abspath(options.program), texts_of(options.texts), free_port()
    with tempfile.TemporaryDirectory() as folder:
        run_folder = prepare(program, options.weights, texts, folder)
        subprocess.run([program, "export", run_folder, "--out", f"{folder}/exported"], check=True, capture_output=True)
        command = ["taskset", "-c", "0", program, "serve", f"reviews={folder}/exported", "--http", f"127.0.0.1:{port}",
                   "--threads", "1"]
        os.sched_setaffinity(0, {1})
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}{PATH}"
            wait_until(lambda: scores(url, "a film"), url)
            asyncio.run(run(options, server, port, f"{folder}/exported/model.safetensors", texts))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
