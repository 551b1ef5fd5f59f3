"""TiCDC's own log beside a change log: each line is recognised or counted, and names the module of a stall."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import ROOT, golden

import ticdc_lab
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.watermarks import beside_cdc_log
from ticdc_lab.cli import main
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.cdc_log import KNOWN_LINES, MODULES, CdcLog, named_by, parsed, read_cdc_log

FIXTURE = ROOT / "tests/data/cdc_log/cdc.log"
STALLS = golden("messages_open-protocol_stalls.jsonl.gz")
AT = "[2023/11/15 06:13:41.008 +08:00] [WARN] [mysql.go:825] "


def one(line):
    """The one line that is recognised."""
    [found] = parsed([("cdc.log:1", line)]).lines
    return found


def test_the_fixture_is_read_whole():
    """Lines of the old architecture: modules, timestamps in fields and in JSON, and what is not recognised."""
    log = read_cdc_log([str(FIXTURE)])
    assert [(line.kind, line.module) for line in log.lines] == [
        ("restart", "owner"), ("slow region", "puller"), ("slow region", "puller"), ("DDL barrier", "owner"),
        ("DDL sent", "sink"), ("sink error", "downstream"), ("stuck table", "sink"), ("sink error", "downstream"),
        ("changefeed error", "owner"),
    ]  # fmt: skip
    assert (log.read, log.continued, log.cut) == (13, 2, 1)
    assert log.unrecognised == {"CDC server listens on 127.0.0.1:8300": 1, "kafka producer metrics": 1}
    assert log.lines[1].ts == (445644801310720000,) and log.lines[3].commit_ts == 445644803409183087
    error = log.lines[5]
    assert (error.table, error.key, error.commit_ts) == ("shop.t3", "id=17", 445644805199888385)


@pytest.mark.parametrize(
    ("rest", "kind", "module"),
    [
        ('["dispatcher hold block event"] [dispatcherID=8d3f] [commitTs=445644803409183087]', "DDL barrier", "owner"),
        ('["kafka ddl event sent"] [keyspace=default] [startTs=1] [commitTs=445644803409183087]', "DDL sent", "sink"),
        ('["campaign coordinator successfully"] [nodeID=9b] [epoch=3]', "restart", "owner"),
        ('["subscription client finds a initialized slow region"] [subscriptionID=3] [slowRegion="{}"]', "slow region",
         "puller"),
        ('["changefeed maintainer report an error"] [changefeed=default/a] [checkpointTs=445644805190190055]',
         "changefeed error", "owner"),
        ('["execute DMLs with error, can not retry"] [error="Error 1062: Duplicate entry \'1\'"]', "sink error",
         "downstream"),
        ('["execute DMLs with error, can not retry"] [error="column not found"]', "sink error", "sink"),
        ('["Capture deleted"] [captureID=6d0f]', "restart", "owner"),
        ('["execute DDL with error, retry later"] [startTs=1] [ddl="ALTER"] [error="x"]', "DDL fails", "sink"),
        ('["Table sink is not catching up with resolved ts for a long time"] [changefeed=a]', "stuck table", "sink"),
        ('["Failed to register schema to the Registry, HTTP error"] [status=500]', "sink error", "sink"),
        ('["Received an out-of-order event, reset the dispatcher"] [dispatcher=8d3f]', "restart", "owner"),
        ('["schedulerv3: span hole detected, skip advance checkpoint"] [gap="[]"]', "checkpoint stands", "owner"),
        ('["ResolvedTs stuck detected in puller"] [tableID=7]', "resolved_ts stands", "puller"),
        ('["event feed finds a slow region"] [regionID=5]', "slow region", "puller"),
        ('["event feed create grpc stream failed"] [storeID=4] [error="x"]', "TiKV not reached", "puller"),
        ('["session is disconnected"] [error="x"]', "restart", "owner"),
        ('["Single message is too large for canal-json"] [maxMessageBytes=9]', "sink error", "sink"),
        ('["handle ddl job failed"] [query="ALTER"] [error="x"]', "resolved_ts stands", "puller"),
        ('["DDL is still running downstream, it blocks other DDL or DML events"] [ddl="ALTER"]', "DDL waits",
         "downstream"),
        ('["kafka message send failed"] [changefeed=a] [error="kafka: client has run out of available brokers"]',
         "sink error", "downstream"),
        ('["update service gc safepoint failed"] [checkpointTs=445644805190190055]', "checkpoint stands", "owner"),
        ('["region request worker receive from grpc stream failed"] [addr="10.0.1.7:20160"]', "TiKV not reached",
         "puller"),
        ('["local fence triggered"] [reason="etcd session done"]', "restart", "owner"),
        ('["storage sink executed ddl event"] [schema=a]', "DDL sent", "sink"),
    ],
)  # fmt: skip
def test_messages_of_both_architectures(rest, kind, module):
    """From v5 to the new one."""
    assert (one(AT + rest).kind, one(AT + rest).module) == (kind, module)


@pytest.mark.parametrize("message", [
    "Kafka admin client describe topic success", "Transaction sink worker exits as canceled", "CDC server listens",
])  # fmt: skip
def test_what_goes_well_is_no_trouble(message):
    """Messages that begin as others do which name a cause."""
    assert parsed([("cdc.log:1", f'{AT}["{message}"]')]).unrecognised == {message: 1}


@pytest.mark.parametrize(("context", "table", "commit_ts"), [
    (r'eventType=dml, dmlInfo=[{\"Type\":\"insert\",\"Database\":\"shop\",\"Table\":\"or\\\"ders\",\"StartTs\":'
     r'445644803400000001,\"CommitTs\":445644803409183087,\"PrimaryKeys\":[]}]', 'shop.or"ders', 445644803409183087),
    ("eventType=ddl, ddlQuery=ALTER, ddlStartTs=445644803400000001, ddlCommitTs=445644803409183087", "",
     445644803409183087),
    ("eventType=checkpoint, checkpointTs=445644803409183087", "", None),
])  # fmt: skip
def test_what_the_new_kafka_sink_could_not_send_is_named(context, table, commit_ts):
    """Table and commit_ts are in one field; the name of a TSO may have more in front (`pendingEventCommitTs`)."""
    found = one(AT + f'["kafka message send failed"] [eventContext="changefeed=a, {context}"] [error="x"]')
    assert (found.table, found.commit_ts, found.ts) == (table, commit_ts, (445644803409183087,))
    waits = '["event waits for a smaller commitTs before scheduling"] [EventCommitTs=445644803409183087] [events=1]'
    assert one(AT + waits).commit_ts == 445644803409183087


def test_the_table_of_messages_has_each_once():
    """The first that fits decides, so none may begin with an earlier one."""
    begins = [begin for _, _, own in KNOWN_LINES for begin in own]
    assert len({*begins}) == len(begins) and {module for _, module, _ in KNOWN_LINES} == {*MODULES}
    assert not [b for i, b in enumerate(begins) for a in begins[:i] if b.startswith(a)]


def test_times_of_any_zone_are_one_time():
    """A capture in another zone, with or without milliseconds."""
    text = '[INFO] [a.go:1] ["campaign owner successfully"]'
    times = ("2023/11/15 06:13:41.000 +08:00", "2023/11/14 22:13:41.000 +00:00", "2023/11/14 17:43:41 -04:30")
    assert {one(f"[{at}] {text}").ms for at in times} == {1700000021000}


def test_cut_and_odd_lines_are_counted():
    """Nothing is passed over: without a message, in the middle of a value, with escapes that are not JSON's."""
    cut = AT + '["execute DMLs with error, retry later"] [commitTs=445644805199888385] [error="Error 1213 (400'
    odd = AT + r'["execute DMLs with error, retry later"] [error="a \x column"]'
    log = parsed([("f:1", cut), ("f:2", AT + '["execute DM'), ("f:3", odd), ("f:4", "\tat main.go"), ("f:5", "")])
    assert [line.commit_ts for line in log.lines] == [445644805199888385, None] and log.lines[0].module == "downstream"
    assert (log.read, log.cut, log.continued) == (4, 2, 1) and sum(log.unrecognised.values()) == 1
    no_time = '[2024/13/45 11:09:24.123 +08:00] [INFO] [capture.go:512] ["campaign owner successfully"]'
    assert (odd_time := parsed([("f:1", no_time)])).continued == 1 and odd_time.span_ms is None


