"""Changefeed files: every key at every depth is read, has no bearing on a log, or is an error with the nearest one."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from together import together

from ticdc_lab.cli import main
from ticdc_lab.errors import DispatchError
from ticdc_lab.settings import MATCH
from ticdc_lab.settings.file import given_settings, parse_file, read_file
from ticdc_lab.settings.keys import CHOICES, FROM_URI, GONE, KEYS, OUTSIDE, TABLES
from ticdc_lab.sources.origin import Origin

DATA = Path(__file__).parents[1] / "data" / "settings"
SAMPLE = "data/messages_canal-json-tidb_small.jsonl.gz"


def test_a_parameter_of_the_sink_uri_that_ticdc_ignores_is_named() -> None:
    """TiCDC takes the default without a word; a setting that is known stays without one here."""
    uri = "kafka://h:9092/t?protocol=canal-json&enable-tidb-extention=true&kafka-version=2.4.0&max-retry=1"
    (note,) = parse_file(f"sink-uri = '{uri}'", name="c.toml").settings.not_evaluated
    assert note == (
        "TiCDC ignores the unknown parameter enable-tidb-extention (the nearest is enable-tidb-extension) of the "
        "sink-uri."
    )
    assert not parse_file("sink-uri = 's3://b/p?protocol=csv&sas-token=x'", name="c.toml").settings.not_evaluated


def test_every_key_of_ticdc_is_read_has_no_bearing_or_is_refused() -> None:
    """The list is TiCDC's; beside it stand what older TiCDC had, and what is no key of the file."""
    theirs = {k for k in (DATA / "ticdc_keys.txt").read_text().splitlines() if not k.startswith("#")}
    assert len(theirs) > 200 and theirs <= set(KEYS)
    assert set(KEYS) - theirs == {"enable-old-value", *OUTSIDE, *GONE}
    assert {k.bearing for k in KEYS.values()} == {"read", "none", "refused"}
    assert set(FROM_URI.values()) <= {n for n, k in KEYS.items()}


@together("key", sorted(KEYS))
def test_a_key_with_a_letter_too_few_is_an_error_that_suggests_it(key: str) -> None:
    """At every depth, in lists of tables as well; TiCDC's command line refuses it, too."""
    table, _, name = key.rpartition(".")
    wrong = name[:-1]
    if f"{table}.{wrong}".strip(".") in {*KEYS, *TABLES}:
        return
    inner = f'"{wrong}" = 1'
    if table in ("sink.dispatchers", "sink.column-selectors", "filter.event-filters"):
        above, _, of = table.rpartition(".")
        text = f"[[{above}.{of}]]\nmatcher = ['*.*']\n{inner}"
    else:
        text = f"[{table}]\n{inner}" if table else inner
    with pytest.raises(DispatchError, match=rf"unknown key: {table}\.?{wrong} \(the nearest is {name}\)"):
        parse_file(text, name="c.toml")


def test_an_unknown_table_is_an_error_too() -> None:
    """Its content is not looked at."""
    with pytest.raises(DispatchError, match=r"unknown key: sink\.kafka-confg \(the nearest is kafka-config\)"):
        parse_file("[sink.kafka-confg]\npartition-num = 3", name="c.toml")


def test_a_key_of_another_type_is_an_error() -> None:
    """With what was expected."""
    for text, words in (
        ("[mounter]\nworker-num = true", "worker-num to be of type int"),
        ("[filter]\nrules = [1]", "texts in rules"),
        ("[filter]\nignore-txn-start-ts = ['a']", "whole numbers in ignore-txn-start-ts"),
        ("[filter]\nevent-filters = {}", "event-filters ="),
        ("sink = 1", r"a table \[sink\]"),
        ("[scheduler]\nmin-traffic-percentage = 'x'", "of type number"),
    ):
        with pytest.raises(DispatchError, match=words):
            parse_file(text, name="c.toml")


