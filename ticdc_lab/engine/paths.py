"""Paths as the readers of each engine take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from ticdc_lab.engine.sessions import is_sail
from ticdc_lab.errors import EngineError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def verbatim(spark: SparkSession, path: Path) -> str:
    """A path of this machine for a reader of files, which takes some characters for a pattern.

    Spark decodes none and wants a backslash before them; the embedded engine decodes first, and takes what was encoded
    as it is.
    """
    whole = str(path.resolve())
    return "file://" + (quote(whole) if is_sail(spark) else re.sub(r"([\[\]{}*?\\])", r"\\\1", whole))


def parquet_below(spark: SparkSession, root: Path, files: Sequence[Path]) -> DataFrame:
    """Parquet files in folders whose names give columns (``partition=3``); those in subfolders too.

    Raises EngineError: the embedded engine would read other files than these.
    """
    if not is_sail(spark):
        base = f"file://{root.resolve()}"  # no pattern, so taken as it is
        return spark.read.option("basePath", base).parquet(*(verbatim(spark, f) for f in files))
    found = spark.read.parquet(verbatim(spark, root))  # of named files it reads no column from the folders
    read = {unquote(name.removeprefix("file://")) for name in found.inputFiles()}
    if read != {str(f.resolve()) for f in files}:
        raise EngineError(
            f"{root}: the embedded engine reads {len(read)} files in it, expected {len(files)}.",
            hint="Run it with --engine spark; in Python: ticdc_lab.session('spark').",
        )
    return found


def stored_parquet(spark: SparkSession, *paths: str, schema: StructType | None = None) -> DataFrame:
    """Parquet that this package wrote: folders or files, paths or URLs.

    Raises SourceError: one of this machine is not there: Spark raises, the embedded engine reads nothing from it.
    """
    if is_sail(spark):
        for path in paths:
            if not Path(unquote(path.removeprefix("file://")) if path.startswith("file://") else path).exists():
                raise SourceError(f"{path} is not there any more.", hint="Open the log again: `ticdc_lab.open(SOURCE)`")
    return (spark.read if schema is None else spark.read.schema(schema)).parquet(*paths)