def test_packed_and_rotated_files_are_one_log(tmp_path):
    """In the order of their times, no matter what order they are named in."""
    lines = FIXTURE.read_text().splitlines(keepends=True)
    old, new = tmp_path / "cdc-2023-11-15.log.gz", tmp_path / "cdc.log"
    old.write_bytes(gzip.compress("".join(lines[:5]).encode()))
    new.write_text("".join(lines[5:]))
    whole, parts = read_cdc_log([str(FIXTURE)]), read_cdc_log([str(new), str(old)])
    assert [line.message for line in parts.lines] == [line.message for line in whole.lines]
    assert (parts.read, parts.span_ms) == (whole.read, whole.span_ms)
    packed = old.read_bytes()
    for damaged in (packed[:60], packed[:10] + b"\xff" * 60 + packed[70:]):  # cut; no deflate stream
        old.write_bytes(damaged)
        with pytest.raises(SourceError, match="cannot be read"):
            read_cdc_log([str(old)])
    new.write_text("hello\n")
    with pytest.raises(SourceError, match=r"No line of .* begins as TiCDC's log"):
        read_cdc_log([str(new)])


@pytest.mark.parametrize("printed", [
    "2023-11-14T22:13:41.008123Z stderr F {}", "[pod/tc-ticdc-0/ticdc] {}", "ticdc-1  | {}",
    "Nov 15 06:13:41 host cdc[812]: {}", "2023-11-14T22:13:41.008Z\t{}",
    "2023-11-14T22:13:41Z {app=\"ticdc\"," + "label=\"some long value\"," * 20 + "} {}",
])  # fmt: skip
def test_what_a_container_prints_is_the_same_log(tmp_path, printed):
    """Kubernetes, journald and Docker put words before a line, or JSON around it; the line is the same."""
    lines = FIXTURE.read_text().splitlines()
    whole, file = read_cdc_log([str(FIXTURE)]), tmp_path / "printed.log"
    docker = [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2023-11-14T22:13:41Z"}) for line in lines]
    for printed_lines in ([printed.replace("{}", line) for line in lines], docker):
        file.write_text("\n".join(printed_lines))
        found = read_cdc_log([str(file)])
        assert [replace(line, where="") for line in found.lines] == [replace(line, where="") for line in whole.lines]
        assert (found.span_ms, found.unrecognised, found.cut) == (whole.span_ms, whole.unrecognised, whole.cut)
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(9))
    with pytest.raises(SourceError, match="zstd -d"):
        read_cdc_log([str(file)])


