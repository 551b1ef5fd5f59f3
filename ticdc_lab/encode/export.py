"""Frames to files that people can take away: JSON Lines (plain or gzip), Parquet or Delta."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_lab.errors import SourceError, missing_folder
from ticdc_lab.errors.whole_files import bare_path, names_table, room_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(frame: DataFrame, out: str) -> None:
    """Write a frame, its partitions in parallel.

    Parameters
    ----------
    frame
        Any frame; binary is written in base64 where the file is text.
    out
        ``*.parquet``: a folder of Parquet files. ``DIR/``, ``DIR.delta``, a folder that is there, or a URL: a Delta
        table. Anything else: one local file of JSON Lines, gzip where it ends with ``.gz``; null fields are kept, rows
        lie in the order of the frame's partitions, beside each ``*_ts`` are its digits as ``*_ts_text``, which no
        reader of JSON rounds. What is there is replaced, but written to if it is a device or a pipe.

    Raises
    ------
    SourceError
        The folder that ``out`` should lie in does not exist, or no space is left there.
    """
    with room_for(out):
        _write(frame, out)


def _write(frame: DataFrame, out: str) -> None:
    if is_lines(out):
        _write_lines(frame, Path(bare_path(out)).absolute())
    elif out.rstrip("/").endswith(".parquet"):
        frame.write.mode("overwrite").parquet(out)
    else:
        from ticdc_lab.engine.delta_table import replace_table

        replace_table(frame, out)


def is_lines(out: str) -> bool:
    """Whether :func:`write` makes JSON Lines of a path."""
    return not out.rstrip("/").endswith(".parquet") and not names_table(out)


def require_apart(source: str, *outs: str | None) -> None:
    """Raise :class:`SourceError` where writing to one of ``outs`` would replace ``source`` or what it lies in."""
    recording = Path(bare_path(source)).resolve()
    for out in outs:
        if out and (place := Path(bare_path(out)).resolve()) in (recording, *recording.parents):
            raise SourceError(
                f"Writing to {out} would destroy the recording {source}: {place} is it, or contains it.",
                hint="Name another place with --out.",
            )


def _write_lines(frame: DataFrame, out: Path) -> None:
    from ticdc_lab.engine.json_lines import write_lines

    if not out.parent.is_dir():
        raise missing_folder(out)
    # above 2^53 jq and JavaScript round a number: a TSO is one
    texts = {f"{c}_text": frame[c].cast("string") for c, kind in frame.dtypes if c.endswith("_ts") and kind == "bigint"}
    is_device = out.exists() and not out.is_file()
    with tempfile.TemporaryDirectory(prefix="ticdc_lab_", dir=None if is_device else out.parent) as folder:
        parts = write_lines(
            frame.withColumns(texts) if texts else frame, Path(folder) / "parts", gzip=out.suffix == ".gz"
        )
        whole = out if is_device else Path(folder) / "whole"
        with whole.open("wb") as target:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        if not is_device:
            whole.replace(out)