@pytest.mark.parametrize(("key", "wrong", "near"), [
    ("filter.event-filters.ignore-event", "inserts", "insert"),
    ("filter.event-filters.ignore-event", "Delete", "delete"),
    ("filter.event-filters.ignore-event", "drop tables", "drop table"),
    ("filter.event-filters.ignore-event", "truncate tabel", "truncate table"),
    ("integrity.integrity-check-level", "correct", "correctness"),
    ("sink.protocol", "canal-jso", "canal-json"),
    ("sink.kafka-config.codec-config.encoding-format", "arvo", "avro"),
    ("sink.kafka-config.large-message-handle.large-message-handle-option", "claimcheck", "claim-check"),
])  # fmt: skip
def test_a_value_that_ticdc_does_not_take_is_refused_with_those_that_it_takes(key: str, wrong: str, near: str) -> None:
    """An event that TiCDC does not know would leave nothing out, and the finding that it should explain stands."""
    table, _, name = key.rpartition(".")
    value = f"['{wrong}']" if KEYS[key].kind == "texts" else f"'{wrong}'"
    head = f"[[{table}]]" if table.endswith("-filters") else f"[{table}]"
    with pytest.raises(DispatchError, match=rf"{name} is '{wrong}' \(the nearest is '{near}'\); expected one of"):
        parse_file(f"{head}\n{name} = {value}", name="c.toml")
    for choice in CHOICES[key]:
        parse_file(f"{head}\n{name} = {value.replace(wrong, choice)}", name="c.toml")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", ["[filter]\nrules = ['s.é']", '{"config": {"filter": {"rules": ["s.é"]}}}'])
def test_a_file_that_windows_tools_wrote_is_read(tmp_path: Path, text: str, encoding: str) -> None:
    """Notepad puts a mark before UTF-8, which TiCDC's TOML passes over; PowerShell's ``>`` writes UTF-16."""
    file = tmp_path / "changefeed"
    file.write_text(text, encoding=encoding)
    assert read_file(file).settings.value("filter.rules") == ("s.é",)


def test_an_empty_event_is_none_that_ticdc_knows() -> None:
    """It is refused, as TiCDC does; an empty text where one stands alone is as if it were absent."""
    with pytest.raises(DispatchError, match="ignore-event is ''; expected one of all dml"):
        parse_file("[[filter.event-filters]]\nignore-event = ['']", name="c.toml")
    assert parse_file("[sink]\nprotocol = ''", name="c.toml").settings.value("sink.protocol") in (None, "")


@pytest.mark.parametrize(("written", "meant"), [
    ("Canal-JSON", "canal-json"), ("DEFAULT", "open-protocol"), ("Flat-Avro", "avro"), ("open", "open-protocol"),
])  # fmt: skip
def test_a_protocol_is_named_in_any_case_and_by_its_other_names(written: str, meant: str) -> None:
    """In the file, in the sink-uri and behind an option, as TiCDC reads it."""
    in_uri = parse_file(f"sink-uri = 'kafka://h/t?protocol={written}'", name="c.toml").settings
    in_file = parse_file(f"[sink]\nprotocol = '{written}'", name="c.toml").settings
    optional = given_settings({"protocol": written})
    assert {s.value("sink.protocol") for s in (in_uri, in_file, optional)} == {meant}
    with pytest.raises(DispatchError, match=r"protocol='avr0' in the sink-uri is 'avr0' \(the nearest is 'avro'\)"):
        parse_file("sink-uri = 'kafka://h/t?protocol=avr0'", name="c.toml")


def test_json_of_cdc_cli_and_of_the_open_api_is_read_as_toml() -> None:
    """Snake case, the keys that it calls otherwise, and what is beside the settings; null is nothing."""
    config = {"case_sensitive": True, "sink": {"protocol": "open", "file_index_width": 8, "csv": None,
              "dispatchers": [{"matcher": ["a.*"], "partition": "ts", "target-schema": "b"}],
              "kafka_config": {"partition_num": 4, "codec_config": {"enable_tidb_extension": True}}}}  # fmt: skip
    of_cli = {"id": "x", "sink_uri": "kafka://h/t?partition-num=6", "config": config, "error": {"code": "E"}}
    of_api = {"changefeed_id": "x", "sink_uri": "kafka://h/t?partition-num=6", "replica_config": config}
    for document in (of_cli, of_api, {"info": of_cli, "status": {}}):
        file = parse_file(json.dumps(document), name="c.json")
        s = file.settings
        assert file.sink_uri == "kafka://h/t?partition-num=6"
        assert (s.value("case-sensitive"), s.value("sink.protocol"), s.value("file-index-digit")) == (
            True, "open-protocol", 8,
        )  # fmt: skip
        assert s.value("partition-num") == 6 and s.value("enable-tidb-extension") is True
        assert s.value("sink.dispatchers")[0]["target-schema"] == "b"
    assert parse_file(json.dumps(config), name="c.json").settings.value("partition-num") == 4
    wrong = {**of_cli, "config": {"sink": {"kafka_config": {"partitions_num": 1}}}}
    with pytest.raises(DispatchError, match=r"kafka-config\.partitions-num \(the nearest is partition-num\)"):
        parse_file(json.dumps(wrong), name="c.json")
    with pytest.raises(DispatchError, match="unknown key: confg"):
        parse_file(json.dumps({**of_cli, "confg": 1}), name="c.json")