def _docker(text: str) -> str:
    return json.dumps({"log": text, "stream": "stderr", "time": "2023-11-14T22:13:41Z"})


def test_a_line_in_parts_in_a_shippers_json_or_of_powershell_is_the_same_line(tmp_path):
    """Runtimes begin another line after 16 KiB, and commitTs often lies behind a long query."""
    lines = FIXTURE.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "execute DMLs with error" in line)
    lines[at] = lines[at].replace("VALUES (?,?)", f"VALUES {'(?,?),' * 3_000}(?,?)")
    (plain := tmp_path / "cdc.log").write_text("\n".join(lines))
    whole, file = read_cdc_log([str(plain)]), tmp_path / "printed.log"
    assert 445644805199888385 in [line.commit_ts for line in whole.lines]
    long, after, most = lines[at], lines[at + 1 :], 1 << 14
    cri = "2023-11-14T22:13:41.008123Z stderr"
    forms = [
        "\n".join([*lines[:at], f"{cri} P {long[:most]}", f"{cri} F {long[most:]}", *after]),
        "\n".join([*map(_docker, (f"{line}\n" for line in lines[:at])), _docker(long[:most]),
                   _docker(f"{long[most:]}\n"), *map(_docker, (f"{line}\n" for line in after))]),
        "\n".join(json.dumps({"@timestamp": "2023-11-14", "message": line, "host": {"name": "a"}}) for line in lines),
    ]  # fmt: skip
    for i, raw in enumerate([*map(str.encode, forms), plain.read_bytes().decode().encode("utf-16"),
                             b"\xef\xbb\xbf" + plain.read_bytes()]):  # fmt: skip
        file.write_bytes(raw)
        found = read_cdc_log([str(file)])
        assert [replace(line, where="") for line in found.lines] == [replace(line, where="") for line in whole.lines]
        assert (found.read, found.cut, found.continued) == (whole.read, whole.cut, whole.continued), i
    assert found.lines[-1].where == f"{file}:{whole.lines[-1].where.rpartition(':')[2]}"


def test_what_names_the_timestamp_comes_before_what_was_written_then():
    """And a line that names another one is about something else."""
    log = read_cdc_log([str(FIXTURE)])
    named = named_by(log, from_ts=445644803409183087, to_ts=445644804403758055)
    assert [(n.kind, n.by_ts) for n in named] == [("DDL barrier", 1), ("DDL sent", 1)]
    exact = named_by(log, from_ts=445644805199888385)
    assert [(n.module, n.by_ts) for n in exact] == [("downstream", 1)]
    assert named_by(log, from_ts=445644805199888399) == []


