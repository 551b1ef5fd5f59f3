"""Kernels beside a codec in Python (:class:`~ticdc_lab.codecs.decoded.PartKernel`): what they have in common.

Each decodes messages as TiCDC writes them, and leaves all others: a message that it decodes is one that the codec
decodes to the same events, and it never names a fault. So a format is one function of a message; the loop over messages
and the making of events are here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import Decoded
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import spans
from ticdc_lab.codecs.kernel.columns import decoded_of, filled
from ticdc_lab.codecs.kernel.faults import NEED_MORE, OK
from ticdc_lab.codecs.kernel.identity import set_row
from ticdc_lab.codecs.kernel.jit import kernel, part
from ticdc_lab.codecs.kernel.members import ENDS
from ticdc_lab.codecs.kernel.state import State, end_images, event_fits, mark, new_event, put_text, put_ts, restore
from ticdc_lab.codecs.known import Bounds

LEFT = -2
"""In place of a status: the message is the codec's."""


def over(message: Callable[..., int]) -> Callable[..., int]:
    """A kernel over messages, of a part that decodes one: OK, NEED_MORE, or any other number where it is left."""

    def run(
        todo: np.ndarray, kb: np.ndarray, key_starts: np.ndarray, key_ends: np.ndarray, b: np.ndarray,
        starts: np.ndarray, ends: np.ndarray, st: State, given: tuple[object, ...],
    ) -> int:  # fmt: skip
        for i in range(len(todo)):
            mark(st)
            m = todo[i]
            status = message(m, kb, key_starts[m], key_ends[m], b, starts[m], ends[m], st, *given)
            if status == NEED_MORE:
                return NEED_MORE
            if status != OK:
                restore(st)
        return OK

    run.__qualname__ = f"{message.__module__}.{message.__qualname__}"  # by which its code is found on disk
    return kernel(run)


def decoded_in_part(
    batch: pa.RecordBatch, protocol: str, decode: Callable[..., int], *given: object, images: bool, bounds: Bounds,
    longest: int | None = None, nulls: bool = False,
) -> Decoded:  # fmt: skip
    """The events of the messages that a kernel decodes.

    ``batch``, ``protocol``, ``images``, ``bounds``: as for :func:`~ticdc_lab.codecs.decode.decode_with`. ``decode``: as
    :func:`over` makes it. ``given``: what it is given beside messages. ``longest``: bytes of a value, of those that it
    is given; None: so few that Python does not count what is in it (`require_few_values`), as of keys. ``nulls``:
    whether it is given null values, too. Raises TooMuchError: the events need more than ROOM.
    """
    kb, key_starts, key_ends = spans(batch.column("key"))
    b, starts, ends = spans(batch.column("value"))
    longest = bounds.values if longest is None else longest
    fit = (key_starts < 0) | (key_ends - key_starts <= bounds.values)
    todo = np.flatnonzero(fit & np.where(starts < 0, nulls, ends - starts <= longest))

    def run(st: State) -> int:
        st.limit[:] = *bounds.kernel, False
        return decode(todo, kb, key_starts, key_ends, b, starts, ends, st, given)

    return decoded_of(batch, protocol, filled(batch.num_rows, len(b), run), images)


@part
def put_row(
    m: int, seq: int, op: int, b: np.ndarray, schema: int, schema_stop: int, table: int, table_stop: int, escaped: bool,
    st: State,
) -> int:  # fmt: skip
    """Make the row whose images were read last an event; OK, NEED_MORE, or LEFT where its images are none of such.

    The names of schema and table lie in ``b``, without quotes. An update may come without the image before.
    """
    if not event_fits(st, schema_stop - schema + table_stop - table):
        return NEED_MORE
    i = new_event(st, m, seq, S.ROW)
    end_images(st, i)
    after = st.number[S.AFTER_END, i + 1] - st.number[S.AFTER_END, i]
    before = st.number[S.BEFORE_END, i + 1] - st.number[S.BEFORE_END, i]
    if (after > 0) != (op != S.DELETE) or (op != S.UPDATE and (before > 0) != (op == S.DELETE)):
        return LEFT
    if max(after, before) > st.limit[S.MAX_COLUMNS]:
        return LEFT
    put_text(st, S.SCHEMA_NAME, i, b, schema - 1, schema_stop + 1, escaped)
    put_text(st, S.TABLE_NAME, i, b, table - 1, table_stop + 1, escaped)
    set_row(st, i, op)
    if op == S.UPDATE and before == 0:
        st.byte[S.HAS_BEFORE, i] = 0
    return OK


@part
def put_watermark(m: int, ts: int, st: State) -> int:
    """Make a watermark an event; OK or NEED_MORE."""
    if not event_fits(st, 0):
        return NEED_MORE
    i = new_event(st, m, 0, S.WATERMARK)
    end_images(st, i)
    put_ts(st, i, ts)
    return OK


@part
def put_named_row(m: int, seq: int, op: int, b: np.ndarray, schema: int, table: int, st: State) -> int:
    """:func:`put_row` of a table whose names are the JSON strings of two fields; LEFT where they are none."""
    at = st.at
    if at[schema] < 0 or at[table] < 0 or b[at[schema]] != 0x22 or b[at[table]] != 0x22:
        return LEFT
    stop, end = at[ENDS + schema] - 1, at[ENDS + table] - 1
    return put_row(m, seq, op, b, at[schema] + 1, stop, at[table] + 1, end, True, st)


class KernelAlone:
    """A kernel that needs nothing beside the messages (:class:`~ticdc_lab.codecs.decoded.PartKernel`)."""

    def __init__(self, protocol: str, message: Callable[..., int], *, longest: int | None = None) -> None:
        self._protocol, self._decode, self._longest = protocol, over(message), longest

    def __call__(self, batch: pa.RecordBatch, *, images: bool, bounds: Bounds) -> Decoded:
        """The events of the messages that it decodes."""
        return decoded_in_part(batch, self._protocol, self._decode, images=images, bounds=bounds, longest=self._longest)

    def stands(self) -> bool:
        """No message changes what another is."""
        return True
