"""Messages to events as a DataFrame transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from ticdc_lab.codecs.known import NOTHING, Known
from ticdc_lab.codecs.registry import KERNELS, PROTOCOLS, codec_of
from ticdc_lab.errors import ProtocolError
from ticdc_lab.schema import DECODED, require_columns

ROWS_A_PASS = 2_500
"""Messages decoded at once: what they fill stays in a core's cache (measured: a fifth faster than 10,000)."""

Batches = Iterator[pa.RecordBatch]


def require_protocol(protocol: str) -> None:
    """Raise :class:`ProtocolError` unless ``protocol`` can be decoded."""
    if protocol not in PROTOCOLS:
        raise ProtocolError(
            f"Protocol {protocol!r} is unknown; expected one of {', '.join(PROTOCOLS)} or auto.",
            hint="Name the protocol of the changefeed's sink-uri (its `protocol=` parameter).",
        )


def decode(messages: DataFrame, *, protocol: str, images: bool = True, known: Known = NOTHING) -> DataFrame:
    """Decode messages to events; what cannot be decoded stays in the frame with its reason.

    Works on a stream as on a table: each message is decoded by itself, from what is in it and what is ``known``.

    Parameters
    ----------
    messages
        Columns of :data:`ticdc_lab.schema.MESSAGES`; timestamp and headers are not read.
    protocol
        One of :data:`PROTOCOLS`.
    images
        False leaves ``columns`` and ``before`` null; everything else, the hashes too, is the same.
    known
        Schemas and places that some protocols need; :func:`ticdc_lab.load.load` finds them.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.schema.DECODED`: events with ``error_class`` null, and one row for each message that could
        not be decoded. A message is decoded whole or not at all, so messages in = messages with ``seq`` 0 and no
        error + rows with an error.

    Raises
    ------
    ProtocolError
        The protocol is unknown.

    References
    ----------
    `design/protocols.md` sections 1 and 5; golden README section 5.
    """
    require_protocol(protocol)
    require_columns(messages, "topic", "partition", "offset", "key", "value", frame="messages")
    return messages.select("topic", "partition", "offset", "key", "value").mapInArrow(
        decoder(protocol, images=images, known=known), DECODED
    )


def decoder(protocol: str, *, images: bool = True, known: Known = NOTHING) -> Callable[[Batches], Batches]:
    """The function over Arrow batches behind :func:`decode`."""

    def run(batches: Batches) -> Batches:
        step = _step(protocol, images, known)
        for batch in batches:
            for start in range(0, batch.num_rows, ROWS_A_PASS):
                yield from step(batch.slice(start, ROWS_A_PASS))

    return run


def _step(protocol: str, images: bool, known: Known) -> Callable[[pa.RecordBatch], Batches]:
    from ticdc_lab.codecs.unpack import unpacker

    unpacked = unpacker(protocol, known)
    if protocol in KERNELS:
        from ticdc_lab.codecs.kernel.batch import decode_batches

        return lambda batch: decode_batches(unpacked(batch), protocol, images=images, original=batch)
    from ticdc_lab.codecs.builder import decode_with

    codec = codec_of(protocol, known)
    return lambda batch: iter((decode_with(codec, unpacked(batch), protocol, images=images, original=batch),))
