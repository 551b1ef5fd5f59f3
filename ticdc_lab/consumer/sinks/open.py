"""A target by its name."""

from __future__ import annotations

from urllib.parse import unquote

from ticdc_lab.consumer.sinks import Sink
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.sources import local_path
from ticdc_lab.sources.change_log import ChangeLog


def open_sink(target: str, log: ChangeLog) -> Sink:
    """Open what a log is to be replayed into.

    Parameters
    ----------
    target
        ``duckdb:///FILE``, ``delta:FOLDER`` or ``mysql://USER@HOST:PORT[/DATABASE]``.
    log
        The decoded log that will be replayed.

    Returns
    -------
    Sink
        The target, for :func:`ticdc_lab.consumer.replay.replay`; its ``close`` lets go of it.

    Raises
    ------
    SourceError
        The target is of no known kind, cannot be opened, or the log was not decoded to where it can read it.
    """
    if target.startswith("duckdb:///"):
        from ticdc_lab.consumer.sinks.duckdb import DuckDBSink

        return DuckDBSink(target.removeprefix("duckdb:///"), files_of(log), log.protocol)
    if target.startswith("delta:"):
        from ticdc_lab.consumer.sinks.delta import DeltaSink

        return DeltaSink(target.removeprefix("delta:"), log.events)
    if target.startswith("mysql://"):
        from ticdc_lab.consumer.sinks.mysql import MySQLSink

        return MySQLSink(target, files_of(log), log.protocol)
    raise SourceError(
        f"{without_secrets(target)} is no target that is known.",
        hint="Targets are duckdb:///FILE, delta:FOLDER and mysql://USER@HOST:PORT.",
    )


def files_of(log: ChangeLog) -> list[str]:
    """The Parquet files of a decoded log, which lie on this machine.

    Raises
    ------
    SourceError
        They do not.
    """
    paths = [local_path(unquote(f)) for f in log.decoded.inputFiles()] if log.counts is not None else []
    if log.counts is None or any(p is None or p.suffix != ".parquet" for p in paths):
        raise SourceError(
            f"{log.source} is not decoded to a folder of this machine, where its rows are merged.",
            hint="Call log.materialise(folder) first, with a local folder.",
        )
    return sorted(str(p) for p in paths)
