"""What a changefeed's file gives and the log cannot come from is a finding, for every setting that bytes show."""

from __future__ import annotations

import json
from math import lcm
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from stored import unpack

import ticdc_lab
from ticdc_lab.audit.contradicted import (
    _divisors,
    _evidence_in,
    against_facts,
    against_places,
    against_rows,
    rules_given,
    with_contradictions,
)
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.cli import main
from ticdc_lab.codecs.keys import with_hashes
from ticdc_lab.dispatch.given import NOTHING_GIVEN
from ticdc_lab.events.schema import DISPATCH, KEYS
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.gathering import ARROW
from ticdc_lab.settings import Contradiction, Setting, Settings
from ticdc_lab.settings.detected import COUNTED, of_counts, of_messages
from ticdc_lab.settings.file import parse_file
from ticdc_lab.sources.change_log import ChangeLog

SMALL, NO_KEY = "data/messages_canal-json-tidb_small.jsonl.gz", "tests/data/torture/messages_open-protocol.jsonl.gz"
RAN = "matcher = ['Fin_Ops.*', 'shop.*']"


def given(text: str) -> Settings:
    """Settings of a file."""
    return parse_file(text, name="c.toml").settings


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChangeLog]:
    """Both logs, read once."""
    place = tmp_path_factory.mktemp("contradicted")
    return {s: ticdc_lab.load(spark, s).materialise(str(place / str(i))) for i, s in enumerate((SMALL, NO_KEY))}


def said(log: ChangeLog, file: Settings) -> list[str]:
    """What contradicts the log, of lists of rules and of values."""
    known = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    for c in known.against:  # every one is shown by an event that is there
        if "TiCDC refuses it" in c.words:  # which no event has to show
            continue
        partition, offset, _ = c.places[0]
        assert not log.events.where(f"partition = {partition} AND offset = {offset}").isEmpty(), c.words
    return [c.words for c in known.contradictions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"[sink]\ndispatchers = [{{{RAN}, partition = 'ts'}}]",
            "rows of Fin_Ops.Customers are not in the",
        ),
        (f"[sink]\ndispatchers = [{{{RAN}, partition = 'columns', columns = ['id']}}]", "puts them among 4 partitions"),
        ("[sink.kafka-config]\npartition-num = 3", "the log has a partition 3, so there are at least 4"),
        ("[filter]\nrules = ['shop.*']", "the log has rows of Fin_Ops.Customers"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-event = ['update']", "the log has updates of Fin_Ops.Customers"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-event = ['delete']", "the log has deletes of Fin_Ops.Customers"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-event = ['insert']", "the log has inserts of Fin_Ops.Customers"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-event = ['all ddl']", "leaves out (`all ddl`)"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-event = ['create table']", "leaves out (`create table`)"),
        (f"[[filter.event-filters]]\n{RAN}\nignore-sql = ['(?i)^create table']", "leaves out (`(?i)^create table`)"),
        ("[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['nothing']}]", "which its selector leaves out"),
        ("[sink]\ndispatchers = [{matcher = ['shop.*'], target-schema = 'store'}]", "route to store."),
        ("enable-old-value = false", "enable-old-value = false, but the log shows true"),
        ("[sink]\nprotocol = 'simple'", 'sets sink.protocol = "simple", but the log shows "canal-json"'),
        ("[sink.kafka-config.codec-config]\nenable-tidb-extension = false", "but the log shows true"),
        ("[sink]\nonly-output-updated-columns = true", "but the log shows false"),
        ("[sink]\ndelete-only-output-handle-key-columns = true", "but the log shows false"),
    ],
)
def test_a_file_that_cannot_have_made_the_log_is_named(logs: dict[str, ChangeLog], text: str, expected: str) -> None:
    """One sentence with the setting, what the log has against it, and an event that shows it."""
    found = said(logs[SMALL], given(text))
    assert any(expected in words for words in found), found
    assert all(words.startswith("The file c.toml sets ") for words in found)


