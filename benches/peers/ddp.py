"""Steps per second of two processes with DistributedDataParallel over Gloo: `ddp.py MODEL SECONDS`, one thread each."""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import train_step

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
PROCESSES = 2


def work(rank, name, seconds, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES)
    # Every second record is this process's.
    model, x, y = train_step.prepared(name, slice(rank, None, PROCESSES))
    model = nn.parallel.DistributedDataParallel(model)
    step = train_step.taken(model, train_step.OPTIMIZERS[name](model.parameters()), x, y)
    times = []
    over = torch.zeros(1)
    start = time.perf_counter()
    while not over.item():
        begun = time.perf_counter()
        # Large models take a second for this.
        for _ in range(4):
            step()
        times.append((time.perf_counter() - begun) / 4)
        # Both end after the same step.
        over.fill_(float(time.perf_counter() - start > seconds and len(times) > 5))
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(1 / statistics.median(times[2:]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (sys.argv[1], float(sys.argv[2]), os.path.join(folder, "meeting")), nprocs=PROCESSES)
