"""Makes `data/messages_open-protocol_stalls.jsonl.gz`: a simulated changefeed whose watermarks stand, and why.

``python tests/stalls_sample.py`` writes it again.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.simulate.pipeline.log import messages, write_rows
from ticdc_lab.simulate.pipeline.model import play
from ticdc_lab.simulate.scenario import scenario_from_text

OUT = Path(__file__).resolve().parent.parent / "data/messages_open-protocol_stalls.jsonl.gz"
SCENARIO = """
model: pipeline
seed: 3
until: 41s
cluster: {captures: 3, tables: 4}
load: {rows_per_s: 80, until: 39s}
settings: {capture: {order: table}, scheduler: {tick: 500ms, poll: 500ms}, downstream: {ddl: 2s, partitions: 4}}
events:
  - {at: 5s, long_transaction: 1, hold: 3s, rows: 3}
  - {at: 13s, add_column: 1, column: remark}
  - {at: 20.3s, crash: capture-1}
"""
SILENT, FROM_US, END_US = 2, 30_000_000, 38_000_000
"""A partition whose watermarks are lost, as by a broker that stands; from when, and when the recording ends."""


def stalls_log() -> pa.Table:
    """Messages of the scenario as a recording that ends too early; offsets are as if the lost had never been sent."""
    log = play(scenario_from_text(SCENARIO)).run.log
    silent = pc.and_(pc.equal(log["kind"], "watermark"), pc.equal(log["target_partition"], SILENT))
    lost = pc.and_(silent, pc.greater(log["arrived_us"], FROM_US))
    kept = pc.and_(pc.invert(lost), pc.less(log["arrived_us"], END_US))
    return messages(log.filter(kept), "open-protocol")


if __name__ == "__main__":
    write_rows(stalls_log(), str(OUT))
