"""Commands that judge; exit 0 clean, 1 findings, 2 could not run."""

from __future__ import annotations

import sys
from typing import Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    decoded,
    engine_options,
    facts_of,
    guarded,
    json_flag,
    main,
    print_json,
    sample_options,
    session_of,
    settings_option,
    small,
    source_options,
)
from ticdc_lab.engine.running import shown

_FSCK_SAID = 10_000
_LINE_CHARS = 200


@main.command()
@source_options
@click.option(
    "--messages-of", type=click.IntRange(min=1), help="Show what finding number N is about, message by message."
)
@sample_options
@json_flag
def audit(source: str, as_json: bool, messages_of: int | None, **where: Any) -> None:
    """Did the log keep TiCDC's promises? Exit 0 clean, 1 findings, 2 could not run."""
    from ticdc_lab.audit import checks_possible

    with decoded(source, where) as (spark, log):
        with shown(spark, "audit"):
            found = _findings(log)
        counts: dict[str, int] = {}
        for f in found:
            counts[f["guarantee"]] = counts.get(f["guarantee"], 0) + 1
        possible = checks_possible(log.protocol, has_commit_ts=log.has_commit_ts, sample=log.sample)
        about = None if messages_of is None else _messages(log, found, messages_of)
        if as_json:
            told = {} if about is None else {"messages": about}
            print_json(facts_of(log) | {"findings": found, "counts": counts, "not_checked": _why_not(possible)} | told)
        elif about is not None and messages_of is not None:
            _print_finding(messages_of, found[messages_of - 1])
            _print_messages(about)
        else:
            _print_findings(found, possible)
    sys.exit(FINDINGS if found else CLEAN)


def _findings(log: Any) -> list[dict[str, Any]]:
    """Findings, at most MAX_PER_GUARANTEE each; where a rule moves rows, it is said."""
    from ticdc_lab.audit import MAX_PER_GUARANTEE
    from ticdc_lab.audit import audit as check
    from ticdc_lab.checksum_findings import verify_checksums
    from ticdc_lab.dispatch import move_causes
    from ticdc_lab.schema import FINDINGS

    events = log.events
    causes = events.transform(move_causes)
    how = {"protocol": log.protocol, "has_commit_ts": log.has_commit_ts, "sample": log.sample}
    found = small(events.transform(check, causes=causes, **how))
    if log.protocol in ("simple", "avro"):  # no other carries row checksums
        differ = events.transform(verify_checksums).select(*FINDINGS.names)
        found += small(differ.orderBy("severity", "partition", "offset").limit(MAX_PER_GUARANTEE))
    return found


def _messages(log: Any, found: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """The messages that a finding names and those beside them; ``named`` tells them apart."""
    import pandas as pd

    from ticdc_lab.audit import places_of
    from ticdc_lab.browse import Browser

    if number > len(found):
        raise click.BadParameter(f"{number}: the audit has {len(found)} findings", param_hint="--messages-of")
    rows = Browser.of(log).messages(places_of(found[number - 1])).to_dict("records")
    return [{str(k): None if pd.isna(v) else v for k, v in r.items()} for r in rows]


def _print_messages(about: list[dict[str, Any]]) -> None:
    if not about:
        click.echo("It names no message: it is about what is missing.")
    for m in about:
        said = " ".join(str(m[c]) for c in ("kind", "table", "op", "key", "commit_ts", "what") if m[c])
        mark = ">" if m["named"] else " "
        click.echo(f"{mark} {m['topic']} partition {m['partition']} offset {m['offset']}: {said[:_LINE_CHARS]}")


def _print_finding(number: int, f: dict[str, Any]) -> None:
    where = f"{f['table'] or ''} {f['key'] or ''} partition {f['partition']} offset {f['offset']}"
    click.echo(f"    #{number} {f['severity']}: {where}: {f['message']}")


def _why_not(possible: dict[str, str]) -> dict[str, str]:
    return {name: why for name, why in possible.items() if why}


def _print_findings(found: list[dict[str, Any]], possible: dict[str, str], *, most: int = 20) -> None:
    for name, why in possible.items():
        mine = [(i, f) for i, f in enumerate(found, start=1) if f["guarantee"] == name]
        click.echo(f"{'-' if why else 'x' if mine else '✓'} {name}: {why or f'{len(mine)} findings'}")
        for i, f in mine[:most]:
            _print_finding(i, f)
        if len(mine) > most:
            click.echo(f"    and {len(mine) - most} more; --json shows all")


@main.command()
@click.argument("folder")
@settings_option
@engine_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def fsck(folder: str, options: dict[str, str], as_json: bool) -> None:
    """Is a folder of TiCDC's storage sink whole? Exit 0 clean, 1 findings, 2 could not run.

    Rows above the checkpoint alone, which the sink writes in passing, are no finding.
    """
    from ticdc_lab.codecs.csv_settings import settings_among
    from ticdc_lab.errors import SourceError
    from ticdc_lab.sources.places import local_path

    wanted, others = settings_among(options)
    if others:
        raise click.BadParameter(f"{', '.join(sorted(others))}: no setting of a storage folder", param_hint="--option")
    if (place := local_path(folder)) is not None and not place.is_dir():
        raise SourceError(f"{folder} is no folder.", hint="Name the folder in which the file metadata lies.")
    spark = session_of(folder)
    from ticdc_lab.fsck import fsck as check

    with shown(spark, "fsck"):
        findings = check(spark, folder, settings=wanted).persist()  # or every file would be read for each answer
        found = small(findings.orderBy("kind", "path", "found").limit(_FSCK_SAID))
        by_kind = small(findings.groupBy("kind", "severity").count().orderBy("kind", "severity"))
        findings.unpersist()
    counts: dict[str, int] = {}
    for r in by_kind:
        counts[r["kind"]] = counts.get(r["kind"], 0) + r["count"]
    faults = any(r["severity"] != "info" for r in by_kind)
    if as_json:
        print_json({"source": folder, "findings": found, "counts": counts})
    else:
        for f in found:
            click.echo(f"{f['severity']} {f['kind']} {f['path']}: expected {f['expected']}; found {f['found']}")
        said = ", ".join(f"{n} x {kind}" for kind, n in counts.items())
        click.echo(f"{folder}: {said}" if counts else f"{folder}: clean")
    sys.exit(FINDINGS if faults else CLEAN)
