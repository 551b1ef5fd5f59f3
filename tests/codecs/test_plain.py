"""The decoders of plain Python and the compiled kernels give the same of every message and every line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import reference_decoder as oracle
from comparing import batch_of
from conftest import golden
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import MAKERS, Message, broken, messages
from test_fuzz import BAD, BAD_CANAL, some_golden
from test_golden import BANK, EXTRA, LZ4, PARTIAL, SMALL, protocol_of

import ticdc_lab
from ticdc_lab.codecs import choice
from ticdc_lab.codecs.decode import decode_batch, decode_with, decoder
from ticdc_lab.codecs.event import Outgrown
from ticdc_lab.codecs.kernel import cache, columns, compiling
from ticdc_lab.codecs.kernel import capture as kernel_capture
from ticdc_lab.codecs.known import NOTHING, Bounds, Known
from ticdc_lab.codecs.laid_out import lay_out
from ticdc_lab.codecs.plain import hashes
from ticdc_lab.codecs.registry import codec_of
from ticdc_lab.sources import capture

PROTOCOLS = sorted(MAKERS)
seeds = st.integers(0, 2**32)


def assert_same(some: list[Message], protocol: str) -> None:
    """Every column of events and quarantine, hashes, reasons and order included."""
    whole = batch_of(some)
    kernel = decode_batch(whole, protocol)
    plain = decode_with(codec_of(protocol, NOTHING), whole, protocol, compiled=False)
    if not kernel.equals(plain):
        for a, b in zip(kernel.to_pylist(), plain.to_pylist(), strict=True):
            assert a == b, some[a["offset"]]
    assert kernel.equals(plain) and not set(plain["error_class"].to_pylist()) & {"codec-error"}


@pytest.mark.parametrize("name", SMALL + BANK + PARTIAL + EXTRA + LZ4)
def test_golden_topics_decode_alike(name: str) -> None:
    """What the real encoders wrote; of the long topics the beginning."""
    pairs = [(m["key"], m["value"]) for m in islice(oracle.messages(golden(name)), 5_000)]
    for i in range(0, len(pairs), 2_500):
        assert_same(pairs[i : i + 2_500], protocol_of(name))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=seeds)
def test_made_and_broken_messages_decode_alike(protocol: str, seed: int) -> None:
    """Names twice, other types, odd numbers, white space, escapes; half of them with bytes changed."""
    assert_same(messages(protocol, Random(seed)), protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_golden_messages_with_bytes_changed_decode_alike(protocol: str) -> None:
    """Flipped bits, cuts, pieces swapped and repeated, huge lengths, broken UTF-8."""
    r = Random(11)
    assert_same([broken(m, r) for m in some_golden(protocol) for _ in range(6)], protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_cut_of_a_message_decodes_alike(protocol: str) -> None:
    """A message may end anywhere."""
    key, value = MAKERS[protocol](Random(5))
    assert value
    assert_same([(key, value[:i]) for i in range(len(value))], protocol)
    assert_same([(key[:i], value) for i in range(len(key))] if key else [(key, value)], protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_other_values_in_the_place_of_any_field_decode_alike(protocol: str, data: st.DataObject) -> None:
    """Any JSON value where another stands, nested deeply too."""
    key, value = MAKERS[protocol](Random(data.draw(st.integers(0, 50))))
    part = value or b""
    places = [i for i, c in enumerate(part) if c == ord(":")] or [0]
    at = data.draw(st.sampled_from(places)) + 1
    end = data.draw(st.integers(at, min(len(part), at + 30)))
    junk = data.draw(
        st.sampled_from([b"null", b"true", b"-0", b"1e400", b"9" * 50, b'""', b"{}", b"[[[1]]]", b'{"a":{"a":[]}}'])
        | st.integers(120, 140).map(lambda n: b"[" * n + b"]" * n)
        | st.binary(max_size=6)
    )
    changed = part[:at] + junk + part[end:]
    if protocol == "open-protocol":  # the frame's length goes with it
        changed = max(len(changed) - 8, 0).to_bytes(8, "big") + changed[8:]
    assert_same([(key, changed)], protocol)


def test_each_kind_of_fault_has_the_same_words() -> None:
    """The lists of bad messages, class by class."""
    for cases, protocol in ((BAD, "open-protocol"), (BAD_CANAL, "canal-json")):
        assert_same([message for message, _ in cases.values()], protocol)


def test_a_difference_would_be_seen() -> None:
    """The comparison itself fails where one value, or one reason, differs."""
    good = some_golden("canal-json")[0]
    other = (good[0], (good[1] or b"").replace(b'"commitTs":4', b'"commitTs":5'))
    assert other != good
    one, two = (decode_with(codec_of("canal-json", NOTHING), batch_of([m]), "canal-json", compiled=False)
                for m in (good, other))  # fmt: skip
    assert not one.equals(two)


def test_what_may_outgrow_plain_python_goes_to_the_kernels() -> None:
    """A few rows can repeat a long type a thousand times: memory is bounded by the kernels' limits, not by luck."""
    long = "varchar(" + "9" * 20_000 + ")"
    value = {"database": "s", "table": "t", "pkNames": None, "isDdl": False, "type": "INSERT", "sqlType": None,
             "mysqlType": {"a": long}, "data": [{"a": "1"}] * 2_000, "_tidb": {"commitTs": 5}}  # fmt: skip
    whole = batch_of([(None, json.dumps(value).encode())])
    with pytest.raises(Outgrown):
        decode_with(codec_of("canal-json", NOTHING), whole, "canal-json", compiled=False)
    [found] = decoder("canal-json", known=Known(bounds=(loose := Bounds(growth_free=1 << 30))))(iter([whole]))
    assert found.num_rows == 2_000 and found.equals(decode_batch(whole, "canal-json", bounds=loose))


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["0x", "0x0a", "0xzz", "0x123", "1", "-1.50", "1.5e16", "-2e-20", "1e400", "1e401", "3e+5", "1e", "a" * 70, "é"]
)  # fmt: skip
KINDS = st.none() | st.sampled_from(["", "int", "blob", "varbinary(3)", "binary", "float", "double unsigned",
                                     "enum(1)", "set(1)", "text", "mediumblob", "longblob"])  # fmt: skip