def test_it_names_the_module_of_each_stall(spark):
    """Puller, owner, downstream and sink, each for the stall that its lines are about."""
    answer = ticdc_lab.open(str(STALLS), spark=spark).why(cdc_log=[str(FIXTURE)])
    first = answer.frames["cdc_log"].groupby("about", sort=False).first()
    named = {about.split("(")[1].rstrip(")")[11:19]: (m, k) for about, m, k in zip(
        first.index, first["module"], first["kind"], strict=True) if about.startswith("stall")}  # fmt: skip
    assert named == {
        "22:13:47": ("downstream", "sink error"), "22:13:39": ("downstream", "sink error"),
        "22:13:33": ("owner", "DDL barrier"), "22:13:25": ("puller", "slow region"), "22:13:20": ("owner", "restart"),
    }  # fmt: skip
    assert "cdc.log names the downstream: " in answer.finding
    assert any("2 of 13 lines of cdc.log not recognised" in limit for limit in answer.limits)
    assert answer.values["cdc_log"]["recognised"] == 9
    said = CliRunner().invoke(main, ["why", str(STALLS), "--cdc-log", str(FIXTURE), "--json"], obj=spark)
    assert said.exit_code == 0 and json.loads(said.stdout)["cdc_log"]


def why(held_ts, next_ts):
    """An answer with one stall."""
    stall = {"held_ts": held_ts, "next_ts": next_ts, "since": None, "until": None, "step_s": 3.4}
    return Answer("why", "?", "One stall.", {"stalls": pd.DataFrame([stall])})


def test_what_no_line_is_about_is_said():
    """A log of another time, and one of its time without a line."""
    log, none = read_cdc_log([str(FIXTURE)]), pd.DataFrame(columns=["commit_ts", "guarantee"])
    later = beside_cdc_log(why(445644900000000000, 445644901000000000), log, none)
    assert "cdc.log names no module" in later.finding and any("lies outside" in limit for limit in later.limits)
    quiet = CdcLog(read=1, unrecognised={"tick": 1}, span_ms=(1_700_000_000_000, 1_700_000_060_000))
    silent = beside_cdc_log(why(445644801310720000, 445644802201748455), quiet, none)
    assert any("no recognised line about 1 stall" in limit for limit in silent.limits)


def test_a_stall_at_the_end_ends_with_the_log():
    """Lines of later days are not about it."""
    log, none = read_cdc_log([str(FIXTURE)]), pd.DataFrame(columns=["commit_ts", "guarantee"])
    answer = beside_cdc_log(why(445644801310720000, None), log, none)
    assert [(r["module"], r["n"]) for r in answer.frames["cdc_log"].to_dict("records")] == [("puller", 2)]


def test_findings_are_joined_by_their_commit_ts():
    """A sink error that names a finding's commit_ts; a restart explains redeliveries alone."""
    log = read_cdc_log([str(FIXTURE)])
    ts = [445644805199888385, 445644800025165824]  # the second at 22:13:20.096, beside the owner change
    rows = [{"guarantee": g, "commit_ts": t} for g in ("row_images_chain", "redeliveries_are_identical") for t in ts]
    answer = beside_cdc_log(why(445644900000000000, 445644901000000000), log, pd.DataFrame(rows))
    found = [(r["about"].split()[0], r["module"], r["kind"]) for r in answer.frames["cdc_log"].to_dict("records")]
    assert found == [
        ("row_images_chain", "downstream", "sink error"), ("redeliveries_are_identical", "downstream", "sink error"),
        ("redeliveries_are_identical", "owner", "restart"),
    ]  # fmt: skip


def _csv(line: str) -> str:
    return line.replace('"', '""')


@pytest.mark.parametrize(
    "export",
    [
        lambda lines: json.dumps({"data": {"result": [{"values": [["17", line] for line in lines]}]}}),
        lambda lines: json.dumps({"hits": {"hits": [{"_source": {"message": line}} for line in lines]}}),
        lambda lines: json.dumps([{"textPayload": line, "severity": "ERROR"} for line in lines], indent=2),
        lambda lines: "\n".join(f"kube.ticdc\t{json.dumps({'log': line})}" for line in lines),
        lambda lines: "\n".join(["@timestamp,message", *(f'2023-11-15 06:13:20,"{_csv(line)}"' for line in lines)]),
        lambda lines: "\n".join(f"cdc-2023.log:{n}:{line}" for n, line in enumerate(lines)),
    ],
    ids=["Loki", "Elasticsearch", "Stackdriver", "fluentd", "CSV", "grep -n"],
)
def test_what_a_service_exports_of_the_log_is_the_same_log(tmp_path, export):
    """Lines are texts in JSON or CSV there; what is around them is no line that was cut."""
    lines = [line for line in FIXTURE.read_text().splitlines() if line.startswith("[")]
    (plain := tmp_path / "cdc.log").write_text("\n".join(lines))
    (exported := tmp_path / "exported").write_text(export(lines))
    wanted, found = (read_cdc_log([str(file)]) for file in (plain, exported))
    assert [replace(line, where="") for line in found.lines] == [replace(line, where="") for line in wanted.lines]
    assert (found.cut, found.unrecognised, found.span_ms) == (wanted.cut, wanted.unrecognised, wanted.span_ms)
    assert len(found.lines) > 5 and found.continued <= 2
