"""Panels of a small log, for a notebook that links them."""

from __future__ import annotations

import tempfile
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from summaries import T0, summary, ts

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.events.schema import DECODED
from ticdc_lab.tables.browse import Browser
from ticdc_lab.widgets.browse_panel import browse_panel
from ticdc_lab.widgets.findings_panel import findings_panel
from ticdc_lab.widgets.log_panel import log_panel
from ticdc_lab.widgets.panel import Panel


def row(partition: int, offset: int, at_s: float, key: int) -> dict[str, Any]:
    """A row change of shop.orders."""
    image = [{"name": "id", "mysql_type": "int", "value": str(key), "is_key": True, "flags": None}]
    place = {"topic": "t", "partition": partition, "offset": offset, "seq": 0, "protocol": "open-protocol"}
    names = {"kind": "row", "commit_ts": ts(at_s), "schema_name": "shop", "table_name": "orders", "op": "update"}
    return place | names | {"columns": image, "before": image, "change_hash": offset}


def panels() -> tuple[Panel[Any], Panel[Any], Panel[Any], Panel[Any]]:
    """Watermarks, load, findings and messages of one log: six messages in two partitions, a row that moved."""
    rows = [row(p, o, p + o / 10, 7 if o >= 3 else o) for p in (0, 1) for o in range(6)]
    path = f"{tempfile.mkdtemp()}/log.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), path)
    s = summary()
    second = s.findings.assign(key="id=8", offset=5, evidence=[[{"partition": 0, "offset": 5, "commit_ts": T0}]])
    found = pd.concat([s.findings, second], ignore_index=True)
    marks, load = log_panel(s), log_panel(s)
    load.controls["picture"].value = "load by partition"
    return marks, load, findings_panel(found), browse_panel(Browser([path]))
