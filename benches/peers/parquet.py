"""Rows per second (in millions) of pyarrow with one thread: `parquet.py FILE`."""
import statistics
import sys
import time

import pyarrow.parquet as pq

rates = []
for _ in range(5):
    begun = time.perf_counter()
    rows = 0
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(batch_size=8192, use_threads=False):
        rows += batch.num_rows
    rates.append(rows / 1e6 / (time.perf_counter() - begun))
print(statistics.median(rates))