@pytest.mark.parametrize(
    "rule",
    [
        "partition = 'table'", "partition = 'index-value'",
        "partition = 'ts'}]\n[sink.kafka-config]\npartition-num = 7#",
        "partition = 'columns', columns = ['id', 'ID']", "partition = 'index-value', index = 'PRIMARY'",
        "partition = 'index-value', target-schema = 'dw'", "partition = 'tidb-rowid'",
    ],
)  # fmt: skip
def test_rows_in_memory_show_the_same_of_dispatchers(logs: dict[str, ChangeLog], rule: str) -> None:
    """As a watch asks, without an engine: the same contradictions, places and settings; notes give other reasons."""
    for log in logs.values():
        file = given(f"[sink]\ndispatchers = [{{matcher = ['*.*'], {rule}}}]")
        known = log.settings | file
        rows = log.events.where("kind = 'row'").transform(with_hashes, KEYS, DISPATCH).toArrow()
        whole = with_contradictions(lambda log=log: log.events, log.facts, known, protocol=log.protocol)
        found = [*against_places(rows, log.facts, known)]
        if "tidb-rowid" in rule:  # which reads the images
            assert found and all("a watch does not keep what its rule reads" in note for note in found)
            continue
        every = [c for c in whole.against if c.given.name == "sink.dispatchers" and c.cause != "names upstream"]
        assert [c for c in found if isinstance(c, Contradiction)] == every
        verified = [s for s in whole.known if s.sure == "verified"]
        assert [s for s in found if isinstance(s, Setting)] == verified
        said = [n.partition(", because")[0] for n in found if isinstance(n, str)]
        assert said == [n.partition(", because")[0] for n in whole.notes]


@pytest.mark.parametrize("column", ["v", "absent"])
def test_rows_in_memory_show_why_ticdc_refuses_columns(logs: dict[str, ChangeLog], column: str) -> None:
    """The error of TiCDC's own that the definition of the table gives: a virtual column is there, but not in rows."""
    log = logs[NO_KEY]
    file = given(f"[sink]\ndispatchers = [{{matcher = ['*.gens'], partition = 'columns', columns = ['{column}']}}]")
    rows = log.events.where("kind = 'row'").transform(with_hashes, KEYS, DISPATCH).toArrow()
    whole = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    found = [c for c in against_places(rows, log.facts, log.settings | file) if isinstance(c, Contradiction)]
    (refused,) = [c for c in found if "cannot dispatch" in c.seen]
    assert refused in whole.against
    why = "columns not found" if column == "absent" else "found virtual generated columns"
    assert why in refused.seen


def test_a_matcher_that_ticdc_refuses_ends_no_audit(logs: dict[str, ChangeLog]) -> None:
    """It is a finding, and no rule is tried."""
    log, file = logs[SMALL], given("[sink]\ndispatchers = [{matcher = ['a']}]")
    known = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    (words,) = [c.words for c in known.contradictions]
    assert words.endswith("TiCDC refuses it: The matcher 'a' has no '.' between schema and table patterns.")
    assert rules_given(log.facts, file) == NOTHING_GIVEN


def test_a_topic_that_one_architecture_alone_takes_is_not_refused(logs: dict[str, ChangeLog]) -> None:
    """It places no row: partitions are compared all the same."""
    rule = "{matcher = ['*.*'], partition = '%s', topic = '{table}_{schema}'}"
    for partition, words in ("ts", "are not in the partition"), ("zz", ""):
        found = said(logs[SMALL], given(f"[sink]\ndispatchers = [{rule % partition}]"))
        assert not any("refuses" in one for one in found)
        assert any(words in one for one in found)


def test_patterns_that_ticdc_refuses_are_findings_and_those_beside_them_are_used(logs: dict[str, ChangeLog]) -> None:
    """Event filters and column selectors; the audit continues with the filters that TiCDC takes."""
    other = f"[[filter.event-filters]]\n{RAN}\nignore-event = ['delete']\n"
    file = given(
        f"[[filter.event-filters]]\nmatcher = ['a']\nignore-event = ['insert']\n{other}"
        "[sink]\ncolumn-selectors = [{matcher = ['b'], columns = ['*']}]"
    )
    found = said(logs[SMALL], file)
    assert any(words.endswith("refuses it: The matcher 'a' has no '.' between schema and table patterns.")
               for words in found)  # fmt: skip
    assert any("sink.column-selectors, but TiCDC refuses it: The matcher 'b'" in words for words in found)
    assert any("the log has deletes of Fin_Ops.Customers" in words for words in found)
    assert LeftOut.read(file).of(("shop", "users")) == {"delete"}


