"""Measure the stores of the pipeline alone: prewrite and commit of rows over three stores, streamed to one subscriber.

python benchmarks/tikv.py      # CPU µs a row, both phases, replication and streaming, without the kernel
"""

from __future__ import annotations

import time
from typing import Any

from ticdc_lab.machines.machine import Fired, Now, Received, Send, Wake
from ticdc_lab.simulate.kernel import no_cycles
from ticdc_lab.simulate.pipeline.cdc_messages import Register
from ticdc_lab.simulate.pipeline.kv_messages import PUT, BatchCommands, Commit, Mutation, Prewrite
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, Raw, key_of
from ticdc_lab.simulate.pipeline.tikv import TikvStore, initial_regions

ROWS, KEYS = 60_000, 100_000
STORES = ("tikv-1", "tikv-2", "tikv-3")
VALUE = Raw((1,), (1,))


class Stores:
    """Three stores that hear each other at once; tikv-1 leads the only region."""

    def __init__(self) -> None:
        settings = TikvSettings()
        self.store = TikvStore(settings, STORES, initial_regions(settings))
        self.states = {name: self.store.start(name, Now(0))[0] for name in STORES}
        self.at_us = 0
        self.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
        self.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))

    def take(self, store: str, event: Any) -> None:
        """Let a store take an event, and the others what comes of it."""
        self.states[store], outputs = self.store.step(self.states[store], event, Now(self.at_us))
        for output in outputs:
            if isinstance(output, Send) and output.to in self.states:
                self.take(output.to, Received(store, output.message))
            elif isinstance(output, Wake) and output.name == "apply":
                self.at_us += output.after_us
                self.take(store, Fired("apply"))


def batches(rows_a_batch: int, rows_a_transaction: int) -> list[BatchCommands]:
    """Give batches of prewrites, each followed by one of their commits."""
    made: list[BatchCommands] = []
    ts = row = 0
    while row < ROWS:
        prewrites, commits = [], []
        for _ in range(rows_a_batch // rows_a_transaction):
            ts += 10
            keys = tuple(key_of(104, (row + i) * 7 % KEYS) for i in range(rows_a_transaction))
            row += rows_a_transaction
            prewrites.append(Prewrite(1, 1, ts, keys[0], tuple(Mutation(key, PUT, VALUE) for key in keys)))
            commits.append(Commit(1, 1, ts, ts + 5, keys))
        made += [BatchCommands(ts, tuple(prewrites)), BatchCommands(ts + 1, tuple(commits))]
    return made


def main() -> None:
    for rows_a_batch, rows_a_transaction in ((200, 200), (200, 5), (200, 1), (20, 5)):
        stores, events = Stores(), [Received("tidb", b) for b in batches(rows_a_batch, rows_a_transaction)]
        with no_cycles():
            started = time.process_time()
            for event in events:
                stores.take("tikv-1", event)
            us = (time.process_time() - started) / ROWS * 1e6
        print(f"batches of {rows_a_batch} rows, transactions of {rows_a_transaction}: {us:.1f} µs a row")


if __name__ == "__main__":
    main()
