"""What kafka-dump-log 4.1 printed of files in canal-json and open-protocol, and what an older one prints."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.sources import printed_records
from ticdc_lab.sources.dump_messages import Bad, DumpedMessage
from ticdc_lab.sources.dump_records import records_in
from ticdc_lab.sources.form_detection import form_of
from ticdc_lab.sources.load import load
from ticdc_lab.sources.refused_forms import converted_hint

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
PRINT = DUMPS / "kafka_dump_log.txt"
BATCH = b"baseOffset: 0 lastOffset: 9 count: 10 isTransactional: false isControl: false size: 1 isvalid: true\n"
FILE = b"Dumping /kafka/a.b-c-12/00000000000000000007.log\n"


def read(text: bytes, cut: int = 1 << 16) -> list[DumpedMessage | Bad | None]:
    """Records of a print, given in pieces."""
    form = form_of(text, options={}, whole=True)
    assert form is not None and form.name == "segment"
    return list(records_in(iter([text[at : at + cut] for at in range(0, len(text), cut)]), form, 1 << 20, 0))


@pytest.mark.parametrize("cut", [1 << 16, 7])
def test_messages_have_their_topic_partition_offset_time_and_bytes(cut: int) -> None:
    """Of both files in it; a key whose bytes are no UTF-8 was lost, and is named."""
    found = read(PRINT.read_bytes(), cut)
    messages = [m for m in found if isinstance(m, DumpedMessage)]
    assert [(m.topic, m.partition) for m in messages] == [("cj", 0)] * 6 + [("op", 0)] * 4
    assert [m.offset for m in messages] == [*range(6), 0, 1, 2, 3]
    assert messages[0].timestamp_ms == 1795940810645 and messages[0].key is None
    assert (messages[0].value or b"").startswith(b'{"id":0,"database":"Fin_Ops"') and len(
        messages[0].value or b""
    ) == 250
    assert (messages[-1].key or b"").startswith(bytes(7) + b"\1" + bytes(7))
    (bad,) = [m for m in found if isinstance(m, Bad)]
    assert bad.code == "not-utf8" and bad.said.startswith("line 13:")


def test_values_with_line_feeds_null_control_batches_and_the_form_of_kafka_2() -> None:
    """Lengths decide where a value ends; a marker of a transaction is no message."""
    old = (b"offset: 7 position: 813 CreateTime: -1 isvalid: true keysize: 3 valuesize: -1 magic: 2 "
           b"producerId: -1 sequence: -1 isTransactional: false headerKeys: [] key: abc\n")  # fmt: skip
    text = FILE + BATCH + (
        b"| offset: 8 CreateTime: 5 keySize: -1 valueSize: 9 sequence: -1 headerKeys: [x,y] payload: {\n\"a\":\n1}\r\n"
        b"| offset: 9 CreateTime: 5 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT x: 0\n"
    ) + old  # fmt: skip
    first, second = read(text)
    assert first == DumpedMessage("a.b-c", 12, 8, 5, None, b'{\n"a":\n1}')
    assert isinstance(second, DumpedMessage) and (second.offset, second.timestamp_ms) == (7, None)
    assert (second.key, second.value) == (b"abc", None)


@pytest.mark.parametrize(("line", "code", "words"), [
    (b"| offset: 8 CreateTime: 5 keySize: -1 valueSize: 9 headerKeys: []", "no-value", "--print-data-log"),
    (b"| offset: 8 CreateTime: 5 keySize: -1 valueSize: 9 headerKeys: [] payload: {}", "no-record", "fewer"),
    (b"| offset: 8 CreateTime: 5 keySize: -1 valueSize: 2 headerKeys: [] payload: \xef\xbf\xbd{", "not-utf8", "was"),
    (b"what is this", "no-record", "'what is this'"),
])  # fmt: skip
def test_what_is_no_whole_message_is_named_and_the_next_one_read(line: bytes, code: str, words: str) -> None:
    """With its line."""
    whole = b"| offset: 9 CreateTime: 5 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [] payload: {}\n"
    bad, good = read(FILE + BATCH + line + b"\n" + whole)
    assert isinstance(bad, Bad) and (bad.code, bad.said.startswith("line 3: ")) == (code, True) and words in bad.said
    assert isinstance(good, DumpedMessage) and good.value == b"{}"


def test_a_print_is_a_log_and_the_brokers_own_file_is_refused_with_the_command(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The binary file was read as three avro messages before."""
    text = tmp_path / "cj.txt"
    text.write_bytes(b"\n".join(PRINT.read_bytes().split(b"\n")[:9]) + b"\n")
    log = load(spark, str(text))
    assert log.protocol == "canal-json" and log.events.count() == 6 and not log.quarantine.count()
    shutil.copy(DUMPS / "segment_head.log", tmp_path / "00000000000000000000.log")
    run = CliRunner().invoke(main, ["survey", str(tmp_path / "00000000000000000000.log")], obj=spark)
    assert run.exit_code == 2 and "kafka-dump-log.sh --print-data-log --files" in run.output, run.output
    (data := tmp_path / "orders-0").mkdir()  # the broker's folder of a partition
    shutil.copy(DUMPS / "segment_head.log", data / "00000000000000000000.log")
    for beside in ("00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"):
        (data / beside).write_bytes(b"\0" * 20)
    run = CliRunner().invoke(main, ["survey", str(data)], obj=spark)
    assert f"--print-data-log --files {data}/00000000000000000000.log" in run.output, run.output
    hint = converted_hint("a b/0.log", (DUMPS / "segment_head.log").read_bytes())
    assert "--files 'a b/0.log' > 0.txt; ticdc-lab survey 0.txt" in hint
    (packed := tmp_path / "7.log.gz").write_bytes(gzip.compress((DUMPS / "segment_head.log").read_bytes()))
    assert f"gunzip -k {packed}; kafka-dump-log.sh --print-data-log --files {tmp_path}/7.log > 7.txt" in converted_hint(
        str(packed)
    )


def test_a_value_of_many_lines_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line was joined to all before it, and cut again."""
    cuts = list[int]()
    cut = printed_records._sized
    monkeypatch.setattr(printed_records, "_sized", lambda text, head: cuts.append(len(text)) or cut(text, head))
    key, value = b"k\n" * 300, b"1,\n" * 700
    sizes = b"keySize: %d valueSize: %d headerKeys: []" % (len(key), len(value))
    (found,) = read(FILE + b"| offset: 8 CreateTime: 5 " + sizes + b" key: " + key + b" payload: " + value + b"\n")
    assert isinstance(found, DumpedMessage) and (found.key, found.value) == (key, value) and len(cuts) == 3