def test_what_ticdc_of_another_release_printed_is_read_without_what_is_unknown() -> None:
    """TiCDC itself wrote the keys, so none is a typing error; a note names them."""
    config = {"sink": {"protocol": "open-protocol", "new_key": 1, "dispatchers": [{"matcher": ["a.*"], "newer": "x"}],
              "kafka_config": {"partition_num": 4, "another": {"n": 1}}}, "scheduler": {"new_one": True}}  # fmt: skip
    for beside in ({"state": "normal"}, {"checkpoint_ts": 4}, {"creator_version": "v9.0.0"}):
        file = parse_file(json.dumps({"id": "x", "config": config, **beside}), name="c.json")
        assert file.settings.value("sink.protocol") == "open-protocol" and file.settings.value("partition-num") == 4
        assert [dict(d) for d in file.settings.value("sink.dispatchers")] == [{"matcher": ["a.*"]}]
        [said] = file.settings.notes
        assert said.endswith(
            "not read: sink.new-key, sink.dispatchers.newer, sink.kafka-config.another, scheduler.new-one."
        )


def test_json_without_settings_says_which_command_gives_them() -> None:
    """The short form, and a list of changefeeds."""
    for document, words in (({"state": "normal", "checkpoint_tso": 1}, "short form"), ({"items": []}, "lists")):
        with pytest.raises(DispatchError, match=words) as refused:
            parse_file(json.dumps(document), name="c.json")
        assert "cdc cli changefeed query" in str(refused.value)


def test_secrets_of_a_file_are_not_kept() -> None:
    """Settings travel to workers and into saved states."""
    known = parse_file("[sink.kafka-config]\nsasl-password = 'sesame'", name="c.toml").settings
    assert "sesame" not in repr(known)


def test_options_are_settings_by_their_short_names(tmp_path: Path) -> None:
    """They win over the file; what is no setting is left to the source."""
    (tmp_path / "c.toml").write_text("[sink.csv]\ndelimiter = ';'\nquote = \"'\"")
    options = {"csv.delimiter": "|", "enable-tidb-extension": "false", "startingOffsets": "latest"}
    known = given_settings(options, file=str(tmp_path / "c.toml"))
    assert [(s.text, s.source) for s in known] == [('"|"', "option"), ('"\'"', "file"), ("false", "option")]
    with pytest.raises(DispatchError, match="expected true or false"):
        given_settings({"enable-tidb-extension": "maybe"})


def test_a_file_is_kept_with_what_was_loaded() -> None:
    """So a saved panel is made again with the same settings."""
    known = parse_file("[sink.csv]\ndelimiter = ';'", name="c.toml").settings
    again = Origin.from_dict(json.loads(json.dumps(Origin("x.jsonl", changefeed=known).as_dict())))
    assert again.changefeed == known


def test_a_state_of_an_earlier_version_keeps_how_its_files_were_read() -> None:
    """It has the settings of storage files by names of its own."""
    earlier = Origin("x").as_dict() | {"settings": {"csv_null": "-", "csv_columns": "s.t:a", "date_separator": "day"}}
    known = Origin.from_dict(json.loads(json.dumps(earlier))).changefeed
    assert {s.name: (s.value, s.source) for s in known} == {
        "sink.csv.null": ("-", "option"), "sink.csv.columns": ("s.t:a", "option"),
        "sink.date-separator": ("day", "option"),
    }  # fmt: skip


