"""The kernels that hash events, over events that a codec in Python made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ticdc_lab.codecs.kernel import columns
from ticdc_lab.codecs.kernel import numbering as S
from ticdc_lab.codecs.kernel.arrow import texts_of
from ticdc_lab.codecs.kernel.dispatched import dispatch_columns
from ticdc_lab.codecs.kernel.identity import set_rows
from ticdc_lab.codecs.kernel.state import State, fresh_state
from ticdc_lab.codecs.laid_out import LaidOut


def hash_columns(laid: LaidOut, sizes: np.ndarray, protocol: str = "") -> dict[str, pa.Array]:
    """The columns that :mod:`ticdc_lab.codecs.plain.hashes` gives."""
    st, n = _filled(laid), len(laid.is_row)
    set_rows(st)
    st.byte[S.HAS_AFTER, :n], st.byte[S.HAS_BEFORE, :n] = laid.after.there, laid.before.there
    return columns.hash_columns(st) | dispatch_columns(st, sizes, protocol)


def _filled(laid: LaidOut) -> State:
    """The events in the form the decoders leave them in, without hashes."""
    n, images = len(laid.is_row), ((S.AFTER, laid.after), (S.BEFORE, laid.before))
    texts = {S.SCHEMA_NAME: laid.schema_name, S.TABLE_NAME: laid.table_name}
    for place, image in images:
        texts |= {place + S.NAMES: image.names, place + S.TYPES: image.types, place + S.VALUES: image.values}
    st = fresh_state(max(len(t) for t in texts.values()) + 1, max(t.nbytes for t in texts.values()) + 8)
    for k, column in texts.items():
        texts_of(st, k, column)
    st.count[:] = n, len(laid.after.names), len(laid.before.names)
    st.byte[: S.AFTER_IS_KEY, :n] = 0
    st.byte[S.KIND, :n] = np.where(laid.is_row, S.ROW, S.DDL)
    st.byte[S.OP, :n] = laid.op
    st.byte[S.INCOMPLETE, :n] = np.where(laid.unnamed, S.BEFORE_UNNAMED, S.WHOLE)
    for later, (_, image) in enumerate(images):
        st.byte[S.AFTER_IS_KEY + later, : len(image.is_key)] = image.is_key
        st.number[S.AFTER_END + later, : n + 1] = image.ends
    return st
