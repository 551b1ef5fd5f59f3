"""Messages of a run as arrows: from where to where, when, and what became of each."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

FATES = ("received", "ignored", "lost", "refused", "on its way")
"""``ignored``: it had no effect. ``refused``: the transport took nothing. ``on its way``: the trace ends first."""

_KINDS = ("sent", "resent", "received", "lost", "ignored", "refused")
_COLUMNS = (
    "sender", "receiver", "message", "message_id", "detail", "sent_step", "sent_us", "end_step", "end_us", "fate",
    "because",
)  # fmt: skip


def arrows(trace: pa.Table) -> pd.DataFrame:
    """Give every way that a message went or tried to go.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`. Returns: ``sender``, ``receiver`` (addresses), ``message``,
    ``message_id``, ``detail`` (JSON), ``sent_step``, ``sent_us``, ``end_step``, ``end_us`` (where it arrived or got
    lost), ``fate`` (of :data:`FATES`) and ``because``; sorted as they were sent. A message that was duplicated on the
    way occurs once for each arrival; where the transport resent it, ``because`` shows it.
    """
    rows = trace.filter(pc.is_in(trace["kind"], pa.array(_KINDS)))
    names = ("kind", "step", "time_us", "node", "peer", "message", "message_id", "detail", "because")
    out: list[list[object]] = []
    last: dict[int, int] = {}  # message to its newest arrow
    received = -1
    for kind, step, time_us, node, peer, message, number, detail, because in zip(
        *(rows[name].to_pylist() for name in names), strict=True
    ):
        at = last.get(number, -1)
        if message is None:
            continue
        if kind in ("sent", "refused"):
            fate = "refused" if kind == "refused" else "on its way"
            last[number] = len(out)
            out.append([node, peer, message, number, detail, step, time_us, step, time_us, fate, because])
        elif kind == "resent":
            if at >= 0:
                out[at][10] = f"sent again, {because or 'once'}"
        elif kind == "ignored":
            if received >= 0 and out[received][7] == step and out[received][1] == node:
                out[received][9:] = ["ignored", because]
        elif at >= 0:
            if out[at][9] != "on its way":
                out.append(list(out[at]))
                at = len(out) - 1
            out[at][7:] = [step, time_us, kind, because or out[at][10]]
            received = at if kind == "received" else received
    frame = pd.DataFrame(out, columns=list(_COLUMNS))
    return frame.sort_values("sent_step", kind="stable").reset_index(drop=True)


def shortly(message: str, detail: str | None) -> str:
    """Give a message's name with the table it is about, where it is about one: ``DispatchTable 7 delete``."""
    fields = _fields(detail)
    table = table_of(detail)
    what = [str(fields[f]) for f in ("schedule-action", "state") if f in fields]
    what += [said for f, said in (("is-delete", "delete"), ("is-secondary", "secondary")) if fields.get(f)]
    return " ".join([message, table, *what]).strip()


def table_of(detail: str | None) -> str:
    """Give the id or span of the table that a message's fields (JSON) are about; empty where they are about none."""
    fields = _fields(detail)
    named = (fields[f] for f in ("id", "table", "span", "dispatcher-id") if isinstance(fields.get(f), int | str))
    return str(next(named, ""))


def _fields(detail: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(detail) if detail else {}
    return fields | (fields.get("request") or fields.get("status") or {})