def test_what_contradicts_the_log_is_said_with_every_answer(spark: SparkSession, tmp_path: Path) -> None:
    """And the command exits with 1; the file's other keys are in the table."""
    file = tmp_path / "c.toml"
    file.write_text("[sink]\nprotocol = 'flat-avro'\n[sink.kafka-config.codec-config]\nenable-tidb-extension = true")
    run = CliRunner().invoke(main, ["settings", SAMPLE, "--changefeed", str(file)], obj=spark)
    assert run.exit_code == 1, run.output
    assert 'sets sink.protocol = "avro", but the log shows "canal-json"' in run.stdout
    assert run.stderr.count("sets sink.protocol") == 1, "among the limits"
    file.write_text("[sink]\nprotocol = 'canal-json'")
    again = CliRunner().invoke(main, ["settings", SAMPLE, "--changefeed", str(file), "--json"], obj=spark)
    assert again.exit_code == 0, again.output
    rows = {r["setting"]: r for r in json.loads(again.stdout)["settings"]}
    assert rows["sink.protocol"]["known from"] == "bytes" and all(all(r.values()) for r in rows.values())


def test_a_missing_file_is_named_before_anything_is_read(tmp_path: Path) -> None:
    """In words."""
    with pytest.raises(DispatchError, match=r"nowhere\.toml cannot be read: No such file"):
        read_file(tmp_path / "nowhere.toml")


def test_a_contradiction_is_a_finding_of_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    """A warning that names both values, with what to do next; a file that fits gives none."""
    file = tmp_path / "c.toml"
    file.write_text("[sink]\nprotocol = 'simple'")
    run = CliRunner().invoke(main, ["audit", SAMPLE, "--changefeed", str(file), "--json"], obj=spark)
    found = [f for f in json.loads(run.stdout)["findings"] if f["guarantee"] == MATCH]
    assert [(f["severity"], f["partition"]) for f in found] == [("warning", None)]
    assert 'sets sink.protocol = "simple", but the log shows "canal-json"' in found[0]["message"]
    file.write_text("[sink]\nprotocol = 'canal-json'")
    fits = CliRunner().invoke(main, ["audit", SAMPLE, "--changefeed", str(file), "--json"], obj=spark)
    assert MATCH not in json.loads(fits.stdout)["counts"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), "auto"),
        (("--changefeed", "FILE"), "simple"),
        (("--changefeed", "FILE", "--protocol", "simple"), "simple"),
        (("--changefeed", "FILE", "--protocol", "avro"), "the changefeed's file has simple"),
        (("--option", "csv.null=x"), "ingest uses no setting of a changefeed"),
        (("--option", "time-zone=UTC"), "ingest uses no setting of a changefeed"),
        (("--option", "maxOffsetsPerTrigger=5"), "auto"),
    ],
)
def test_ingest_uses_the_protocol_alone_and_refuses_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], expected: str
) -> None:
    """What nothing would use is not taken in silence."""
    seen = list[str]()
    monkeypatch.setattr("ticdc_lab.cli.arguments.check_source", lambda *args, **kwargs: None)
    monkeypatch.setattr("ticdc_lab.lake.ingest.ingest", lambda *args, protocol, **kwargs: seen.append(protocol))
    (tmp_path / "c.toml").write_text("[sink]\nprotocol = 'simple'")
    args = [str(tmp_path / "c.toml") if a == "FILE" else a for a in given]
    result = CliRunner().invoke(main, ["ingest", "kafka://h:1/t", "--out", str(tmp_path / "lake"), *args], obj=object())
    assert seen == [expected] or expected in result.output, result.output


JSON_OF_V4 = """{
        "info": {"sink-uri": "kafka://h:9092/t?protocol=default\\u0026partition-num=3", "opts": {}, "admin-job-type": 0,
                "config": {"case-sensitive": true, "enable-old-value": false,
                        "filter": {"rules": ["*.*"], "ignore-txn-start-ts": null, "ddl-allow-list": "AQI="},
                        "mounter": {"worker-num": 16},
                        "sink": {"dispatchers": [{"matcher": ["shop.*"], "dispatcher": "rowid"}], "protocol": ""},
                        "cyclic-replication": {"enable": false, "replica-id": 0, "filter-replica-ids": null},
                        "scheduler": {"type": "table-number", "polling-time": -1}},
                "sync-point-enabled": false, "creator-version": "v4.0.16"},
        "status": {"resolved-ts": 1, "checkpoint-ts": 1, "admin-job-type": 0}, "count": 0, "task-status": []}"""
