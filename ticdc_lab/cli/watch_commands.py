"""The audit that runs all day: a topic is watched, and what it found is looked at."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    changefeed_option,
    given_changefeed,
    guarded,
    json_flag,
    main,
    print_json,
    print_settings,
    say,
    session_of,
    settings_option,
)
from ticdc_lab.cli.layout import Group, SourceOption
from ticdc_lab.cli.record_commands import SIZE, TIME, Amount
from ticdc_lab.errors import ProtocolError, SourceError
from ticdc_lab.errors.whole_files import write_whole

if TYPE_CHECKING:
    from ticdc_lab.watch.kept import KeptFinding

_SHOWN = 20


class _OfSourceOrWord(Group):
    """``watch SOURCE`` watches; ``watch status`` and other words look at what a watch found."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@main.group("watch", cls=_OfSourceOrWord)
def watch_group() -> None:
    """Watch a topic: the audit that runs all day.

    `ticdc-lab watch SOURCE --state DIR` is `ticdc-lab watch run SOURCE --state DIR`. The other commands look at the
    state folder of a watch, also while it runs.
    """


_state = click.option("--state", required=True, metavar="DIR", help="The state folder of the watch.")
_debug = click.option("--debug", is_flag=True, help="Show the whole trace of an error.")


@watch_group.command()
@click.argument("source")
@_state
@changefeed_option
@click.option("--protocol", default="auto", show_default=True, help="The protocol; auto detects it from the bytes.")
@click.option("--schema-registry", cls=SourceOption, help="For avro: the registry's URL, or a file of schemas.")
@click.option("--claim-check", cls=SourceOption, help="The claim-check folder, in which TiCDC put large messages.")
@settings_option
@click.option("--kafka-config", cls=SourceOption,
              help="A properties file with Kafka's settings; keeps secrets off the command line.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Serve /metrics, /health, /ready, /findings; port 0: a free one.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False),
              help="A bearer token that requests must bring; required unless HOST is a loopback address.")  # fmt: skip
@click.option("--webhook", metavar="URL", help="Send open findings there in Alertmanager's JSON, at most one message a"
              " guarantee in 10 minutes.")  # fmt: skip
@click.option("--settle", type=Amount("TIME", *TIME), default="5m", show_default=True,
              help="A finding that later messages may explain is open after so long.")  # fmt: skip
@click.option("--memory", type=Amount("SIZE", *SIZE), default="1GiB", show_default=True,
              help="Most memory of the state; beyond it, the rows unchanged for longest are evicted.")  # fmt: skip
@click.option("--keep", type=Amount("TIME", *TIME), default="1h", show_default=True,
              help="How long changes of rows are kept, to detect repeats.")  # fmt: skip
@click.option("--engine", type=click.Choice(("embedded", "spark")), default="embedded", show_default=True,
              help="embedded: one process, without Java. spark: Apache Spark, for topics beyond one core.")  # fmt: skip
@click.option("--master", metavar="URL", help="With --engine spark: the cluster, such as spark://HOST:7077;"
              " default: the cores of this machine.")  # fmt: skip
@click.option("--every", "every_s", type=Amount("TIME", *TIME), default="10s", show_default=True,
              help="With --engine spark: time between the beginnings of two batches, at least.")  # fmt: skip
