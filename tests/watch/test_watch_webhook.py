"""Findings that open are sent to a URL: in Alertmanager's JSON, few messages, again where one does not arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import golden
from real_prometheus import free_port

from ticdc_lab.cli import main
from ticdc_lab.errors import SetupError
from ticdc_lab.watch import webhook
from ticdc_lab.watch.kept import OPEN, WITHDRAWN, KeptFinding
from ticdc_lab.watch.metrics import WatchView, metrics
from ticdc_lab.watch.webhook import QUIET_S, Webhook


@contextmanager
def receiver(*statuses: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers with these, then with 200: its URL, and what it was sent."""
    got, left = list[dict[str, Any]](), list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(left.pop(0) if left else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/s3cret", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def found(number: int, guarantee: str = "row_images_chain", severity: str = "error") -> KeptFinding:
    """One that is open."""
    return KeptFinding(number, OPEN, guarantee, severity, f"m{number}", "shop.t", key="id=7", topic="t", partition=0,
                       offset=number, found_s=1.5)  # fmt: skip


def test_a_guarantee_has_one_message_in_ten_minutes(capsys):
    """Its first three findings, errors first, and how many more; what opens meanwhile is in the next one."""
    now = [1000.0]
    with receiver() as (url, got):
        hook = Webhook(url, "my state", now=lambda: now[0])
        hook.take([found(1, severity="warning"), *map(found, (2, 3, 4, 5)), found(6, "offsets_are_contiguous")])
        hook.take([found(7)])
        now[0] += QUIET_S - 1
        hook.take([found(8)])
        now[0] += 1
        hook.take([])
        hook.take([found(9)])
        hook.close()
    assert [(m["groupLabels"]["guarantee"], [a["annotations"]["summary"] for a in m["alerts"]]) for m in got] == [
        ("row_images_chain", ["m2", "m3", "m4"]), ("offsets_are_contiguous", ["m6"]),
        ("row_images_chain", ["m7", "m8"]),
    ]  # fmt: skip
    first = got[0]
    assert (first["version"], first["status"], first["truncatedAlerts"]) == ("4", "firing", 2)
    assert first["commonAnnotations"]["command"] == "ticdc-lab watch findings --state 'my state'"
    assert first["alerts"][0]["annotations"]["command"] == "ticdc-lab watch show 2 --state 'my state'"
    assert first["alerts"][0]["labels"] == first["commonLabels"] | {"severity": "critical"}
    assert first["alerts"][0]["startsAt"] == "1970-01-01T00:00:01.500Z" and "id=7" not in json.dumps(got)
    assert "1 finding of row_images_chain not sent" in capsys.readouterr().err  # the last one; the watch has ended


def test_a_receiver_that_fails_is_asked_again(capsys):
    """A few times; then the message is given up, with a word, and the next one is sent. No path of the URL is shown."""
    with receiver(503, 302, 503, 302, 503) as (url, got):
        hook = Webhook(url, "s", now=lambda: 0.0, waits_s=(0.0, 0.0))
        hook.take([found(1), found(2, "offsets_are_contiguous")])
        hook.close()
    assert [m["groupLabels"]["guarantee"][:3] for m in got] == ["row"] * 3 + ["off"] * 3
    said = capsys.readouterr().err
    assert "1 finding of row_images_chain not sent" in said and "503" in said and "offsets" not in said
    assert "watch findings --state s" in said and "s3cret" not in said


def test_a_receiver_that_is_away_holds_no_end_up(capsys, monkeypatch):
    """The watch ends, and reports that findings were not sent."""
    monkeypatch.setattr(webhook, "AT_THE_END_S", 0.1)
    hook = Webhook(f"http://127.0.0.1:{free_port()}/s3cret", "my state", now=lambda: 0.0, waits_s=(3600.0,))
    hook.take([found(1)])
    hook.close()
    said = capsys.readouterr().err
    assert "findings are not sent" in said and "watch findings --state 'my state'" in said and "s3cret" not in said


def test_what_waits_for_a_slow_receiver_is_bounded_and_counted(monkeypatch, capsys):
    """It holds up no step: `take` returns at once, no matter how many wait, and shows how many are not sent."""
    monkeypatch.setattr(webhook, "AT_THE_END_S", 0.1)
    monkeypatch.setattr(webhook, "NOTED", 50)
    monkeypatch.setattr(webhook, "WAITING", 4)
    now = [0.0]
    hook = Webhook(f"http://127.0.0.1:{free_port()}/x", "s", now=lambda: now[0], waits_s=(3600.0,))
    for i in range(30):
        now[0] += QUIET_S
        unsent = hook.take([found(10 * i + j, f"g{j}") for j in range(10)])
        assert unsent == min(50, 10 * (i + 1))
        assert sum(map(len, hook._held.values())) + len(hook._failed) <= 50 and hook._messages.qsize() <= 4
    hook.close()
    assert "too many messages wait" in capsys.readouterr().err
    assert b"ticdc_lab_unsent_findings 50.0" in metrics(WatchView(unsent=50))


@pytest.mark.parametrize(
    "url",
    ["hooks.example.com/x", "ftp://h/x", "http:///x", "http://me:s3cret@h/x", "http://s3cret:x/", "http://[s3cret/x"],
)
def test_what_cannot_be_sent_to_is_refused(url):
    """Before anything is read."""
    with pytest.raises(SetupError) as error:
        Webhook(url, "s", now=lambda: 0.0)
    assert "s3cret" not in str(error.value)


def test_a_watch_sends_what_it_finds(tmp_path):
    """From the command line: what the log of a restarted changefeed shows."""
    log = golden("messages_canal-json-tidb_small-dup-restart.jsonl.gz")
    with receiver() as (url, got):
        done = CliRunner().invoke(main, ["watch", str(log), "--state", str(tmp_path), "--once", "--webhook", url])
    assert done.exit_code == 1
    n = sum(len(m["alerts"]) + m["truncatedAlerts"] for m in got)
    assert f"{n} findings" in done.output and n > 3


def test_what_was_not_sent_is_sent_later(tmp_path):
    """With the next message of the guarantee, or by the next watch of the folder; what was sent is not sent again."""
    now = [0.0]
    with receiver(*[503] * 4) as (url, got):
        hook = Webhook(url, str(tmp_path), now=lambda: now[0], waits_s=(0.0,))
        for number in (1, 2, 3):
            hook.take([found(number)])
            while number < 3 and len(hook._failed) < number:
                threading.Event().wait(0.01)
            now[0] += QUIET_S
        hook.close()
        summaries = [[a["annotations"]["summary"] for a in m["alerts"]] for m in got]
        assert summaries == [["m1"]] * 2 + [["m1", "m2"]] * 2 + [["m1", "m2", "m3"]]
        again = Webhook(url, str(tmp_path), now=lambda: 0.0)
        again.resume([found(1), found(2), found(3)])
        again.close()
        assert len(got) == 5
    away = Webhook(f"http://127.0.0.1:{free_port()}/s3cret", str(tmp_path), now=lambda: 0.0, waits_s=())
    away.take([found(4), found(5)])
    away.close()
    with receiver() as (url, got):
        back = Webhook(url, str(tmp_path), now=lambda: 0.0)
        back.resume([found(3), found(4), replace(found(5), status=WITHDRAWN)])
        back.close()
    assert [[a["annotations"]["summary"] for a in m["alerts"]] for m in got] == [["m4"]]