JSON_OF_V8 = """{"upstream_id": 7, "namespace": "default", "id": "x", "sink_uri": "kafka://h:9092/t?protocol=open-protocol",
 "config": {"sync_point_interval": "10m0s", "filter": {"rules": ["*.*"], "event_filters": null}, "mounter": {},
  "sink": {"advance_timeout": 150, "dispatchers": [{"matcher": ["shop.*"], "partition": "index-value"}],
   "kafka_config": {"partition_num": 3}}, "scheduler": {"region_threshold": 100000, "region_per_span": 0}},
 "error_history": null, "checkpoint_tso": 4, "state": "normal"}"""
TOML_OF_V4 = """
[filter]
ddl-allow-list = [1, 2]
[sink]
protocol = "default"
dispatch-rules = [{matcher = ["shop.*"], rule = "index-value"}]
[sink.kafka-config]
partition-num = 3
[scheduler]
type = "manual"
polling-time = 5
[cyclic-replication]
enable = false
sync-ddl = true
"""
OF_API_V1 = """{"changefeed_id": "x", "sink_uri": "kafka://h:9092/t?partition-num=3", "filter_rules": ["*.*"],
 "mounter_worker_num": 16, "ignore_txn_start_ts": [],
 "sink_config": {"dispatchers": [{"matcher": ["shop.*"], "dispatcher": "index-value"}], "protocol": "default"}}"""


@pytest.mark.parametrize("text", [JSON_OF_V4, JSON_OF_V8, TOML_OF_V4, OF_API_V1], ids=["v4", "v8.5", "v4.toml", "v1"])
def test_what_older_releases_and_other_interfaces_give_is_read(text: str) -> None:
    """Each shows the same: one rule, three partitions, open-protocol; no key is unknown."""
    found = parse_file(text, name="c")
    (rule,) = found.settings.value("sink.dispatchers")
    assert rule["matcher"] == ["shop.*"] and (rule.get("dispatcher") or rule["partition"]) in ("rowid", "index-value")
    assert found.settings.value("sink.protocol") == "open-protocol" and not found.refused
    assert found.settings.value("sink.kafka-config.partition-num") == 3 and not found.settings.not_evaluated


@pytest.mark.parametrize(("text", "words"), [
    ('{"sink_config": "a"}', "expected a table"), ('{"filter": "a", "filter_rules": ["x"]}', "expected a table"),
    ('{"sink": 3, "sink_config": {}}', "expected a table"),
    ('sink-uri = "kafka://u:pass@[h/t"', "The sink-uri of c is no URI"),
    ("[sink.kafka-config]\npartition-num = 5000000000", "partition-num up to 2147483647; found 5000000000"),
    ('sink-uri = "kafka://h/t?partition-num=5000000000"', "expected a whole number up to 2147483647"),
])  # fmt: skip
def test_a_table_that_is_none_and_a_uri_that_is_none_are_refused(text: str, words: str) -> None:
    """Each was an error of Python before; the password is not shown."""
    with pytest.raises(DispatchError, match=words) as refused:
        parse_file(text, name="c")
    assert "pass" not in str(refused.value)


def test_what_the_open_api_v1_has_as_null_is_not_given() -> None:
    """And it counts beside the same table of v2."""
    text = '{"sink_config": null, "sink": {"protocol": "avro"}, "filter": null, "filter_rules": ["x.*"], "info": null}'
    settings = parse_file(text, name="c").settings
    assert {s.name: s.value for s in settings.known} == {"sink.protocol": "avro", "filter.rules": ("x.*",)}


@pytest.mark.parametrize(("before", "after"), [
    ("Starting component `cdc`: /root/.tiup/components/cdc/v6.5.0/cdc cli changefeed query\n", ""),
    ('[2022/12/19 19:06:33.123 +08:00] [WARN] [cli.go:90] ["the flag --pd is deprecated"]\n', ""),
    ("Create changefeed successfully!\nInfo: ", "\n"),
    ("/tidb/cdc/default/default/changefeed/info/x\n", "\n"),
    ("", "\n[root@cdc-1 ~]#"),
])  # fmt: skip
def test_lines_beside_the_json_are_skipped_and_said(before: str, after: str) -> None:
    """As tiup, a log, ``changefeed create``, etcdctl and a terminal leave them."""
    text = json.dumps(json.loads(JSON_OF_V8))
    found = parse_file(f"{before}{text}{after}", name="c.json").settings
    assert found.known == parse_file(text, name="c.json").settings.known
    assert found.not_evaluated == ("c.json has 1 line beside the JSON, which is not read.",)


