"""Commands that judge; exit 0 clean, 1 findings, 2 could not run."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FAILED,
    FINDINGS,
    answer_first,
    asked,
    changefeed_option,
    engine_options,
    given_changefeed,
    guarded,
    json_flag,
    main,
    print_answer,
    print_json,
    sample_options,
    say,
    session_of,
    settings_option,
    small,
    source_options,
)
from ticdc_lab.cli.record_commands import SIZE, Amount
from ticdc_lab.engine.running import shown

if TYPE_CHECKING:
    from ticdc_lab.answers import Answer
    from ticdc_lab.sources.change_log import ChangeLog

_FSCK_SAID = 10_000
_FINDINGS_SAID, _SETTINGS_SAID = 5, 4
_COLOURS = {"✗": "red", "!": "yellow", "–": "cyan", "✓": "green"}
_LINE_CHARS = 200


@main.command()
@source_options
@click.option("--messages-of", type=click.IntRange(min=1), help="Show the messages of one finding, by its number.")
@sample_options
@json_flag
def audit(source: str, as_json: bool, messages_of: int | None, **where: Any) -> None:
    """Did the log keep TiCDC's guarantees?

    Exit 0 clean, 1 findings, 2 could not run.
    """
    from ticdc_lab.answers.answer import records_of
    from ticdc_lab.answers.audit import lines, not_checked
    from ticdc_lab.audit import MAX_PER_GUARANTEE
    from ticdc_lab.errors.redaction import shown_source
    from ticdc_lab.words import shortened, some_of

    with asked(source, where, frames=False, in_full=False) as (spark, log):
        with shown(spark, "audit"):
            answer = log.audit(most=MAX_PER_GUARANTEE, messages=False)
        found, summary = answer.frames["findings"], log.summary_of("facts", "findings", most=MAX_PER_GUARANTEE)
        if messages_of is not None and messages_of > len(found):
            raise click.BadParameter(f"{messages_of}: the audit has {len(found)} findings", param_hint="--messages-of")
        about = None if messages_of is None else log.finding(messages_of)
        if as_json:
            told = {} if about is None else about.facts()
            counts = {str(k): int(n) for k, n in found.value_counts("guarantee").items()}
            grouped = {n: records_of(answer.frames[n]) for n in ("verdict", "causes", "suspects") if n in answer.frames}
            values = {"counts": counts, "not_checked": not_checked(summary)} | grouped | told
            own = replace(answer, frames={"findings": found}, values=values, limits=summary.early_ends)
            print_answer(log, own, as_json=True)
        elif about is not None:
            say(f"    {about.finding}")
            _print_messages(about, log.change_log, lane=summary.lane)
        else:
            say(answer.finding)
            for text in answer.details:
                say(text)
            for text in lines(found, summary, most=_FINDINGS_SAID):
                say(text, fg=_COLOURS.get(text[:1]))
            known = [f"{s.name} = {shortened(s.text, 60)}" for s in log.change_log.settings if s.bearing == "read"]
            every = f"all: ticdc-lab settings {shlex.quote(shown_source(source))}"
            say(f"Known settings of the changefeed: {some_of(known, most=_SETTINGS_SAID)}; {every}")
    sys.exit(FINDINGS if (found["severity"] != "info").any() else CLEAN)


def _print_messages(about: Answer, log: ChangeLog, *, lane: str) -> None:
    from ticdc_lab.events.tso import tso_words
    from ticdc_lab.words import visible

    for sentence in about.limits:
        say(sentence)
    messages = about.facts()["messages"]
    places = log.places_in_files({(m["partition"], m["offset"]) for m in messages})
    for m in messages:
        told = m | {"commit_ts": m["commit_ts"] and tso_words(m["commit_ts"])}
        said = " ".join(str(told[c]) for c in ("kind", "table", "op", "key", "commit_ts", "what") if told[c])
        mark = ">" if m["named"] else " "
        shown = visible(said)[:_LINE_CHARS]  # on one line
        at = f"{m['topic']} {lane} {m['partition']} offset {m['offset']}"
        click.echo(f"{mark} {places.get((m['partition'], m['offset']), at)}: {shown}")


@main.command()
@source_options
@click.argument("other")
@click.option("--watch", "growing", is_flag=True, help="Compare while both grow, until Ctrl-C or SIGTERM; as `ticdc-lab"
              " watch` reads them.")  # fmt: skip
@click.option("--state", metavar="DIR", help="With --watch: the folder from which the same command resumes.")
@click.option("--once", is_flag=True, help="With --watch: compare up to the end of now, and end.")
@click.option("--memory", type=Amount("SIZE", *SIZE), default="1GiB", show_default=True,
              help="With --watch: most memory of the row changes that are kept.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="With --watch: serve /metrics, /health, /ready, /findings.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False),
              help="A bearer token that requests must bring; required unless HOST is a loopback address.")  # fmt: skip
@json_flag
def compare(
    source: str, other: str, growing: bool, state: str | None, once: bool, memory: float, listen: str | None,
    token_file: str | None, as_json: bool, **where: Any,
) -> None:  # fmt: skip
    """Are two logs, or two databases, equal?

    Two logs are, for example, one topic before and after an upgrade, or two changefeeds of one upstream. The
    compared range is complete in both. OTHER is read with the same options as SOURCE.

    Two targets of `consume` (duckdb:///FILE, delta:FOLDER or mysql://USER@HOST:PORT) are compared row by row. The
    password of a MySQL user is taken as `consume` takes it.

    With --watch, row changes are compared once the resolved_ts of both logs has passed them.

    Exit 0 the same, 1 differences, 2 could not run.
    """
    from ticdc_lab.answers.compared import are_equal
    from ticdc_lab.cli.arguments import TARGETS, check_source

    needing = {"--state": state, "--once": once, "--listen": listen, "--token-file": token_file}
    if not growing and (first := next((name for name, given in needing.items() if given), None)):
        raise click.UsageError(f"{first} needs --watch.")
    if source.startswith(TARGETS) and other.startswith(TARGETS):
        if growing:
            raise click.UsageError("--watch takes two logs: targets have no row changes, but rows.")
        _compare_targets(source, other, as_json=as_json)
        return
    check_source(other, where)
    if growing:
        where |= {"state": state, "once": once, "memory": int(memory)}
        _compare_growing(source, other, as_json=as_json, listen=listen, token_file=token_file, **where)
        return
    both = where | {"all_sources": (source, other)}  # one engine that reads both
    with asked(source, both) as (spark, log), asked(other, both) as (_, beside):
        with shown(spark, "comparing"):
            answer = log.compare(beside)
        shown_whole = {name: [*frame.columns] for name, frame in answer.frames.items()}
        print_answer(log, answer, as_json=as_json, shown=shown_whole)
    if not answer.frames:
        sys.exit(FAILED)
    sys.exit(CLEAN if are_equal(answer) else FINDINGS)


SAY_S = 10.0
"""How often a comparison of growing logs reports its progress."""


def _compare_growing(
    source: str, other: str, *, options: dict[str, str], source_kind: str = "auto", as_json: bool, listen: str | None,
    token_file: str | None, **how: Any,
) -> None:  # fmt: skip
    from ticdc_lab.answers.compared import are_equal, watched
    from ticdc_lab.cli.watch_commands import asked_to_end
    from ticdc_lab.watch.comparing import WatchedComparison
    from ticdc_lab.watch.pages import pages

    if source_kind != "auto":
        raise click.UsageError("--source-kind does not go with --watch, which detects it.")
    said_of_brokers = partial(click.echo, err=True)
    comparison = WatchedComparison(
        source, other, options=options, changefeed=given_changefeed(options), said=said_of_brokers, **how
    )
    said = [time.monotonic(), 0]

    def say(now: Any) -> None:
        n = len(now.examples)
        if now.span is None or (n == said[1] and time.monotonic() - said[0] < SAY_S):
            return
        said[:] = time.monotonic(), n
        click.echo(watched(comparison).finding, err=True)

    token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else None
    served = pages(comparison, listen, token=token) if listen else nullcontext("")
    with asked_to_end() as stopped, served as at:
        if at:
            click.echo(f"http://{at}/metrics", err=True)
        comparison.run(stopped, shown=say)
    answer = watched(comparison)
    if as_json:
        protocols = dict(zip(("protocol", "other_protocol"), comparison.protocols, strict=True))
        about = {"source": source, "other": other, **protocols, "answer": answer.finding, "limits": [*answer.limits]}
        print_json(about | answer.facts())
    else:
        click.echo(answer)
    if not answer.frames:
        sys.exit(FAILED)
    sys.exit(CLEAN if are_equal(answer) else FINDINGS)


def _compare_targets(here: str, there: str, *, as_json: bool) -> None:
    from ticdc_lab.answers.compared import are_equal, targets
    from ticdc_lab.consumer import compare_targets

    answer_first()
    spark = session_of(needs_spark="it reads Delta tables") if "delta:" in (here[:6], there[:6]) else None
    with shown(spark, "comparing"):
        answer = targets(compare_targets(here, there, spark=spark))
    if as_json:
        print_json(
            {"source": here, "other": there, "answer": answer.finding, "limits": [*answer.limits]} | answer.facts()
        )
    else:
        click.echo(answer)
    sys.exit(CLEAN if are_equal(answer) else FINDINGS)


@main.command()
@click.argument("folder")
@settings_option
@changefeed_option
@engine_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def fsck(folder: str, options: dict[str, str], as_json: bool) -> None:
    """Is a folder of TiCDC's storage sink whole?

    Rows above the checkpoint are no finding: the sink writes them before it moves the checkpoint.

    Exit 0 clean, 1 findings, 2 could not run.
    """
    from ticdc_lab.errors import SourceError
    from ticdc_lab.errors.whole_files import local_path
    from ticdc_lab.settings.file import options_of_source

    given = given_changefeed(options)
    if others := options_of_source(options):
        raise click.BadParameter(f"{', '.join(sorted(others))}: no setting of a storage folder", param_hint="--option")
    if (place := local_path(folder)) is not None and not place.is_dir():
        raise SourceError(f"{folder} is no folder.", hint="Name the folder that contains the file `metadata`.")
    answer_first()
    spark = session_of(folder)
    from ticdc_lab.engine import kept
    from ticdc_lab.sources.fsck import fsck as check
    from ticdc_lab.sources.load import opened_as
    from ticdc_lab.sources.storage import read_by

    settings = read_by(given)
    wrong: tuple[str, ...] = ()
    if any(s.source == "file" for s in given.known):
        opened, settings = opened_as(spark, folder, given, kind="storage")
        wrong = tuple(c.words for c in (given | opened.shown).contradictions)
    with shown(spark, "fsck"), kept(check(spark, folder, settings=settings)) as findings:
        found = small(findings.orderBy("kind", "path", "found").limit(_FSCK_SAID))
        by_kind = small(findings.groupBy("kind", "severity").count().orderBy("kind", "severity"))
    found += [{"kind": "setting", "severity": "warning", "path": ".", "expected": "the settings of the changefeed that "
               "wrote it", "found": words} for words in wrong]  # fmt: skip
    counts = {"setting": len(wrong)} if wrong else dict[str, int]()
    for r in by_kind:
        counts[r["kind"]] = counts.get(r["kind"], 0) + r["count"]
    faults = bool(wrong) or any(r["severity"] != "info" for r in by_kind)
    if as_json:
        print_json({"source": folder, "findings": found, "counts": counts})
    else:
        said = ", ".join(f"{n} x {kind}" for kind, n in counts.items())
        has_errors = any(f["severity"] == "error" for f in (*found, *by_kind))
        whole = "is not whole" if has_errors else "may not be whole" if faults else "is whole"
        click.echo(f"{folder} {whole}{': ' if counts else ''}{said}.")
        for f in found:
            click.echo(f"{f['severity']} {f['kind']} {f['path']}: expected {f['expected']}; found {f['found']}")
    sys.exit(FINDINGS if faults else CLEAN)