@click.option("--speed", type=float, help="Replay a recording so many times as fast as it was recorded.")
@click.option("--follow", is_flag=True, help="Of a recording or a dump: wait for what is appended, until Ctrl-C.")
@click.option("--once", is_flag=True, help="Watch up to the end of now, print what is found, and end.")
@_debug
@json_flag
@guarded
def run(
    source: str, state: str, listen: str | None, token_file: str | None, settle: float, memory: float, keep: float,
    speed: float | None, follow: bool, once: bool, as_json: bool, webhook: str | None, options: Mapping[str, str],
    engine: str, master: str | None, every_s: float, **where: Any,
) -> None:  # fmt: skip
    """Watch SOURCE, which grows or is replayed.

    It is a topic, a storage folder that grows, a recording, or a dump of another tool.

    It runs until Ctrl-C or SIGTERM, or to the end of a recording, and then prints what was found. The same command
    resumes after its last commit, however it ended.

    With --once: exit 0 clean, 1 findings, 2 could not run.
    """
    if engine == "embedded":
        _use_little_memory()
    from ticdc_lab.watch.folder import placed
    from ticdc_lab.watch.pages import pages
    from ticdc_lab.watch.running import shown_as_json, unsettled
    from ticdc_lab.watch.starting import prepared
    from ticdc_lab.watch.webhook import Webhook

    token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else None
    sent = Webhook(webhook, state, now=time.time) if webhook else None
    if sent:
        where["opens"] = sent.take
    where |= {
        "once": once, "settle_s": settle, "memory": int(memory), "keep_s": keep, "speed": speed, "follow": follow,
        "options": options, "changefeed": given_changefeed(options), "said": partial(click.echo, err=True),
    }  # fmt: skip
    if master is not None and engine != "spark":
        raise click.BadParameter("only --engine spark uses a cluster", param_hint="--master")
    if engine == "spark":
        from ticdc_lab.cli.arguments import check_source

        check_source(source, where, engine=engine)  # a broker is asked before Spark begins
        extra = {} if master is None else {"spark.master": master}
        where |= {"every_s": every_s, "spark": session_of(source, needs_spark="--engine selects it", extra=extra)}
    watch = prepared(source, state, **where)
    if sent:
        sent.resume(watch.findings.values())
    served = pages(watch, listen, token=token) if listen else nullcontext("")
    with asked_to_end() as stopped, served as at, closing(sent) if sent else nullcontext():
        if at:
            click.echo(f"http://{at}/metrics", err=True)
        watch.run(stopped)
    found, n = unsettled(watch.findings.values()), watch.view.counts.messages
    if once and 0 < n == sum(watch.view.counts.quarantined.values()):
        from ticdc_lab.words import count

        _print_status(shown_as_json(watch.view), found)
        raise ProtocolError(
            f"{watch.source}: none of {count(n, 'message')} could be decoded as {watch.view.protocol}, so nothing was "
            "checked.",
            hint=f"ticdc-lab survey {shlex.quote(watch.source)} shows what they are; then name another folder: "
            "--state OTHER",
        )
    if as_json:
        counts = dict[str, int]()
        for f in found:
            counts[f.guarantee] = counts.get(f.guarantee, 0) + 1
        print_json({
            "source": watch.source, "protocol": watch.view.protocol, "findings": placed(found, state),
            "counts": counts, "not_watched": dict(watch.view.not_watched),
            "not_checked": dict(watch.view.unjudged), "notes": list(watch.view.notes),
            "settings": list(watch.view.settings),
            "unchecked": dict(watch.view.counts.unchecked),
        })  # fmt: skip
    else:
        _print_status(shown_as_json(watch.view), found)
        _print_findings(found, state)
    if once:
        sys.exit(FINDINGS if found else CLEAN)


def _use_little_memory() -> None:
    """Give freed memory back at once, and do without pandas, which Arrow imports only to recognize its objects.

    Nothing where Arrow was imported before: others of this process may use both.
    """
    if "pyarrow" in sys.modules:
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # for Arrow's own threads, too
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import ctypes

        import pyarrow as pa

        pa.array([""])  # looks for pandas once
    finally:
        sys.meta_path.remove(hidden)
    with suppress(AttributeError, OSError):  # another C library than glibc
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, 256 << 10)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc: once set they stay; by themselves they grow with what is freed, and large arrays leave holes."""


class _Hidden:
    """Lets a process do without pandas."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ImportError(fullname)


@contextmanager
def asked_to_end() -> Iterator[Any]:
    """Whether Ctrl-C or SIGTERM came: the step under way is committed, for which a second one does not wait."""
    heard = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(heard)
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


_REASONS = {
    "evicted": "what the watch knew of their rows was evicted (--memory)",
    "filtered": "the changefeed's filters may leave out what their rows miss",
    "no_old_value": "no image shows what they found",
    "quarantined": "their messages cannot be decoded; each message counts as one",
}


