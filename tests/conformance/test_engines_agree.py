"""One answer to every question, whichever engine computes it and however the log is cut and ordered.

Spark is what the pipeline is specified on; the embedded engine, and the bare kernels without any session, must show the
same. The log contains golden topics, with repeats and stalls, and small random ones with planted faults.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit_tables import audit_table
from conftest import events_frame, golden
from engines import session_of, using

from ticdc_lab import load
from ticdc_lab.dispatch.infer import move_causes_table
from ticdc_lab.engine import shuffle
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.watermarks import partitions_of, progress_of, timeline_of, topics_of

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))
sys.path.insert(0, str(Path(__file__).parent))
import generated_topics as generated
from questions import QUESTIONS

TOPICS = {
    "messages_canal-json-tidb_small.jsonl.gz": "true",
    "messages_open-protocol_small-dup-restart.jsonl.gz": "offset < 150",
    "messages_open-protocol_stalls.jsonl.gz": "offset < 250",
}
"""Recordings, and which part of each is enough for what the others are missing: repeats, and stalls."""

pytestmark = pytest.mark.usefixtures("interpreted")

FAULTS = (generated.late_row, generated.row_elsewhere, generated.watermark_lost, generated.watermarks_lost)


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded engine cuts keys into as many parts as for everybody, most tests into a few."""
    monkeypatch.setattr(shuffle, "BUCKETS", 16)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Give the events of all topics, each under a name of its own."""
    folder = tmp_path_factory.mktemp("log")
    with using("embedded"):
        spark = session_of("embedded")
        whole = [load(spark, str(golden(name))).events.where(part).toArrow() for name, part in TOPICS.items()]
        small = [fault(generated.topic(seed)) for seed, fault in enumerate(FAULTS)] + [generated.topic(9).events()]
        made = [events_frame(spark, events).toArrow() for events in small]
    named = [_under(f"golden-{i}", t) for i, t in enumerate(whole)]
    named += [_under(f"random-{i}", t) for i, t in enumerate(made)]
    together = pa.concat_tables(named, promote_options="default")
    pq.write_table(together, folder / "whole.parquet")
    return pq.read_table(folder / "whole.parquet")


def _under(topic: str, events: pa.Table) -> pa.Table:
    at = events.schema.get_field_index("topic")
    return events.set_column(at, "topic", pa.array([topic] * events.num_rows, pa.string()))


@pytest.fixture(scope="module")
def as_recorded(log: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a folder of one file."""
    folder = tmp_path_factory.mktemp("as-recorded")
    pq.write_table(log, folder / "part-0.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def shuffled(log: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a folder of five files in which the events lie in no order."""
    folder, order = tmp_path_factory.mktemp("shuffled"), list(range(log.num_rows))
    random.Random(5).shuffle(order)
    for i in range(5):
        pq.write_table(log.take(order[i::5]), folder / f"part-{i}.parquet")
    return str(folder)


def answer(question: str, folder: str, engine: str) -> list[str]:
    """The rows of the answer, in no order."""
    with using(engine):
        return rows(QUESTIONS[question](session_of(engine).read.parquet(folder)).toArrow())


def rows(found: pa.Table) -> list[str]:
    """Each row as text, sorted."""
    return sorted(json.dumps(r, default=str, sort_keys=True) for r in found.to_pylist())


@pytest.mark.parametrize("question", QUESTIONS)
def test_engines_agree(question: str, as_recorded: str, shuffled: str) -> None:
    """Spark gives of the log as it was recorded the rows that the embedded engine gives of it cut and ordered again."""
    expected = answer(question, as_recorded, "spark")
    assert expected
    assert answer(question, shuffled, "embedded") == expected


KERNELS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "watermark_timeline": lambda log: timeline_of(LogFacts.of(log)),
    "partition_progress": lambda log: progress_of(LogFacts.of(log)),
    "partition_watermarks": lambda log: partitions_of(LogFacts.of(log)),
    "topic_watermarks": lambda log: topics_of(progress_of(LogFacts.of(log))),
    "move_causes": move_causes_table,
    "audit": lambda log: audit_table(log, protocol="canal-json"),
}
"""Kernels that need no session, by the question they answer."""


@pytest.mark.parametrize("question", KERNELS)
def test_the_bare_kernel_says_the_same(question: str, log: pa.Table, shuffled: str) -> None:
    """Of a table in memory, in its order and in any other, what an engine shows of files."""
    expected = answer(question, shuffled, "embedded")
    assert expected
    assert rows(KERNELS[question](log)) == expected
    order = list(range(log.num_rows))
    random.Random(6).shuffle(order)
    assert rows(KERNELS[question](log.take(order))) == expected


def test_a_difference_would_be_seen(as_recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an engine that loses a row is not taken for one that agrees."""
    real: Callable[[Any], Any] = QUESTIONS["partition_progress"]
    expected = answer("partition_progress", as_recorded, "embedded")
    monkeypatch.setitem(
        QUESTIONS, "partition_progress", lambda events: real(events.where("NOT (offset = 3 AND partition = 0)"))
    )
    assert answer("partition_progress", as_recorded, "embedded") != expected


def test_every_public_transform_is_asked() -> None:
    """A new transform is given its question, or a reason why it has none."""
    asked = {name.split()[0] for name in QUESTIONS} | set(NOT_ASKED)
    assert set(transforms()) - asked == set()


_STEP = "a step of a transform that is asked"
NOT_ASKED = {
    **dict.fromkeys(("changes_of", "rows_of"), "a step of table_history, and of a Delta sink's batch"),
    **dict.fromkeys(("consumed", "repeats_of", "log_breaches", "row_history", "log_facts", "from_first_row"), _STEP),
    **dict.fromkeys(("first_changes", "with_columns_named", "with_changes"), _STEP),
    **dict.fromkeys(("restored_transactions", "of_restored", "messages_of"), _STEP),
    "dispatch_by_rules": "dispatched asks it",
    "setting_effects": "asks guarantees of dispatched once a setting; tests/dispatch/test_settings.py",
    **dict.fromkeys(
        ("judged", "log_marks", "by_watermark", "stated_values", "resolved_values", "counted_load"),
        _STEP,
    ),
    **dict.fromkeys(("narrow_images", "rows_judged"), "a step of audit"),
    "by_own_names": "needs rows of avro and the names of its tables; tests/dispatch/test_own_names.py",
    "in_server_zone": "needs rows of debezium with a TIMESTAMP; tests/dispatch/test_zones.py",
    "consumer_matrix": "asks consumption once a scenario",
    "differences": "compares two logs; tests/transactions/test_differences.py",
    "fidelity": "compares two logs; tests/encode/test_fidelity.py",
    "repartitioned": "needs a plan of another number of partitions; tests/repartition",
}
"""Transforms without a question of their own, and why."""


def transforms() -> Iterator[str]:
    """Names of all public functions of the package from a frame of events to a frame."""
    import ast

    package = Path(__file__).parents[2] / "ticdc_lab"
    sources = (path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py")))
    for source in (source for source in sources if "-> DataFrame" in source):
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _is_transform(node):
                yield node.name


def _is_transform(node: Any) -> bool:
    import ast

    first = node.args.args[:1]
    takes = bool(first) and first[0].arg == "events" and first[0].annotation is not None
    return bool(takes and node.returns is not None and ast.unparse(node.returns) == "DataFrame")
