"""What a shell offers at the Tab key: files, protocols and dispatchers, and the tables of the log that is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_LOOKED_AT = 2_000
"""Messages of a log's first file in which tables are looked for: the shell waits."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def files(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files and folders, which the shell itself lists."""
    return [CompletionItem(begun, type="file")]


def protocols(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Protocols that can be read."""
    from ticdc_lab.codecs import PROTOCOLS

    return _that_begin(("auto", *PROTOCOLS), begun)


def written_protocols(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Protocols that can be written."""
    from ticdc_lab.codecs.registry import WRITTEN

    return _that_begin(WRITTEN, begun)


def strategies(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Dispatchers."""
    from ticdc_lab.dispatch.names import STRATEGIES

    return _that_begin([*STRATEGIES], begun)


def tables(context: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Tables in the first messages of the log, if it is a capture file or Parquet; several are separated by commas."""
    before, comma, last = begun.rpartition(",")
    # of an option whose value is still to come, click leaves what precedes it unread
    source = context.params.get("source") or next((word for word in context.args if not word.startswith("-")), None)
    found = tables_of(str(source), str(context.params.get("protocol") or "auto")) if source else []
    return _that_begin([f"{before}{comma}{name}" for name in found if name.startswith(last)], begun)


def tables_of(source: str, protocol: str = "auto") -> list[str]:
    """``SCHEMA.TABLE`` of the first messages of a file; none where nothing can be read."""
    import pyarrow as pa

    from ticdc_lab.codecs import decoder, detect
    from ticdc_lab.errors import TiCDCLabError
    from ticdc_lab.sources import pieces
    from ticdc_lab.sources.places import data_files

    try:
        first = (data_files(source) or [Path(source)])[:1]
        found = pieces.of_parquet(first) if first[0].suffix == ".parquet" else pieces.of_lines(first)
        if not found:
            return []
        messages = next(batch for batch, _ in pieces.read_piece(*found[0]) if batch.num_rows).slice(0, _LOOKED_AT)
        told = detect(pa.Table.from_batches([messages.slice(0, 256)]), protocol=protocol, source=source)
        events = pa.Table.from_batches(decoder(told.protocol, images=False)(iter((messages,))))
    except (OSError, StopIteration, TiCDCLabError, pa.ArrowException):
        return []
    names = zip(*(events[name].to_pylist() for name in ("kind", "schema_name", "table_name")), strict=True)
    return sorted({f"{schema}.{table}" for kind, schema, table in names if kind == "row"})


def _that_begin(names: list[str] | tuple[str, ...], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]