@pytest.mark.parametrize("text", [
    "```toml\n{toml}\n```\n",
    "[tidb@n1 ~]$ cat changefeed.toml\n{toml}\n[tidb@n1 ~]$ \n",
    "cat > changefeed.toml <<'EOF'\n{toml}\nEOF\n",
    '[2021/08/05 12:16:51.557 +08:00] [INFO] [changefeed.go:239] ["close changefeed"] [info={log}]\n',
    "Diff of changefeed config:\n{{Type:update Path:[SinkURI] From:a To:b}}\nID: x\nInfo: {json}\n",
])  # fmt: skip
def test_settings_that_were_copied_from_a_page_a_terminal_or_a_log_are_read(text: str) -> None:
    """What is around them is reported: fences, a prompt, a here-document, the words of ``changefeed update``."""
    config = {"sink-uri": "kafka://h/t", "config": {"filter": {"rules": ["shop.*"]}, "sink": {"protocol": "avro"}}}
    toml = 'sink-uri = "kafka://h/t"\n[filter]\nrules = ["shop.*"]\n[sink]\nprotocol = "avro"'
    whole = json.dumps(config)
    found = parse_file(text.format(toml=toml, json=whole, log=json.dumps(whole)), name="c")
    assert {s.name: s.value for s in found.settings.known} == {"filter.rules": ("shop.*",), "sink.protocol": "avro"}
    assert found.sink_uri == "kafka://h/t" and "which are not read" in found.settings.not_evaluated[0]


@pytest.mark.parametrize("text", [
    'cdc cli changefeed create --server=http://h:8300 --sink-uri="kafka://h/t?protocol=avro&partition-num=6" -c x\n',
    "kafka://h/t?protocol=avro&partition-num=6\n",
])  # fmt: skip
def test_a_command_or_a_uri_alone_gives_the_settings_of_the_sink_uri(text: str) -> None:
    """People have no file then."""
    known = parse_file(text, name="c").settings.known
    assert {s.name: s.value for s in known} == {"sink.protocol": "avro", "sink.kafka-config.partition-num": 6}


def test_a_command_beside_the_settings_does_not_hide_them() -> None:
    """A terminal shows both; and a fault in the settings is one, also below a comment with the command."""
    command = 'cdc cli changefeed create --sink-uri="kafka://h/t?partition-num=6" --config x.toml\n'
    found = parse_file(f"[tidb@n1 ~]$ {command}[tidb@n1 ~]$ cat x.toml\n[sink]\nprotocol = 'avro'\n", name="c")
    assert found.sink_uri == "kafka://h/t?partition-num=6"
    assert found.settings.value("sink.protocol") == "avro"
    with pytest.raises(DispatchError, match="is no TOML"):
        parse_file(f"# {command}[sink]\nprotocol = avro\n", name="c")


def test_what_is_no_file_of_a_changefeed_says_what_it_is() -> None:
    """TiCDC's server has a file, too; a list may have a prompt before it; MySQL's changefeed has no protocol."""
    with pytest.raises(DispatchError, match=r"settings of TiCDC's server \(addr, sorter\), not of a changefeed"):
        parse_file("addr = '0.0.0.0:8300'\n[sorter]\nsort-dir = '/tmp'\n", name="cdc.toml")
    with pytest.raises(DispatchError, match="lists changefeeds"):
        parse_file('./cdc cli changefeed list\n[\n  {\n    "id": "a"\n  }\n]\n', name="c")
    with pytest.raises(DispatchError, match="is no TOML") as refused:
        parse_file("server_configs:\n  cdc:\n    newarch: true\n", name="c")
    assert "cdc cli changefeed query" in refused.value.hint
    of_mysql = {"sink_uri": "mysql://h:4000/", "config": {"sink": {"protocol": "", "terminator": "\r\n"}}}
    assert parse_file(json.dumps(of_mysql), name="c").settings.value("sink.protocol") is None


