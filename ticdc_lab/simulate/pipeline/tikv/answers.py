"""The answers that clients of a store wait for."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Send
from ticdc_lab.simulate.pipeline.kv_messages import BatchResponses, Refusal
from ticdc_lab.simulate.pipeline.tikv.store_state import Batch, Entry
from ticdc_lab.simulate.pipeline.tikv.turn import Turn


def answer(turn: Turn, region: int, entry: Entry, refusal: Refusal | None = None) -> None:
    """Note that a region's part of a batch is done or refused, and answer the client after the last."""
    batch = turn.state.batches.get(entry.batch)
    if batch is None:
        return
    client, number, results, left = batch
    left -= {region}
    if refusal is not None:
        results = tuple(refusal if i in entry.commands else r for i, r in enumerate(results))
    if left:
        batches = turn.state.batches.set(entry.batch, Batch(client, number, results, left))
    else:
        turn.out.append(Send(client, BatchResponses(number, results)))
        batches = turn.state.batches.delete(entry.batch)
    turn.state = turn.state._replace(batches=batches)