def test_rules_that_are_not_what_they_seem_are_notes(logs: dict[str, ChangeLog]) -> None:
    """As TiCDC acts on them: unknown names mean ``table``, some rules serve no table, columns that are absent fail."""
    log = logs[SMALL]
    file = given(
        "[sink]\ndispatchers = [{matcher = ['shop.*'], dispatcher = 'indexvalue'}, "
        "{matcher = ['shop.users'], partition = 'ts'}, {matcher = ['nope.*'], partition = 'ts'}, "
        "{matcher = ['Fin_Ops.Ledger'], partition = 'columns', columns = ['zz']}]"
    )
    known = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    assert [n.split(":")[0] for n in known.notes] == [
        "TiCDC knows no dispatcher 'indexvalue' (the nearest is index-value)",
        "The rule for shop.users is never reached",
        "The rule for nope.* matches no table of the log, so TiCDC never uses it.",
    ]  # fmt: skip
    assert any("cannot dispatch 400 rows of Fin_Ops.Ledger by it: [CDC:ErrDispatcherFailed]" in c.seen
               for c in known.against)  # fmt: skip


def test_an_index_that_no_table_has_is_one_finding(logs: dict[str, ChangeLog]) -> None:
    """It counts rows and tables."""
    log, file = (
        logs[SMALL],
        given("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value', index = 'x'}]"),
    )
    found = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol).against
    (seen,) = [c.seen for c in found if c.cause != "rows in other partitions"]
    n = log.events.where("kind = 'row'").count()
    assert f"{n:,} rows of Fin_Ops.Customers, " in seen and "more tables by it: [CDC:ErrDispatcherFailed]index" in seen
    assert seen.endswith("event, index: x")


def test_rows_whose_partition_cannot_be_computed_are_counted(logs: dict[str, ChangeLog]) -> None:
    """They are not compared with the rule, and a note names the table, how many, and why."""
    log = logs[SMALL]
    file = given("[sink]\ndispatchers = [{matcher = ['Fin_Ops.*'], partition = 'tidb-rowid'}]")
    known = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    told = [note.partition(", because their partition cannot be computed: ") for note in known.notes]
    assert [(said.partition(" with ")[2], bool(why)) for said, _, why in told] == [
        ("400 rows of Fin_Ops.Ledger", True), ("416 rows of Fin_Ops.nopk", True)
    ]  # fmt: skip


def test_places_of_several_numbers_of_partitions_come_from_one_pass() -> None:
    """A place among a multiple gives the place among each; no multiple has more than 32 bits."""
    assert [*_divisors([4, 5, 6, 7, 8])] == [[4, 5, 6, 7, 8]]
    assert all(lcm(*group) < 1 << 31 for group in _divisors(range(100, 105)))
    assert [n for group in _divisors(range(100, 105)) for n in group] == [*range(100, 105)]
    assert [*_divisors([7])] == [[7]]


def test_a_protocol_that_can_leave_old_values_out_and_tables_without_key(logs: dict[str, ChangeLog]) -> None:
    """The bytes show the protocol's own setting, which contradicts the one of the classic architecture as well."""
    found = said(logs[NO_KEY], given("enable-old-value = false\nforce-replicate = false"))
    assert any("sets enable-old-value = false, but the log shows sink.open.output-old-value = true" in w for w in found)
    assert any("sets force-replicate, but the log has rows of torture.k_none" in w for w in found), found


def test_a_file_that_fits_contradicts_nothing(spark: SparkSession, logs: dict[str, ChangeLog]) -> None:
    """Rules that mean the same, filters of what is absent, selectors that keep all columns."""
    log = ticdc_lab.open(SMALL, spark=spark)
    rules = log.known_settings.value("sink.dispatchers")
    log.close()
    tables = ", ".join(
        "{" + f"matcher = {r['matcher']!r}, partition = '{r['partition']}', columns = {r.get('columns', [])!r}" + "}"
        for r in rules
    )
    fits = given(f"""
        [filter]
        rules = ['*.*']
        [[filter.event-filters]]
        matcher = ['elsewhere.*']
        ignore-event = ['all dml', 'all ddl']
        ignore-sql = ['^DROP']
        [[filter.event-filters]]
        matcher = ['*.*']
        ignore-event = ['drop schema']
        [sink]
        protocol = 'canal-json'
        dispatchers = [{tables}]
        column-selectors = [{{matcher = ['*.*'], columns = ['*']}}]
        [sink.kafka-config]
        partition-num = 4
    """)
    assert rules and said(logs[SMALL], fits) == []


def test_names_and_ddl_alone_show_some_of_them(logs: dict[str, ChangeLog]) -> None:
    """As a watch asks, which has no frame of all events."""
    facts = logs[SMALL].facts
    text = f"[filter]\nrules = ['shop.*']\n[[filter.event-filters]]\n{RAN}\nignore-event = ['update', 'create table']"
    assert [c.given.name for c in against_facts(facts, given(text))] == ["filter.rules", *["filter.event-filters"] * 2]
    assert not [*against_facts(facts, Settings())]
    few, enough = (given(f"[sink.kafka-config]\npartition-num = {n}") for n in (3, 4))
    assert [c.given.name for c in against_facts(facts, few)] == ["sink.kafka-config.partition-num"]
    assert not [*against_facts(facts, enough), *against_facts(facts, few, has_partitions=False)]