def test_a_changefeed_of_etcdctl_in_json_is_read() -> None:
    """Its keys and values are in base64; the status beside it is no changefeed, and two are one too many."""
    info = {"sink-uri": "kafka://h/t?partition-num=6", "config": {"sink": {"protocol": "avro"}}, "state": "normal"}
    at = "/tidb/cdc/default/default/changefeed/"
    told = {f"{at}info/a": info, f"{at}status/a": {"checkpoint-ts": 7}, f"{at}info/b": info}
    pairs = [{"key": coded(key), "value": coded(json.dumps(value))} for key, value in told.items()]
    found = parse_file(json.dumps({"header": {}, "kvs": pairs[:2], "count": 2}), name="c")
    assert (found.sink_uri, found.settings.value("sink.protocol")) == ("kafka://h/t?partition-num=6", "avro")
    for some, said in ((pairs, "lists changefeeds"), (pairs[1:2], "has no changefeed among its 1 key of etcd")):
        with pytest.raises(DispatchError, match=said):
            parse_file(json.dumps({"kvs": some}), name="c")


def coded(text: str) -> str:
    """Base64 of a text."""
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sink]\nprotocol = \u201cavro\u201d\n", "typographic quotes"),
        ("[sink]\nprotocol = &quot;avro&quot;\n", "escapes of HTML"),
        ('{\\"config\\":{\\"sink\\":{\\"protocol\\":\\"avro\\"}}}\n', "backslashes before its quotes"),
        ('"{\\"config\\":{\\"sink\\":{\\"protocol\\":\\"avro\\"}}}"\n', "JSON in a text of JSON"),
        ("sink:\n  protocol: avro\n", "resembles YAML, which TiCDC does not take"),
    ],
)
def test_a_file_that_a_page_rewrote_is_refused_with_what_undoes_it(text: str, said: str) -> None:
    """Forums replace quotes, and logs escape them."""
    with pytest.raises(DispatchError) as refused:
        parse_file(text, name="c")
    assert said in refused.value.hint


def test_keys_of_older_releases_have_todays_names_and_those_that_count_are_refused() -> None:
    """A table list counts, an empty one does not; two changefeeds are one too many."""
    old = "[sink.csv]\nterminator = 'x'\ndate-separator = 'year'"
    assert parse_file(old, name="c").settings.value("sink.date-separator") == "year"
    for text, words in (
        ("[filter]\ndo-dbs = ['a']", ("filter.do-dbs is refused: of files before TiDB v4.0",)),
        ("[filter]\ndo-dbs = []", ()),
        ("[cyclic-replication]\nenable = true", ("cyclic-replication.enable is refused: TiCDC of v4.0 to v6.1",)),
    ):
        refused = parse_file(text, name="c").refused
        assert len(refused) == len(words) and all(r.startswith(w) for r, w in zip(refused, words, strict=True))
    for several in (f"{OF_API_V1}\n{OF_API_V1}", '[\n  {\n    "id": "x",\n    "summary": {"state": "normal"}\n  }\n]'):
        with pytest.raises(DispatchError, match="lists changefeeds"):
            parse_file(several, name="c")


def test_rows_that_an_old_changefeed_would_not_send_are_said(spark: SparkSession, tmp_path: Path) -> None:
    """Without old values a table without key has no deletes: the rows are fewer, and the answer reports it."""
    file = tmp_path / "c.json"
    file.write_text(f"Starting component `cdc`: query\n{JSON_OF_V4}")
    args = ["dispatch", SAMPLE, "--changefeed", str(file), "--partitions", "3", "--out", str(tmp_path / "o.parquet")]
    run = CliRunner().invoke(main, args, obj=spark)
    assert run.exit_code == 0 and "2,041 row changes go to 3 partitions" in run.output, run.output
    assert "sends no delete of a table without handle key" in run.output
    assert "has 1 line beside the JSON, which is not read" in run.output