CELLS = st.lists(st.tuples(st.sampled_from("abcd,"), KINDS, TEXTS, st.booleans(), st.integers(-1, 9)), max_size=5)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from((0, 1, 2)), CELLS, CELLS, TEXTS, st.booleans()), max_size=8))
@example([(1, [("a", "int", "1", True, -1)], [("b", "int", "2", True, -1), ("a", "int", "3", True, -1)], None, True)])
def test_hashes_of_any_events_are_alike(rows: list[tuple[int, list[object], list[object], str | None, bool]]) -> None:
    """Also of images that no one protocol writes: names twice, other columns before than after, no type."""
    from ticdc_lab.codecs.event import Event
    from ticdc_lab.codecs.kernel.numbering import DDL, DELETE, INSERT, ROW

    events = [
        Event(ROW, 1, name, "t", op=op, columns=None if op == DELETE else after,
              before=None if op == INSERT else before) if is_row else Event(DDL, 1, name, "t")
        for op, after, before, name, is_row in rows
    ]  # fmt: skip
    laid, sizes = lay_out(events), np.arange(len(events), dtype=np.int64)
    compiled = columns.hashed(laid, sizes)
    plain = hashes.hash_columns(laid) | hashes.dispatch_columns(laid, sizes)
    assert {k: v.to_pylist() for k, v in plain.items()} == {k: v.to_pylist() for k, v in compiled.items()}