def test_a_split_update_is_no_delete_that_a_filter_leaves_out(spark: SparkSession) -> None:
    """TiCDC filters the update and splits it behind: its delete and insert have one commit_ts."""
    form = ("kind string, schema_name string, table_name string, key_hash bigint, commit_ts bigint, op string, "
            "incomplete string, partition int, offset bigint")  # fmt: skip
    rows = [("row", "s", "t", 7, ts, op, None, 0, i) for i, (ts, op) in enumerate(
        [(5, "delete"), (5, "insert"), (6, "insert"), (7, "insert")]
    )]  # fmt: skip
    file = given("[[filter.event-filters]]\nmatcher = ['s.*']\nignore-event = ['delete', 'insert']")
    evidence = _evidence_in(spark.createDataFrame(rows, form).repartition(3, "offset"), file, "simple")
    facts = LogFacts.read(ARROW.empty_table())
    found = [(c.seen, c.places) for c in against_rows(evidence, facts, file, protocol="simple")]
    assert found == [("the log has inserts of s.t, which the event filter of s.* leaves out", ((0, 2, 6),))]
    by_images = [*against_rows(evidence, facts, file, protocol="open-protocol")]
    assert not by_images, "an update may look like an insert"


CODEC, BIG = "[sink.kafka-config.codec-config]\n", "[sink.kafka-config.large-message-handle]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[sink.csv]\ndelimiter = ';'", 'sets sink.csv.delimiter = ";", but the log shows ","'),
        ("[sink.csv]\nnull = 'NULL'", r'sets sink.csv.null = "NULL", but the log shows "\\N"'),
        ("[sink.csv]\nbinary-encoding-method = 'hex'", 'but the log shows "base64"'),
        ("[sink.csv]\ninclude-commit-ts = true", "but the log shows false"),
        ("[sink.csv]\noutput-old-value = true", "but the log shows false"),
        ("[sink.csv]\noutput-handle-key = true", "but the log shows false"),
        ("[sink.csv]\noutput-field-header = true", "but the log shows false"),
        ('[sink]\nterminator = "\\n"', r'but the log shows "\r\n"'),
        ("[sink]\ndate-separator = 'month'", 'sets sink.date-separator = "month", but the log shows "day"'),
        ("[sink]\ndate-separator = 'none'", 'sets sink.date-separator = "none", but the log shows "day"'),
        ("[sink]\nfile-index-digit = 6", "sets sink.file-index-digit = 6, but the log shows 20"),
        ("[sink.cloud-storage-config]\nuse-table-id-as-path = true", "but the log shows false"),
    ],
)
def test_a_file_that_cannot_have_made_a_csv_folder_is_named_and_the_folder_read_as_it_is(
    spark: SparkSession, trees: Path, text: str, expected: str
) -> None:
    """What the bytes show counts, so that no row goes to quarantine for a wrong file."""
    log = ticdc_lab.load(spark, str(trees / "small_csv"), changefeed=given(text))
    (words,) = [c.words for c in log.settings.contradictions]
    assert expected in words and words.endswith("the bytes count.")
    assert log.quarantine.limit(1).count() == 0


def test_fsck_reads_a_folder_as_its_bytes_show_and_names_a_wrong_file(
    spark: SparkSession, trees: Path, tmp_path: Path
) -> None:
    """A clean folder has one finding: the file's setting."""
    (file := tmp_path / "c.toml").write_text("[sink.csv]\ndelimiter = ';'\n")
    ran = CliRunner().invoke(main, ["fsck", str(trees / "small_csv"), "--changefeed", str(file), "--json"], obj=spark)
    (found,) = json.loads(ran.stdout)["findings"]
    assert ran.exit_code == 1 and found["kind"] == "setting" and 'sink.csv.delimiter = ";", but' in found["found"]


