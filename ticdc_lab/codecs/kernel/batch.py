"""One batch of messages through a kernel, and the result as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.decoded import NOTED, Decoded
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.kernel import canal_json, open_protocol
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import spans
from ticdc_lab.codecs.kernel.columns import decoded_of, filled, noted_of
from ticdc_lab.codecs.kernel.faults import EMPTY_ROW, NEED_MORE, OK
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.noted import NOTHING_NOTED, Notes, note
from ticdc_lab.codecs.kernel.state import State, mark, restore
from ticdc_lab.codecs.known import Bounds
from ticdc_lab.codecs.plain.json_text import JsonFault, at_place


def _over(message: Callable[..., tuple[int, int]]) -> Callable[..., int]:
    """A kernel over messages, of a part that decodes one: a fault, NEED_MORE or OK, and 1 if it lies in the value."""

    def run(
        kb: np.ndarray, kp: np.ndarray, kend: np.ndarray, vb: np.ndarray, vp: np.ndarray, vend: np.ndarray,
        st: State, faults: np.ndarray, topics: np.ndarray, notes: Notes,
    ) -> int:  # fmt: skip
        for m in range(len(kp)):
            mark(st)
            first = st.count[S.N_EVENTS]
            status, part = message(m, kb, kp[m], kend[m], vb, vp[m], vend[m], st)
            if status == NEED_MORE:
                return NEED_MORE
            faults[m, 0], faults[m, 1] = -status, part
            if status != OK:
                restore(st)
            elif len(notes.table):
                note(st, first, topics[m], notes)
        return OK

    run.__qualname__ = f"{message.__module__}.{message.__qualname__}"  # by which its code is found on disk
    return kernel(run)


_NAMES = 1 << 17
_NO_TOPICS = np.zeros(0, np.int64)

KERNELS = {
    "open-protocol": _over(open_protocol.decode_message),
    "canal-json": _over(canal_json.decode_message),
}
"""Protocol -> kernel over a batch."""


def decoded(batch: pa.RecordBatch, protocol: str, *, images: bool, bounds: Bounds) -> Decoded | None:
    """The events of messages, and their faults; None where a row of a message costs itself alone: Python finds it.

    ``protocol``: a key of :data:`KERNELS`. ``images``: False leaves ``columns`` and ``before`` null; where
    :data:`~ticdc_lab.codecs.decoded.NOTED` asks for notes, they and the columns for dispatch are left null, too.
    ``bounds``: how much a message may become. Raises TooMuchError: the events need more than ROOM; fewer messages then
    may not.
    """
    keys, values = spans(batch.column("key")), spans(batch.column("value"))
    faults = np.zeros((batch.num_rows, 2), np.int64)

    noted = NOTED.get()
    own = None if noted is None else noted.own
    topics, notes = (_NO_TOPICS, NOTHING_NOTED) if own is None else (own.topics_of(batch), own.notes)

    def run(st: State) -> int:
        # where Python decodes some batches, as of open-protocol, its hashes are compared with these
        st.limit[:] = *bounds.kernel, own is not None and protocol == "canal-json"
        return KERNELS[protocol](*keys, *values, st, faults, topics, notes)

    # of images that are noted the state has one message's
    size, beside = (len(keys[0]) + len(values[0]), 0) if own is None else (0, _NAMES + 32 * batch.num_rows)
    st = filled(batch.num_rows, size, run, beside=beside)
    if own is None:
        found = decoded_of(batch, protocol, st, images)
    else:
        found = noted_of(batch, protocol, st, topics, own)
    _check_count(batch, st, faults)
    if protocol == "open-protocol" and (faults[:, 0] >> 40 == EMPTY_ROW).any():
        return None
    if own is not None:
        own.add(batch, len(found.message))
    found.failed.extend(_faults(faults, keys[1], values[1]))
    return found


def _faults(faults: np.ndarray, key_at: np.ndarray, value_at: np.ndarray) -> list[tuple[int, Malformed]]:
    failed = np.flatnonzero(faults[:, 0])
    codes, positions = faults[failed, 0] >> 40, faults[failed, 0] & (1 << 40) - 1
    found = list[tuple[int, Malformed]]()
    for m, code, position in zip(failed.tolist(), codes.tolist(), positions.tolist(), strict=True):
        in_value = faults[m, 1] == 1
        start = max(int(value_at[m] if in_value else key_at[m]), 0)
        found.append((m, at_place("value" if in_value else "key", JsonFault(code, max(position - start, 0)))))
    return found


def _check_count(batch: pa.RecordBatch, st: State, faults: np.ndarray) -> None:
    """Messages in = messages decoded + messages that failed; anything else is a fault of this package."""
    n = int(st.count[S.N_EVENTS])
    decoded = int(np.count_nonzero(st.number[S.SEQ, :n] == 0))
    failed = int(np.count_nonzero(faults[:, 0]))
    if batch.num_rows != decoded + failed:
        raise AssertionError(f"{batch.num_rows} messages in, {decoded} decoded, {failed} quarantined")