def capture_line(r: Random) -> bytes:
    """A line of a capture file, right or odd."""
    fields = [
        ("topic", r.choice(["t", "t", "t", "名\n", None, 3])),
        ("partition", r.choice([0, 0, 0, 1, 2**31 - 1, 2**31, -1, 1.0, "1"])),
        ("offset", r.choice([0, 7, 7, 2**63 - 1, 2**63])), ("timestamp", r.choice([None, -1, 0, 1 << 50, 1 << 40])),
        ("key", r.choice([None, "", b64encode(b"k").decode(), "A===", "é"])),
        ("value", r.choice([None, b64encode(r.randbytes(40)).decode(), "AA=A", 5])),
        ("headers", r.choice([[], None, [["a", None]], {}, [["a", "AA=="]]])), ("more", [{"a": [1, 2.5e3, None]}]),
    ]  # fmt: skip
    some = [f for f in fields if r.random() < 0.95]
    r.shuffle(some)
    text = json.dumps(dict(some), ensure_ascii=r.random() < 0.5).encode()
    return broken((None, text), r)[1] or b"" if r.random() < 0.3 else text


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seed=seeds)
def test_capture_lines_read_alike(seed: int) -> None:
    """Fields, and what is wrong with a line at which byte."""
    r = Random(seed)
    lines = pa.array([capture_line(r) for _ in range(30)], pa.binary())
    plain, compiled = capture.read_in_python(lines), kernel_capture.lines_of(lines)
    assert plain.faults.tolist() == compiled.faults.tolist()
    for name, a, b in zip(plain._fields[:-1], plain[:-1], compiled[:-1], strict=True):
        good = pa.array(np.flatnonzero(plain.faults == 0))
        assert a.take(good).to_pylist() == b.take(good).to_pylist(), name


def fresh_choice(monkeypatch: pytest.MonkeyPatch, *, whole: bool, being_filled: bool = False) -> list[str]:
    """A process that has decoded nothing yet; what it starts is noted instead."""
    started: list[str] = []
    monkeypatch.setattr(choice, "_done_bytes", {})
    monkeypatch.setattr(choice, "_compiled", set())
    monkeypatch.setattr(cache, "has", lambda part: whole)
    monkeypatch.setattr(cache, "being_filled", lambda: being_filled)
    monkeypatch.setattr(cache, "start_filling", lambda: started.append("compiler"))
    return started


_PIECE = 1 << 14


def passes(total: int) -> list[bool]:
    """Which of many equal batches go to the kernels."""
    one = pa.array([b"x" * _PIECE])
    return [choice.compiled("canal-json", one) for _ in range(0, total, one.nbytes)]


def test_a_small_log_is_decoded_in_python_and_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the kernels are there: loading them would take longer."""
    for whole in (False, True):
        started = fresh_choice(monkeypatch, whole=whole)
        assert not any(passes(choice.LOAD_AFTER_BYTES - (_PIECE << 1))) and not started


def test_kernels_in_the_cache_take_over_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the size on that pays for loading them."""
    started = fresh_choice(monkeypatch, whole=True)
    taken = passes(4 * choice.LOAD_AFTER_BYTES)
    assert taken == sorted(taken) and taken[-1] and not started
    assert 0.8 < taken.index(True) * _PIECE / choice.LOAD_AFTER_BYTES < 1.2


def test_without_a_cache_a_large_log_has_it_filled_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python continues meanwhile, no matter how long the other process takes."""
    started = fresh_choice(monkeypatch, whole=False, being_filled=True)
    assert not any(passes(2 * choice.COMPILE_HERE_BYTES)) and started


def test_where_nobody_fills_the_cache_a_huge_log_compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written must not leave a log of a day to plain Python."""
    fresh_choice(monkeypatch, whole=False)
    assert passes(2 * choice.COMPILE_HERE_BYTES)[-1]