def test_a_note_alone_is_a_remark_and_no_fault(spark: SparkSession, tmp_path: Path) -> None:
    """Many files have a rule for a table that changes later: exit code 0."""
    (file := tmp_path / "c.toml").write_text(
        "sink-uri = 'kafka://h/t?protocol=open-protocol&kompression=lz4'\n[filter]\nrules = ['*.*']\n"
    )
    source = "tests/data/torture/messages_open-protocol-updatedonly.jsonl.gz"
    ran = CliRunner().invoke(main, ["audit", source, "--changefeed", str(file), "--json"], obj=spark)
    (found,) = json.loads(ran.stdout)["findings"]
    assert ran.exit_code == 0 and found["severity"] == "info"
    assert found["message"].startswith("TiCDC ignores the unknown parameter kompression (the nearest is compression)")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden folders of the storage sink."""
    return unpack(tmp_path_factory.mktemp("trees"))


def messages(*values: bytes) -> pa.Table:
    """Messages without keys."""
    return pa.table({"key": pa.nulls(len(values), pa.binary()), "value": pa.array(values, pa.binary())})


LOCATION = b'{"type":"INSERT","data":{"ts":{"location":"Asia/Shanghai","value":"2026-11-20 21:56:00"}}}'
LARGE_MESSAGES = {
    "open-protocol": (b'{"ccl":"a.json"}', b'{"ohk":true}'),
    "canal-json": (b'{"_tidb":{"claimCheckLocation":"a.json"}}', b'{"_tidb":{"onlyHandleKey":true}}'),
    "simple": (b'{"claimCheckLocation":"a.json"}', b'{"handleKeyOnly":true}'),
}


@pytest.mark.parametrize("protocol", LARGE_MESSAGES)
def test_large_messages_that_a_file_denies_are_a_contradiction(protocol: str) -> None:
    """None at all, handle keys for claim checks, and the other way round, packed messages."""
    claims, keys = LARGE_MESSAGES[protocol]
    for file, value, shown in (
        ("none", claims, "claim-check"), ("handle-key-only", claims, "claim-check"),
        ("claim-check", keys, "handle-key-only"),
    ):  # fmt: skip
        known = given(f"{BIG}large-message-handle-option = '{file}'") | of_messages(messages(value), protocol=protocol)
        (words,) = [c.words for c in known.contradictions]
        assert f'"{file}", but the log shows "{shown}"' in words
    packed = of_messages(messages(b"\x04\x22\x4d\x18."), protocol=protocol, unpacked=messages(claims))
    known = given(f"{BIG}large-message-handle-compression = 'snappy'\nlarge-message-handle-option = 'claim-check'")
    assert ['compression = "snappy", but the log shows "lz4"' in c.words for c in (known | packed).contradictions] == [
        True
    ]


def test_another_time_zone_or_encoding_than_the_messages_have_is_a_contradiction() -> None:
    """Simple names the zone in each TIMESTAMP, and shows whether it is Avro."""
    shown = of_messages(messages(LOCATION), protocol="simple")
    assert [c.words.split(": ")[0] for c in (Settings().with_option("time-zone", "UTC") | shown).contradictions] == [
        'The option (--option time-zone) sets time-zone = "UTC", but the log shows "Asia/Shanghai"'
    ]
    known = given(f"{CODEC}encoding-format = 'avro'") | shown
    assert ['"avro", but the log shows "json"' in c.words for c in known.contradictions] == [True]


@pytest.mark.parametrize("protocol", ["simple", "avro"])
def test_checksums_that_a_file_denies_are_a_contradiction(protocol: str) -> None:
    """Rows carry them although the level is none."""
    row = {n: [0] for n in COUNTED.names} | {"op": ["insert"], "n": [9], "n_key": [9], "n_checksum": [9]}
    shown = of_counts(pa.table(row, COUNTED), protocol=protocol)
    (words,) = [c.words for c in (given("[integrity]\nintegrity-check-level = 'none'") | shown).contradictions]
    assert 'integrity.integrity-check-level = "none", but the log shows "correctness": 9 of 9' in words


def test_tables_that_avro_names_otherwise_contradict_no_rule(spark: SparkSession) -> None:
    """Rules have TiDB's names, by which TiCDC hashes and filters, and rows the ones of Avro: a note
    names the tables.
    """
    source, schemas = (f"tests/data/torture/{name}_avro-before.jsonl.gz" for name in ("messages", "schemas"))
    log = ticdc_lab.load(spark, source, schema_registry=schemas)
    file = given(
        "[sink]\ndispatchers = [{matcher = ['torture.ints', 'torture.`we.ird`'], partition = 'table'}]\n"
        "[filter]\nrules = ['*.*', '!torture.we_ird']"
    )
    known = with_contradictions(lambda: log.events, log.facts, log.settings | file, protocol=log.protocol)
    assert known.against == () and [s.sure for s in known.known if s.name == "sink.dispatchers"] == ["verified"]
    (note,) = known.notes
    assert note.startswith("Rules, filters and selectors are not compared with DB Upper.T.x, ")