def _print_status(view: Mapping[str, Any], found: list[KeptFinding]) -> None:
    """What was read, and what of it was not checked; the view as JSON."""
    messages, not_watched = view["counts"]["messages"], view["not_watched"]
    errors = sum(f.severity == "error" for f in found)
    click.echo(
        f"{messages:,} messages watched: {len(found)} finding{'' if len(found) == 1 else 's'}, {errors} of them errors"
    )
    if trouble := view.get("trouble"):
        click.echo(f"  {trouble}")
    for sentence in view.get("silent", ()):
        click.echo(f"  {sentence}")
    for reason, n in view["counts"]["unchecked"].items():
        changes = f"{n:,} row change{'' if n == 1 else 's'}"
        click.echo(f"  {changes} not checked by all guarantees: {reason}, {_REASONS[reason]}")
    for name, n in view["counts"]["quarantined"].items():
        click.echo(f"  {n:,} message{'' if n == 1 else 's'} in quarantine: {name}")
    for name, n in view.get("strangers", {}).items():
        said = f"  Of those that were looked at, {n:,} are {name}, no {view['protocol']}"
        click.echo(f"{said}: watch them with a state of their own (--protocol {name} --state OTHER)")
    if n := view.get("unsent", 0):
        click.echo(f"  {n:,} finding{'' if n == 1 else 's'} not sent to the webhook yet")
    if n := view.get("undocumented", 0):
        click.echo(f"  The messages of {n:,} finding{'' if n == 1 else 's'} could not be read again yet")
    for name, why in view.get("unjudged", {}).items():  # no state of an earlier version has them
        click.echo(f"  {name.replace('_', ' ')}: not checked, because {why}.")
    print_settings(view.get("settings", ()))
    for note in view.get("notes", ()):
        click.echo(f"  {note}")
    for why in dict.fromkeys(not_watched.values()):
        names = ", ".join(name for name, reason in not_watched.items() if reason == why)
        click.echo(f"  Not watched: {names}; {why}")


def _print_findings(found: list[KeptFinding], state: str) -> None:
    if not found:
        return
    import pandas as pd

    from ticdc_lab.answers.audit import cause_lines, causes
    from ticdc_lab.watch.folder import placed
    from ticdc_lab.watch.kept import STATUSES
    from ticdc_lab.words import count

    of_status = {status: [f for f in placed(found, state) if f["status"] == status] for status in STATUSES}
    each = [(s, c) for s, alike in of_status.items() for c in causes(pd.DataFrame(alike)).to_dict("records")]
    for status, cause in each[:_SHOWN]:
        first, *more = cause_lines(cause | {"do": ""})  # `show` has what to do next, with the kept messages
        say("\n".join([f"{first} [{status}]", *more]))
    if len(each) > _SHOWN:
        click.echo(f"    and {count(len(each) - _SHOWN, 'more cause')}; --json shows all")


@watch_group.command()
@_state
@_debug
@json_flag
@guarded
def status(state: str, as_json: bool) -> None:
    """How far is the watch, as of its last commit?

    Exit 0 without open findings, 1 with some.
    """
    from ticdc_lab.watch.folder import WatchFolder
    from ticdc_lab.watch.running import unsettled
    from ticdc_lab.words import count

    folder = WatchFolder(state, writes=False)
    view, found = folder.view, unsettled(folder.findings().values())
    _require_begun(view, state)
    if as_json:
        print_json({"state": state, "view": view, "open": len(found)})
    else:
        click.echo(view.get("source", ""))
        _print_status(view, found)
        for p in sorted(view["partitions"], key=lambda p: (p["topic"], p["partition"])):
            if p["read"] is None:
                click.echo(f"  {p['topic']} partition {p['partition']}: not read, its broker has not answered yet")
                continue
            behind = "" if p["end"] is None else f", {max(0, p['end'] - p['read']):,} behind"
            if file := p.get("file"):  # a folder of the storage sink
                lost = f", {count(p['lost'], 'data file')} missing" if p["lost"] else ""
                click.echo(f"  read up to {file}{lost}")
                continue
            lost = f"; the broker deleted {count(p['lost'], 'offset')} before they were read" if p["lost"] else ""
            click.echo(f"  {p['topic']} partition {p['partition']}: read up to offset {p['read']:,}{behind}{lost}")
    sys.exit(FINDINGS if found else CLEAN)


@watch_group.command("findings")
@_state
@click.option("--all", "every", is_flag=True, help="Also those that were withdrawn, ignored or resolved.")
@_debug
@json_flag
@guarded
def list_findings(state: str, every: bool, as_json: bool) -> None:
    """What did the watch find?"""
    from ticdc_lab.watch.folder import WatchFolder, placed
    from ticdc_lab.watch.running import unsettled

    folder = WatchFolder(state, writes=False)
    _require_begun(folder.view, state)
    kept = list(folder.findings().values())
    found = kept if every else unsettled(kept)
    if as_json:
        print_json({"state": state, "findings": placed(found, state)})
    else:
        _print_findings(found, state)
        aside = len(kept) - len(found)
        if not found:
            click.echo(f"No finding is open{f'; {aside} put aside or withdrawn: --all shows them' if aside else ''}.")
    sys.exit(FINDINGS if unsettled(kept) else CLEAN)


