"""The torture log, of the tables alone to which more happens than that they are created: every type of DDL job."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path

from conftest import ROOT
from pyspark.sql import SparkSession

from ticdc_lab import load
from ticdc_lab.consumer import compare, replay
from ticdc_lab.consumer.replay_plan import changes_at
from ticdc_lab.consumer.sinks import Sink
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables import knowledge

TORTURE = ROOT / "tests/data/torture"
NOT_COMPARED = {
    "torture.multi.line": "the rows of a recovered table are not in the log again",
    "torture.npk": "changes its handle key",
    "torture.p_ex": "EXCHANGE PARTITION swapped rows",
    "torture.p_list": "DROP PARTITION removed rows",
    "torture.p_range": "TRUNCATE PARTITION removed rows",
}


@cache
def types() -> dict[int, str]:
    """TiDB's own name of the type of each DDL job, by commit_ts."""
    with gzip.open(TORTURE / "truth_torture.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {t["commit_ts"]: t["type_name"] for t in map(json.loads, lines) if t["kind"] == "ddl"}


def log(spark: SparkSession, folder: Path) -> ChangeLog:
    """The log, decoded; its DDL jobs have all types that the whole torture log has."""
    with gzip.open(TORTURE / "messages_canal-json-tidb.jsonl.gz", "rt", encoding="utf-8") as lines:
        messages = [(line, json.loads(base64.b64decode(json.loads(line)["value"]))) for line in lines]
    ddl = [m for _, m in messages if m["isDdl"]]
    more = {(m["database"], m["table"]) for m in ddl if types()[m["_tidb"]["commitTs"]] != "create table"}
    renamed = {("torture", name) for name in ("like_z", "renamed_z", "r1", "r2", "r_tmp", "fk_p", "chk")}
    path = folder / "log.jsonl"
    kept = [(line, m) for line, m in messages if not m["table"] or (m["database"], m["table"]) in more | renamed]
    assert {types()[m["_tidb"]["commitTs"]] for _, m in kept if m["isDdl"]} == set(types().values())
    path.write_text("".join(line for line, _ in kept), encoding="utf-8")
    return load(spark, str(path)).materialise(str(folder / "decoded"))


def check(log: ChangeLog, sink: Sink) -> list[str]:
    """Replay it. Each DDL changes tables as upstream, or a note names its reason; no table differs. The notes."""
    known = knowledge(log.events)
    done = replay(log, sink, known=known)
    said = [" ".join(map(str, note)) for note in done.notes]
    noted = {ts for ts, *_ in done.notes}
    for ts in {d[0] for d in known.ddl}:
        assert ts is not None
        kinds = {step.kind for step in changes_at(known.catalog, known.ddl, ts)}
        if sink.name.startswith("mysql"):  # it runs the statement
            assert kinds <= {"nothing"} or kinds - {"doubt"} or ts in noted, (types()[ts], kinds)
        else:
            assert kinds - {"nothing", "doubt"} or ts in noted, (types()[ts], kinds)
        assert "doubt" not in kinds or ts in noted, types()[ts]
    found = {c.table: (c.different, c.why_not) for c in compare(log, sink, done.progress, known=known)}
    assert {table: different for table, (different, why) in found.items() if not why and different} == {}
    why_not = {table: why for table, (_, why) in found.items() if why}
    assert why_not.keys() == NOT_COMPARED.keys()
    assert all(reason in why_not[table] for table, reason in NOT_COMPARED.items())
    assert len(found) > 2 * len(why_not)
    return said
