"""Which logs Spark compiles nothing for. No Spark."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from ticdc_lab.engine.sessions import INTERPRETED_EVENTS, interpreted

CODEGEN = "spark.sql.codegen.wholeStage"


@pytest.mark.parametrize(
    ("events", "master", "during"),
    [
        (INTERPRETED_EVENTS, "local[2]", "false"),
        (INTERPRETED_EVENTS + 1, "local[2]", "true"),
        (None, "local[2]", "true"),
        (5, "spark://h:7077", "true"),
    ],
)
def test_a_small_log_is_interpreted_and_the_session_is_the_callers_again(
    events: int | None, master: str, during: str
) -> None:
    """Also if the replay ends in an error; a cluster is left as it is."""
    settings: dict[str, Any] = {CODEGEN: "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = dict(settings)
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    spark = cast("SparkSession", SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(master=master)))
    with suppress(ValueError), interpreted(spark, events):
        assert settings[CODEGEN] == during
        raise ValueError
    assert settings == before
