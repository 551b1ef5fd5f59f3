"""Commands that ask the simulated PD."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import CLEAN, FINDINGS, guarded, json_flag, main, print_json, print_table

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.replay import Replayed


@main.group()
def pd() -> None:
    """What PD decides, and why."""


@pd.command()
@click.argument("file")
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, help="Disagreements shown; 0 for all.")
@click.option("--out", help="Write a page that lists every record beside our answer.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def replay(file: str, lines: int, out: str | None, as_json: bool) -> None:
    """Compare our PD's decisions with records of the real PD.

    FILE is JSON Lines in the form of golden/pd, also gzipped. Where PD may answer in several ways `ours` is the most
    likely answer and `legal` has them all. Exit 0: all agree or are not judged. 1: some disagree. 2: no file.
    """
    from ticdc_lab.simulate.pd.replay import replay as judged

    replayed = judged(file)
    if out:
        from ticdc_lab.report.pd_replay import pd_replay_page

        click.echo(f"page: {pd_replay_page(replayed, Path(file).name, out)}", err=True)
    if as_json:
        counts = {"not_judged": replayed.not_judged, "malformed": replayed.malformed}
        print_json({"total": replayed.total, "agree": replayed.agree, **counts, "records": list(replayed.records)})
    else:
        _print(replayed, lines)
    sys.exit(CLEAN if replayed.agree + replayed.not_judged == replayed.total else FINDINGS)


def _print_cases(cases: list[dict[str, Any]]) -> None:
    """Print our run of each case beside those of the real PD: operators started, and how uneven the end is."""
    if not cases:
        return
    rows = []
    for r in cases:
        ours, real = r["ours"], r["file"]
        made = {d for run in (ours, *real) for d in run["created"]}
        for n, desc in enumerate(sorted(made) or ["none"]):
            counts = [run["created"].get(desc, 0) for run in real]
            rows.append({
                "case": r["id"] if not n else "", "agrees": ("yes" if r["agrees"] else "no") if not n else "",
                "operators": desc, "ours": ours["created"].get(desc, 0), "PD": f"{min(counts)}..{max(counts)}",
                "peers": _extremes([ours]) if not n else "", "peers of PD": _extremes(real) if not n else "",
            })  # fmt: skip
    click.echo()
    print_table(rows, "case", "agrees", "operators", "ours", "PD", "peers", "peers of PD")


def _extremes(runs: list[dict[str, Any]]) -> str:
    """The least and the most peers that a store had at the end."""
    counts = [n for run in runs for n in run["peers"].values()]
    return f"{min(counts)}..{max(counts)}" if counts else "-"


def _print(replayed: Replayed, lines: int) -> None:
    print_table(replayed.by_kind(), "kind", "records", "agree", "disagree", "not judged", "malformed")
    click.echo(f"{replayed.agree} of {replayed.total} records agree")
    reasons = Counter(r["because"] for r in replayed.records if r["agrees"] is None)
    for why, n in reasons.most_common(lines or None):
        click.echo(f"{n} not judged: {why.removeprefix('not judged: ')}")
    _print_cases([r for r in replayed.records if r["kind"] == "case" and r["ours"] and r["file"]])
    wrong = [r for r in replayed.records if r["agrees"] is False and r["kind"] != "run"]
    for r in wrong[: lines or None]:
        click.echo(f"\nline {r['line']} ({r['kind']}{', ' + r['id'] if r['id'] else ''}): {r['because']}")
        if "error" not in r:
            click.echo(f"  ours {r['ours']}\n  file {r['file']}")
    if lines and len(wrong) > lines:
        click.echo(f"\n{len(wrong) - lines} more: --lines 0 shows them all")