def _require_begun(view: Mapping[str, Any], state: str) -> None:
    if not view:
        raise SourceError(
            f"The watch of {state} has committed nothing yet.",
            hint=f"Wait for messages, or begin it: ticdc-lab watch SOURCE --state {shlex.quote(state)}",
        )


_number = click.argument("number", type=click.IntRange(min=1))


@watch_group.command()
@_number
@_state
@_debug
@json_flag
@guarded
def show(number: int, state: str, as_json: bool) -> None:
    """One finding, and where its messages are kept."""
    import pandas as pd

    from ticdc_lab.answers.audit import causes, line
    from ticdc_lab.settings import MATCH
    from ticdc_lab.watch.folder import MESSAGES, STORAGE, WatchFolder, placed

    folder = WatchFolder(state, writes=False)
    finding, place = _finding(folder.findings(), number), folder.evidence(number)
    [told] = placed([finding], state)
    if as_json:
        print_json(told | {"evidence_folder": str(place) if place.is_dir() else None})
        return
    messages = [kept for kept in (place / MESSAGES, place / STORAGE) if kept.exists()]
    say(f"{line(number, told)} [{finding.status}]")
    source = folder.view["source"]
    if said := causes(pd.DataFrame([finding.as_dict()]), source=source)["do"][0]:
        of_audit = f"ticdc-lab audit {shlex.quote(source)} --messages-of "  # which numbers its findings otherwise
        own = (
            f"ticdc-lab events {shlex.quote(str(messages[0]))} --out events.jsonl" if messages else f"{of_audit}NUMBER"
        )
        click.echo(f"        Next: {said.replace(f'{of_audit}{number}', own)}")
    at: Mapping[tuple[Any, Any], str] = folder.places_in_files(
        {(e["partition"], e["offset"]) for e in told["evidence"]}
    )
    for e in finding.evidence:
        dated = "" if e["commit_ts"] is None else f": commit_ts {e['commit_ts']}"
        topic = "" if finding.topic is None else f"{finding.topic} "
        of_topic = f"{topic}partition {e['partition']} offset {e['offset']}"
        click.echo(f"> {at.get((e['partition'], e['offset']), of_topic)}{dated}")
    for kept in messages:
        changefeed = " --changefeed FILE" if finding.guarantee == MATCH else ""
        click.echo(f"Its messages: ticdc-lab audit {shlex.quote(str(kept))}{changefeed}")


@watch_group.command()
@_number
@_state
@_debug
@guarded
def ignore(number: int, state: str) -> None:
    """Close a finding that is no fault.

    It stays listed.
    """
    _put_aside(number, state, "ignored")


@watch_group.command()
@_number
@_state
@_debug
@guarded
def resolve(number: int, state: str) -> None:
    """Close a finding that is dealt with.

    It stays listed.
    """
    _put_aside(number, state, "resolved")


def _put_aside(number: int, state: str, status: str) -> None:
    from dataclasses import replace

    from ticdc_lab.watch.folder import WatchFolder

    folder = WatchFolder(state, writes=False)
    folder.put(replace(_finding(folder.findings(), number), status=status, changed_s=time.time()))
    click.echo(f"finding {number}: {status}")


def _finding(kept: Mapping[int, KeptFinding], number: int) -> KeptFinding:
    if number not in kept:
        raise click.BadParameter(f"{number}: the watch has {len(kept)} findings", param_hint="NUMBER")
    return kept[number]


_out = click.option("--out", required=True, metavar="FILE", help="The file to write.")


@watch_group.command("rules")
@_out
@_debug
@guarded
def write_rules(out: str) -> None:
    """Write alert rules for Prometheus.

    Each has a summary and the command to run.
    """
    from ticdc_lab.cli.arguments import check_outs
    from ticdc_lab.watch.alerts import ALERTS, rules

    check_outs(None, out, page=True)
    write_whole(Path(out), rules())
    click.echo(f"{out}: {len(ALERTS)} alerts; name the file under rule_files in prometheus.yml")


@watch_group.command("dashboard")
@_out
@_debug
@guarded
def write_dashboard(out: str) -> None:
    """Write a Grafana dashboard of a watch's metrics."""
    from ticdc_lab.cli.arguments import check_outs
    from ticdc_lab.watch.dashboard import PANELS, dashboard

    check_outs(None, out, page=True)
    write_whole(Path(out), dashboard())
    click.echo(f"{out}: {len(PANELS)} panels; import the file in Grafana")
