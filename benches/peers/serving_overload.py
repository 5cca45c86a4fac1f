"""Four times as many small requests as can be served: `salamander serve` of MNIST's small network, where to refuse costs
nearly as much as to answer.

    apt install wrk
    pip install numpy
    python benches/peers/serving_overload.py target/release/salamander [--seconds 5] [--rounds 3]

The server is pinned to the first core, the load to the second. First the peak: 32 connections of wrk that ask again at
once. Then 600 connections, more than may wait, each of which pauses so that together they ask four times as often; what
was answered and what was refused is read from the server's own metrics. Meanwhile a slow client asks 20 times a second
and takes the time of each refusal.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from serving import ask, free_port, train_digits, usage, wait_until, write_load

CONNECTIONS = 600
PAUSE = """
function delay()
  return math.random(0, 2 * {pause})
end
"""


def outcomes(port):
    """Requests of the server so far, by what became of them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        page = answer.read().decode()
    found = re.findall(r'salamander_serve_requests_total\{model="digits",outcome="(\w+)"\} (\d+)', page)
    return {name: int(count) for name, count in found}


def load(url, script, connections, seconds):
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "30s",
               "-s", script, url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Probe(threading.Thread):
    """Asks slowly, and takes the time of refusals and of answers."""

    def __init__(self, url, body, headers):
        super().__init__()
        self.url, self.body, self.headers = url, body, headers
        self.refused, self.answered, self.ending = [], [], threading.Event()

    def run(self):
        while not self.ending.wait(0.05):
            begin = time.perf_counter()
            try:
                ask(self.url, self.body, self.headers)
                self.answered.append(time.perf_counter() - begin)
            except urllib.error.HTTPError as error:
                assert error.code == 503, error
                self.refused.append(time.perf_counter() - begin)


def turn(server, port, folder, options):
    url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
    body, headers = write_load(folder)
    before = outcomes(port)
    load(url, f"{folder}/ask.lua", 32, options.seconds)
    peak = (outcomes(port)["answered"] - before["answered"]) / options.seconds
    write_load(folder, PAUSE.replace("{pause}", str(max(1, int(CONNECTIONS / (4 * peak) * 1e3)))))
    probe, before, (cpu, _) = Probe(url, body, headers), outcomes(port), usage(server.pid)
    probe.start()
    load(url, f"{folder}/ask.lua", CONNECTIONS, options.seconds)
    probe.ending.set()
    probe.join()
    after = outcomes(port)
    answered, refused = ((after[name] - before[name]) / options.seconds for name in ("answered", "refused"))
    late = sorted(probe.refused)
    return {"peak": peak, "offered": (answered + refused) / peak, "goodput": answered / peak,
            "p50": late[len(late) // 2] * 1e3 if late else float("nan"),
            "p99": late[int(0.99 * len(late))] * 1e3 if late else float("nan"),
            "busy": (usage(server.pid)[0] - cpu) / options.seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    program, port = os.path.abspath(options.program), free_port()
    with tempfile.TemporaryDirectory() as folder:
        run = train_digits(program, folder)
        body, headers = write_load(folder)
        os.sched_setaffinity(0, {1})
        server = subprocess.Popen(["taskset", "-c", "0", program, "serve", f"digits={run}", "--http", f"127.0.0.1:{port}",
                                   "--threads", "1"], stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
            wait_until(lambda: ask(url, body, headers), url)
            turns = [turn(server, port, folder, options) for _ in range(options.rounds)]
        finally:
            server.terminate()
            server.wait()
    one = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    print(f"peak {one['peak']:.0f} answers/s; asked {one['offered']:.1f} times as often: goodput {one['goodput']:.2f} of the "
          f"peak, refusals p50 {one['p50']:.2f} ms, p99 {one['p99']:.2f} ms, {one['busy']:.2f} cores")


if __name__ == "__main__":
    main()
