"""Csv files as TiCDC's encoder writes them, whole and damaged; as a script, decoded with every index checked.

Usage, with ``NUMBA_DISABLE_JIT=1``: ``csv_made.py SEED FILES``; prints how many messages were decoded and rejected.
"""

from __future__ import annotations

import base64
import sys
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from ticdc_lab.codecs import csv  # noqa: E402
from ticdc_lab.codecs.csv_fields import UnknownFields, place  # noqa: E402
from ticdc_lab.codecs.kernel import csv as kernel  # noqa: E402
from ticdc_lab.codecs.kernel.arrow import spans  # noqa: E402
from ticdc_lab.codecs.table_file import Cut, TableColumn, TableFile  # noqa: E402
from ticdc_lab.settings import Setting, Settings  # noqa: E402

LABELS = ("a", "é,", "", 'q"')
FILE = TableFile(
    "s", "t", 7, "", 0,
    (TableColumn("id", "bigint unsigned", True), TableColumn("v", "varchar", False),
     TableColumn("e", "enum", False, LABELS), TableColumn("s", "set", False, ("x", "y", "zz")),
     TableColumn("b", "varbinary", False), TableColumn("d", "double", False)), 0,
)  # fmt: skip
Row = list[str | None]


def made_row(r: Random) -> tuple[Row, Row]:
    """Values of a row as TiCDC hands them to its encoder, and as the events contract describes them."""
    raw = r.randbytes(r.randrange(5))
    text = "".join(r.choice("aé\"',;\\\r\n|@N🙂 ") for _ in range(r.randrange(6)))
    label, labels = r.randrange(4), r.sample(range(3), r.randrange(4))
    number = r.randrange(1 << 64)
    written: Row = [str(number), text, LABELS[label], ",".join(("x", "y", "zz")[i] for i in labels), "", "-0.5"]
    meant: Row = [str(number), text, str(label + 1), str(sum(1 << i for i in labels)), "0x" + raw.hex(), "-0.5"]
    written[4] = base64.b64encode(raw).decode()
    for i in range(1, 6):
        if r.random() < 0.2:
            written[i] = meant[i] = None
    return written, meant


def encoded(row: Row, op: str, ts: int, update: bool | None, s: Settings) -> str:
    """A record, by the rules of TiCDC's encoder: numbers bare, texts quoted or escaped."""
    texts = [op, "t", "s", *row[1:5]]
    cut = Cut.of(s)
    extra = ["" if update is None else str(update).lower()]
    fields = [*(_text(v, cut) for v in texts[:3]), str(ts), *[e for e in extra if e], row[0] or ""]
    fields += [_text(v, cut) for v in texts[3:]] + [cut.null if row[5] is None else row[5]]
    return cut.delimiter.join(fields) + str(s.value("sink.terminator", "\r\n"))


def _text(value: str | None, s: Cut) -> str:
    if value is None:
        return s.null
    if s.quote:
        return s.quote + value.replace(s.quote, 2 * s.quote) + s.quote
    value = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return value.replace(s.delimiter, "".join("\\" + c for c in s.delimiter))


def decoded(raw: bytes, s: Settings, wrap: Any = lambda x: x) -> list[dict[str, Any]]:
    """What a file decodes to; as many rows as it has messages."""
    data = wrap(spans(pa.array([raw], pa.binary()))[0])
    terminator, cut = csv.terminator_of(data, s), Cut.of(s)
    records = csv.find_records(data, quote=cut.quote, terminator=terminator)
    placed = place(csv.records_among(data, records, cut, most=9), FILE, s)
    if isinstance(placed, UnknownFields):
        return [{"kind": None, "offset": i, "error_class": placed.error_class, "reason": placed.reason}
                for i in range(len(records.starts))]  # fmt: skip
    shape = placed.shape
    given = wrap(csv.layout(FILE, cut, shape, terminator, kernel.BASE64))
    starts, ends = records.starts.copy(), records.ends.copy()
    n = kernel.join_updates(data, starts, ends, len(starts), given) if shape.has_update else len(starts)
    values = pa.array([raw[a:b] for a, b in zip(starts[:n], ends[:n], strict=True)], pa.binary())
    none = pa.nulls(n, pa.binary())
    places = [pa.array(["t"] * n, pa.string()), pa.array([0] * n, pa.int32()), pa.array(range(n), pa.int64())]
    batch = pa.RecordBatch.from_arrays([*places, none, values], ["topic", "partition", "offset", "key", "value"])
    rows = [row for out in csv.decode_csv(batch, given) for row in out.to_pylist()]
    assert sorted(row["offset"] for row in rows) == list(range(n)), "a message is neither decoded nor in quarantine"
    return rows


def settings(r: Random) -> Settings:
    """Settings that a changefeed can have."""
    drawn = {
        "sink.csv.quote": r.choice(['"', '"', "'", ""]),
        "sink.csv.delimiter": r.choice([",", ";", "|@|"]),
        "sink.terminator": r.choice(["\r\n", "\n", "%%\n"]),
    }
    return Settings(tuple(Setting(name, text, "option") for name, text in drawn.items()))


def made_file(r: Random, s: Settings) -> tuple[str, list[Any]]:
    """A file, and op, image after and image before of each of its changes."""
    text, meant = "", []
    for ts in range(1, r.randrange(2, 6)):
        (old, old_meant), (new, new_meant) = made_row(r), made_row(r)
        op = r.choice(("insert", "delete", "update"))
        if op == "update":
            text += encoded(old, "D", ts, True, s) + encoded(new, "I", ts, True, s)
        else:
            text += encoded(new, op[0].upper(), ts, False, s)
        after, before = (None if op == "delete" else new_meant), (new_meant if op == "delete" else old_meant)
        meant.append((op, ts, after, None if op == "insert" else before))
    return text, meant


def change_of(row: dict[str, Any]) -> Any:
    """Op, commit_ts and the values of both images."""
    images = (row[i] and [c["value"] for c in row[i]] for i in ("columns", "before"))
    return row["op"], row["commit_ts"], *images


def broken(raw: bytes, r: Random) -> bytes:
    """The file with a few bytes changed, left out or put in."""
    out = bytearray(raw)
    for _ in range(r.randrange(1, 5)):
        at = r.randrange(len(out))
        match r.randrange(4):
            case 0:
                out[at] = r.choice(b"\"',;\\\r\nIDUtf0\xff")
            case 1:
                del out[at : at + r.randrange(1, 9)]
            case 2:
                out[at:at] = r.choice([b'"', b"\r\n", b",", b"\\", b'""', b"true"])
            case _:
                del out[at:]
        if not out:
            break
    return bytes(out)


def main(seed: int, n: int) -> None:
    """Decode whole and damaged files in the interpreter, over arrays that check every index."""
    import interpreted
    from interpreted import Checked

    warnings.simplefilter("ignore", RuntimeWarning)
    interpreted.check_arrays()
    plain, csv.spans = csv.spans, lambda column: tuple(a.view(Checked) for a in plain(column))

    def wrap(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x.view(Checked)
        return kernel.CsvLayout(**{name: getattr(x, name).view(Checked) for name, _, _ in x.form})

    whole = bad = 0
    for i in range(n):
        r = Random(f"{seed} {i}")
        s = settings(r)
        raw = made_file(r, s)[0].encode()
        rows = decoded(raw if i % 3 == 0 else broken(raw, r) or b"x", s, wrap)
        whole += sum(row["error_class"] is None for row in rows)
        bad += sum(row["error_class"] is not None for row in rows)
    print(whole, bad)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
