"""What a broker has of topics, before they are read: partitions, offsets, size, times and the first messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.sources.kafka import Topics
from ticdc_lab.sources.kafka_reading import Place, Span, TopicReader, at_ms

SHOWN = 3
"""First messages that are shown, each of another partition where there are some."""

HEAD = 1_000
"""Messages of each partition that are looked at; of many partitions fewer."""

_MOST, _AT_LEAST, _MOST_BYTES = 8_000, 20, 64 << 20
_TIMED, _TEXT, _NAMED = 64, 160, 8


@dataclass(frozen=True, slots=True)
class Overview:
    """What there is of some topics."""

    spans: Mapping[Place, Span]  # first and end offset of each partition that is to be read
    bytes: int | None  # of all keys and values, about: as the first messages have them; None of no message
    # ``first_ms``, ``last_ms``: least timestamp of the first messages, and the greatest of all; None where the broker
    # does not report.
    first_ms: int | None
    last_ms: int | None
    # The first of some partitions: topic, partition, offset, time, key and value as text, cut to 160 characters.
    messages: tuple[dict[str, Any], ...]
    is_whole: bool = False  # whether all that is to be read was looked at
    left_out: tuple[str, ...] = ()  # what the broker keeps back, a sentence each

    @property
    def sentences(self) -> tuple[str, ...]:
        """In words, a sentence for each topic and one for the times."""
        said = []
        for name in sorted({topic for topic, _ in self.spans}):
            own = {partition: span for (topic, partition), span in sorted(self.spans.items()) if topic == name}
            filled = [f"{p}: {low:,}..{high - 1:,}" for p, (low, high) in own.items() if low < high]
            more = f" and {len(filled) - _NAMED} more" if len(filled) > _NAMED else ""
            empty = f"; {len(own) - len(filled)} empty" if len(filled) < len(own) else ""
            n = f"{len(own)} partition{'' if len(own) == 1 else 's'}"
            said.append(f"Topic {name}: {n}, offsets {', '.join(filled[:_NAMED]) or 'none'}{more}{empty}.")
        if self.first_ms is not None:
            until = "" if self.last_ms is None else f" to {at_ms(self.last_ms)}"
            said.append(f"Kafka's timestamps go from {at_ms(self.first_ms)}{until}.")
        return tuple(said)

    def facts(self) -> dict[str, object]:
        """The same for a program."""
        names = ("topic", "partition", "first_offset", "end_offset")
        return {
            "offsets": [dict(zip(names, (*at, *span), strict=True)) for at, span in sorted(self.spans.items())],
            "bytes_about": self.bytes, "first_ms": self.first_ms, "last_ms": self.last_ms,
            "first_messages": list(self.messages),
        }  # fmt: skip


def heads_of(topics: Topics) -> tuple[Overview, pa.Table]:
    """What a broker has of topics, and their first messages, 64 MB of them at most, in the order of offsets.

    Raises SourceError: the broker does not answer, refuses, or has no such topic; within ten seconds.
    """
    with TopicReader(topics) as reader:
        there, left_out = reader.spans(), reader.open_words
        spans = reader.bounds(there)
        starts = {at: max(first, there[at][0]) for at, (first, end) in sorted(spans.items())}
        filled = [at for at, first in starts.items() if first < spans[at][1]]
        each = min(HEAD, max(_AT_LEAST, _MOST // max(1, len(filled))))
        newest = [ms for ms in reader.newest_ms(filled[:_TIMED]).values() if ms is not None]
        read, size = list[pa.RecordBatch](), 0
        ends = {at: min(end, starts[at] + each) for at, (_, end) in spans.items()}
        for batch in reader.batches(starts, ends):
            read.append(batch)
            if (size := size + batch.nbytes) >= _MOST_BYTES:
                break
    is_whole = size < _MOST_BYTES and all(ends[at] >= end for at, (_, end) in spans.items())
    order = [(name, "ascending") for name in ("offset", "topic", "partition")]
    found = pa.Table.from_batches(read, arrow_schema(MESSAGES)).sort_by(order)
    return replace(_overview(spans, found, newest), is_whole=is_whole, left_out=left_out), found


def _overview(spans: Mapping[Place, Span], found: pa.Table, newest: Sequence[int]) -> Overview:
    if not found.num_rows:
        return Overview(spans, None, None, None, ())
    sizes = [pc.sum(pc.fill_null(pc.binary_length(found[name]), 0)).as_py() for name in ("key", "value")]
    n_messages = sum(max(0, end - first) for first, end in spans.values())
    oldest = pc.min(found["timestamp"]).as_py()
    return Overview(
        spans,
        round(sum(sizes) / found.num_rows * n_messages),
        None if oldest is None else round(oldest.timestamp() * 1000),
        max(newest, default=None),
        tuple(_shown(row) for row in _firsts(found)),
    )


def _firsts(found: pa.Table) -> list[dict[str, Any]]:
    rows = found.to_pylist()
    first_of_each = {(row["topic"], row["partition"]): row for row in reversed(rows)}
    chosen = [first_of_each[at] for at in sorted(first_of_each)][:SHOWN]
    chosen += [row for row in rows if row not in chosen][: SHOWN - len(chosen)]
    return chosen


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    stamp = row["timestamp"]
    time = "" if stamp is None else at_ms(round(stamp.timestamp() * 1000))
    texts = {name: _text(row[name]) for name in ("key", "value")}
    return {"topic": row["topic"], "partition": row["partition"], "offset": row["offset"], "time": time} | texts


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[: 4 * _TEXT].decode("utf-8", errors="backslashreplace")
    plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return plain if len(plain) <= _TEXT else plain[:_TEXT] + ".."
