"""The command that records a topic, or turns a log of another form into capture files."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    given_bounds,
    json_flag,
    main,
    messages_options,
    print_json,
    session_of,
)

_UNITS = {
    "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
    "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400,
}  # fmt: skip
SIZE, TIME = ("", "K", "M", "G", "Ki", "Mi", "Gi"), ("s", "m", "min", "h", "d")


class Amount(click.ParamType[float]):
    """A number with a unit."""

    def __init__(self, name: str, *units: str) -> None:
        self.name, self._units = name, units

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read what was written."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value))
        unit = "" if found is None else found[2].removesuffix("B") if self.name == "SIZE" else found[2]
        if found is None or unit not in self._units or float(found[1]) == 0:
            units = ", ".join(u for u in self._units if u)
            self.fail(f"{value!r}; expected a number above 0 with one of {units}", param, ctx)
        return float(found[1]) * _UNITS[unit]


@main.command()
@messages_options
@click.option(
    "--out", required=True,
    help="topic.jsonl.gz, topic.jsonl or topic.parquet; or a folder, to which later runs append.",
)  # fmt: skip
@click.option(
    "--from", "first", default="earliest", show_default=True, metavar="START",
    help="Of a topic: earliest, now, an offset, a time in UTC or a TSO.",
)  # fmt: skip
@click.option(
    "--to", "last", default="now", show_default=True, metavar="END",
    help="Of a topic: now, an offset, a time in UTC or a TSO; END itself is not recorded.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Of a topic: keep recording until Ctrl-C.")
@click.option(
    "--format", "form", type=click.Choice(["jsonl.gz", "jsonl", "parquet"]), default="jsonl.gz", show_default=True,
    help="Files of a folder.",
)  # fmt: skip
@click.option(
    "--rotate-size", type=Amount("SIZE", *SIZE), default="1GB", show_default=True,
    help="In a folder: start a new file after this size of keys and values.",
)  # fmt: skip
@click.option(
    "--rotate-every", type=Amount("TIME", *TIME),
    help="In a folder: start a new file after this time, such as 10min.",
)  # fmt: skip
@json_flag
def record(
    source: str, out: str, first: str, last: str, follow: bool, form: str, rotate_size: float,
    rotate_every: float | None, as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Record a topic into files.

    Or turn a log of any other form into capture files.

    If it ends early, the same command resumes it; a file gets its name only when it is complete.
    """
    from ticdc_lab.sources.kafka import topics_of
    from ticdc_lab.sources.places import is_kafka
    from ticdc_lab.sources.record import record_log, record_topic
    from ticdc_lab.sources.recording import Recording

    is_topic = is_kafka(source) or where["source_kind"] == "kafka"
    if not is_topic and (follow or (first, last) != ("earliest", "now")):
        raise click.BadParameter("only a topic has a beginning, an end and more to come", param_hint="--from, --to")
    recording = Recording(out, source=_plain(source), form=form, rotate_bytes=int(rotate_size))
    if recording.begun and is_topic:
        click.echo(f"resuming after {recording.state.messages:,} messages", err=True)
    with _progress() as said:
        if is_topic:
            topics = topics_of(source, where["options"])
            with _interrupted() as stopped:
                done = record_topic(
                    topics, recording, first=first, last=last, follow=follow, rotate_s=rotate_every, said=said,
                    stopped=stopped,
                )  # fmt: skip
        else:
            bounds, spark = given_bounds(), session_of(source)
            given = {"kind": where["source_kind"], "options": where["options"], "line": bounds.line}
            done = record_log(spark, source, recording, said=said, **given)
    if as_json:
        told = {"source": source, "out": out, "messages": done.messages, "bytes": done.bytes, "notes": list(done.notes)}
        print_json(told)
    else:
        click.echo(f"{done.messages:,} messages ({done.bytes / 1e6:,.1f} MB of keys and values) recorded: {out}")
        for sentence in done.notes:
            click.echo(f"  {sentence}")
    sys.exit(FINDINGS if done.is_lacking else CLEAN)


def _plain(source: str) -> str:
    """A source as a state may keep it."""
    from ticdc_lab.errors.redaction import shown_source

    return shown_source(source)


@contextmanager
def _interrupted() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: what was read is kept, for which a second one does not wait."""
    heard = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(heard)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress() -> Iterator[Callable[[Any], None]]:
    """Show how far it is on stderr: on a terminal in one line, else a line a minute."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text("recording")) as line:
            yield lambda so_far: line.update(Text(so_far.words))
        return
    calls = 0

    def say(so_far: Any) -> None:
        nonlocal calls
        if calls % 60 == 0 and calls:
            click.echo(so_far.words, err=True)
        calls += 1

    yield say
