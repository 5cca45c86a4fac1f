"""A member of a Gloo group, driven over its input and output by the bench of salamander-net.

Each line of input is a command, and each has one line of output:
    join PREFIX RANK SIZE PORT      makes the group; rank 0 of the first one has the store
    reduce LEN WARMUP OPS ORDER     sums in place, in the order that Gloo has; prints seconds and CPU
                                    seconds of all the sums
    survive LEN PREFIX RANK SIZE    sums until a member is gone, makes the group again without it,
                                    sums; prints the clock when that sum is right
"""

import os
import sys
import time
from datetime import timedelta

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=30)
store = None


def init(prefix, rank, size):
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(prefix, store), rank=rank, world_size=size, timeout=TIMEOUT
    )


def join(prefix, rank, size, port):
    global store
    if store is None:
        is_master = int(rank) == 0
        store = dist.TCPStore(
            "127.0.0.1", int(port), None, is_master, TIMEOUT, wait_for_workers=False
        )
    init(prefix, int(rank), int(size))
    return "joined"


def reduce(length, warmup, ops, _order):
    values = torch.ones(int(length))
    for _ in range(int(warmup)):
        dist.all_reduce(values)
    dist.barrier()
    cpu, start = time.process_time(), time.perf_counter()
    for _ in range(int(ops)):
        dist.all_reduce(values)
    return f"{time.perf_counter() - start} {time.process_time() - cpu}"


def survive(length, prefix, rank, size):
    values = torch.ones(int(length))
    try:
        while True:
            values.fill_(1)
            dist.all_reduce(values)
    except Exception:
        pass
    dist.destroy_process_group()
    init(prefix, int(rank), int(size))
    values.fill_(1)
    dist.all_reduce(values)
    if not bool((values == int(size)).all()):
        return "wrong"
    return str(time.clock_gettime_ns(time.CLOCK_MONOTONIC))


def leave():
    dist.destroy_process_group()
    return "left"


COMMANDS = {"join": join, "reduce": reduce, "survive": survive, "leave": leave}
print("ready", flush=True)
for line in sys.stdin:
    command, *words = line.split()
    print(COMMANDS[command](*words), flush=True)
# Leaving groups behind in order is not what is measured.
os._exit(0)
