"""Rows become the same lines of JSON on either engine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import engines
import pyarrow as pa
import pytest
from conftest import golden

from ticdc_lab import load
from ticdc_lab.engine.json_lines import json_objects, write_lines

ENGINES = ("spark", "embedded")
ODD = """
select 1 as i, cast(null as string) as s, x'00ff' as b, 1.5D as d, cast('NaN' as double) as nan, true as t,
    cast(12.30 as decimal(10, 2)) as x, cast(1e-9 as decimal(20, 10)) as small, date '2024-02-29' as day,
    timestamp '2024-01-02 03:04:05.123456' as at, array(1, null, 3) as a, named_struct('p', x'61', 'q', null) as r,
    array(named_struct('c', cast(1.0 as decimal(3, 1)))) as rs, map('k', 'v') as m, 'é\\n"<' as text
"""


def written(rows: Any, folder: Path, *, packed: bool) -> list[str]:
    """Lines of all files, in their order."""
    reading = gzip.decompress if packed else bytes
    return [
        line for f in write_lines(rows, folder, gzip=packed) for line in reading(f.read_bytes()).decode().splitlines()
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_log_has_the_same_lines(tmp_path: Path, packed: bool) -> None:
    """Letter for letter: 2,241 events with their images, nulls kept."""
    found = {}
    for engine in ENGINES:
        with engines.using(engine):
            log = load(engines.session_of(engine), str(golden("messages_canal-json-tidb_small.jsonl.gz")))
            rows = log.events.drop("file", "raw_bytes").repartition(3, "offset")
            found[engine] = sorted(written(rows, tmp_path / engine, packed=packed))
    assert len(found["spark"]) == 2241
    assert found["embedded"] == found["spark"]
    assert '"start_ts":null' in found["spark"][0]


def test_every_type_is_written_alike(tmp_path: Path) -> None:
    """Of decimals every digit, of moments milliseconds, of binary base64, of no number its name."""
    found = {}
    for engine in ENGINES:
        with engines.using(engine):
            (found[engine],) = written(engines.session_of(engine).sql(ODD), tmp_path / engine, packed=False)
    assert found["embedded"] == found["spark"]
    told = json.loads(found["spark"])
    assert (told["b"], told["nan"], told["r"], told["a"]) == ("AP8=", "NaN", {"p": "YQ==", "q": None}, [1, None, 3])


@pytest.mark.parametrize("text", ["\\u001f", '"\\u00e9\\\\u00ab"', "\x1f\\\x1e", "\\\\u00ff", "a\x0b\\u000b"])
def test_text_that_looks_like_an_escape_stays_as_it_is(text: str) -> None:
    """As in a JSON value of TiDB with a control character."""
    (line,) = json_objects(pa.record_batch({"c": [text]}))
    assert json.loads(line) == {"c": text}


def test_files_come_in_the_order_of_partitions(tmp_path: Path) -> None:
    """More than ten of them, whose names a sorting by letters would mix."""
    for engine in ENGINES:
        with engines.using(engine):
            rows = engines.session_of(engine).range(0, 24, 1, 12)
            found = [json.loads(line)["id"] for line in written(rows, tmp_path / engine, packed=False)]
            assert found == list(range(24)), engine