def test_one_process_of_a_machine_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second one goes away at once, and the lock is free when the first has ended."""
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    assert not cache.being_filled()
    with cache.filling() as mine:
        assert mine and cache.being_filled()
        with cache.filling() as second:
            assert not second
    assert not cache.being_filled()


def test_the_compiler_outlives_a_command_and_does_not_hold_it(tmp_path: Path) -> None:
    """The command ends at once; its child is in a session of its own with nothing of the terminal's."""
    code = (
        "from ticdc_lab.codecs.kernel import cache; import sys, subprocess;"
        "cache.sys.executable = '/bin/sleep'; old = subprocess.Popen;"
        "cache.subprocess.Popen = lambda command, **k: old(['/bin/sleep', '600'], **k);"
        "cache.start_filling(); print(*[p.pid for p in cache._started.values()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    pid = int(done.stdout)
    assert Path(f"/proc/{pid}").exists()
    subprocess.run(["kill", str(pid)], check=True)


def test_another_copy_of_the_package_finds_the_kernels(tmp_path: Path) -> None:
    """A mark shows that they are there, and each copy of the same source reads it: none of them compiles again."""
    parts = ("hashes", "capture")
    for part in parts:
        compiling.PARTS[part]()
    own, without = Path(ticdc_lab.__file__).parent, shutil.ignore_patterns("__pycache__")
    shutil.copytree(own, tmp_path / "ticdc_lab", ignore=without, copy_function=shutil.copyfile)  # with times of its own
    code = (
        "import sys, ticdc_lab; from ticdc_lab.codecs.kernel import compiling;"
        f"[compiling.PARTS[part]() for part in {parts}];"
        "print(ticdc_lab.__file__, 'numba' in sys.modules)"
    )
    command, here = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=here, cwd=tmp_path)
    assert done.stdout.split() == [str(tmp_path / "ticdc_lab" / "__init__.py"), "False"]


def test_decoding_a_small_log_imports_no_compiler(tmp_path: Path) -> None:
    """Neither does importing what a command imports, reading the capture file, telling the protocol."""
    code = (
        "import sys; import ticdc_lab.sources.load, ticdc_lab.report.write, ticdc_lab.log;"
        "from ticdc_lab.codecs import decoder, detect;"
        "from ticdc_lab.sources.pieces import read_piece; import pyarrow as pa;"
        f"batches = [good for good, bad in read_piece('{golden(SMALL[4])}', 0, 0)];"
        "told = detect(pa.Table.from_batches(batches).slice(0, 256)).protocol;"
        "events = [e for e in decoder(told)(iter(batches))];"
        "print(told, sum(e.num_rows for e in events) > 2000, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "canal-json True False"


def test_the_row_key_tells_equal_rows_without_a_key_apart() -> None:
    """`_tidb.rowkey` is TiKV's key of the row (output-row-key): its table id is read, a handle key stays what it is."""

    def message(handle: int, pk: list[str]) -> bytes:
        raw = b"t" + (112 ^ 1 << 63).to_bytes(8) + b"_r" + (handle ^ 1 << 63).to_bytes(8)
        fields = {
            "id": 0, "database": "s", "table": "t", "pkNames": pk, "isDdl": False, "type": "INSERT", "es": 1, "ts": 2,
            "sql": "", "sqlType": {"a": 4}, "mysqlType": {"a": "int"}, "old": None, "data": [{"a": "7"}],
            "_tidb": {"commitTs": 5, "rowkey": b64encode(raw).decode()},
        }  # fmt: skip
        return json.dumps(fields).encode()

    for compiled in (True, False):
        some = batch_of([(None, message(h, pk)) for pk in ([], ["a"]) for h in (1, 2, 1)])
        codec = codec_of("canal-json", NOTHING)
        found = decode_batch(some, "canal-json") if compiled else decode_with(codec, some, "canal-json")
        one, two, again, *keyed = found.to_pylist()
        assert {r["table_id"] for r in (one, two, again, *keyed)} == {112}
        assert one["change_hash"] == again["change_hash"] != two["change_hash"] and one["key_hash"] is None
        assert len({(r["key_hash"], r["change_hash"]) for r in keyed}) == 1 and one["after_hash"] == two["after_hash"]
