"""Rows as JSON are the same text from every engine."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engines import session_of, using

from ticdc_lab.encode.export import write

ROWS = """
SELECT CAST('1.50' AS DECIMAL(10, 2)) AS price, CAST(0.1 AS FLOAT) AS f, CAST('1e20' AS DOUBLE) AS d,
CAST(0.0005 AS DOUBLE) AS small, CAST(-0.0 AS DOUBLE) AS zero, CAST('NaN' AS DOUBLE) AS nan,
CAST('2026-01-02 03:04:05.678912' AS TIMESTAMP_NTZ) AS at, TIMESTAMP '2026-01-02 03:04:05' AS moment,
DATE '2026-01-02' AS day, X'00FF' AS bytes, 'a"\\u0001é' AS text, CAST(NULL AS INT) AS none, true AS yes,
named_struct('x', CAST(NULL AS STRING), 'y', array(1.50, NULL)) AS nested
UNION ALL SELECT NULL, CAST(3 AS FLOAT), CAST('12345678.9' AS DOUBLE), CAST('0.001' AS DOUBLE), CAST(9999999 AS DOUBLE),
CAST('1e7' AS DOUBLE), NULL, NULL, NULL, NULL, NULL, 5, false, NULL
"""


def lines(engine: str) -> list[str]:
    """What an engine writes of the same rows."""
    with using(engine), TemporaryDirectory() as folder:
        write(session_of(engine).sql(ROWS), f"{folder}/rows.jsonl")
        return sorted(Path(folder, "rows.jsonl").read_text().splitlines())


def test_both_engines_write_the_same() -> None:
    """Digits of decimals, floats as Java has them, moments, bytes, nulls that are kept."""
    expected = lines("spark")
    assert lines("embedded") == expected
    assert '"price":1.50' in expected[0] + expected[1] and '"d":1.0E20' in expected[0] + expected[1]


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_it_is_json(engine: str) -> None:
    """Every line can be read back."""
    assert {json.loads(line)["yes"] for line in lines(engine)} == {True, False}