@pytest.mark.parametrize(("text", "said"), [
    ("sink-uri = 3", "expected sink-uri to be a text; found 3"),
    ('{"sink_uri": ["a"], "config": {}}', "expected sink_uri to be a text; found ['a']"),
    ('{"info": "x"}', "expected info to be a table; found 'x'"), ('{"info": [1]}', "expected info to be a table"),
    ('{"info": {"config": "x"}}', "expected config to be a table; found 'x'"),
    ('{"replica_config": 3}', "expected replica_config to be a table; found 3"),
    ('{"start_ts": "x", "config": {}}', "expected start_ts to be a whole number; found 'x'"),
    ('{"checkpoint_ts": true, "config": {}}', "expected checkpoint_ts to be a whole number; found True"),
    ('{"state": 3, "config": {}}', "expected state to be a text; found 3"),
    ('{"info": {"sort-engine": 3, "config": {}}}', "expected sort-engine to be a text; found 3"),
    ('sync-point-interval = "3 weeks"', "expected sync-point-interval to be a duration such as 10m or 1h30m"),
    ("[sink.kafka-config]\npartition-num = -3", "expected partition-num from 1 on; found -3"),
])  # fmt: skip
def test_a_value_of_another_type_is_refused_wherever_it_is(text: str, said: str) -> None:
    """Beside the settings, too; it names the key, what was found and what was expected."""
    with pytest.raises(DispatchError, match=re.escape(said)):
        parse_file(text, name="c")
    for legal in ('{"info": null, "config": null}', '{"sink_uri": null, "config": {"sync_point_interval": "1h30m"}}'):
        parse_file(legal, name="c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"error_msg": "etcd api call error", "error_code": "CDC:ErrPDEtcdAPIError"}', "an error of TiCDC"),
        ('{"synced": true, "info": "Data syncing is finished"}', "the syncing state of a changefeed"),
        ('{"version": "v8.5.0", "pid": 7, "is_owner": true}', "the state of a capture or a server"),
        ('{"table_ids": [80]}', "the tables of a processor"),
        ('{"overwrite_checkpoint_ts": 0}', "a request that resumes a changefeed"),
        ('{"total": 1, "items": [{"changefeed_id": "a", "capture_id": "b"}]}', "lists processors"),
        ('{"total": 1, "items": [{"id": "b", "is_owner": true, "address": "h:8300"}]}', "lists captures"),
        ('[\n  {\n    "id": "a",\n    "capture-id": "b"\n  }\n]\n', "lists processors"),
        (
            'check-thread-count = 4\n[data-sources.a]\nhost = "h"\n',
            "settings of sync-diff-inspector (check-thread-count",
        ),
        ("[security]\nmtls = true\n", "settings of TiCDC's server (security)"),
        ("[raftstore]\ncapacity = 0\n", "settings of PD, TiKV or TiDB (raftstore)"),
        ("cdc_servers:\n  - host: 10.0.1.20\n    gc-ttl: 86400\n", "a topology of tiup"),
        ("  sink:\n    protocol: canal-json\n    dispatchers: []\n", "It resembles YAML"),
        ('{"id": 0, "database": "shop", "isDdl": false, "type": "INSERT"}', "a message of canal-json"),
    ],
)
def test_what_has_other_things_than_settings_is_named(text: str, said: str) -> None:
    """Each is an answer of the open API or a file beside a changefeed's, and no misspelt key of one."""
    with pytest.raises(DispatchError, match=re.escape(said)) as refused:
        parse_file(text, name="c.json")
    assert "the nearest" not in str(refused.value) and "changefeed query --changefeed-id" in refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        '  Create changefeed successfully!\n  ID: a\n  Info: {"sink_uri":"kafka://h:9092/t?protocol=open-protocol","config":{}}\n',
        "curl -X POST -H \"'Content-type':'application/json'\" http://h:8300/api/v2/changefeeds -d "
        '\'{"changefeed_id":"a","sink_uri":"kafka://h:9092/t?protocol=open-protocol","replica_config":{"bdr_mode":true}}\'\n',
        "$ cdc cli changefeed create --sink-uri='kafka://h:9092/t?protocol=open-protocol' --config=conf/c.toml\n",
    ],
)
def test_commands_and_what_they_print_are_read_as_they_are_pasted(text: str) -> None:
    """A command that names a file of settings does not have them."""
    read = parse_file(text, name="c.txt")
    assert read.settings.value("sink.protocol") == "open-protocol"
    assert ("conf/c.toml" in " ".join(read.settings.notes)) == ("--config" in text)
