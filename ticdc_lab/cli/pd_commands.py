"""Commands that ask the simulated PD."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import CLEAN, FINDINGS, guarded, json_flag, main, print_json, print_table, session_of, small
from ticdc_lab.cli.simulate_commands import RunAsked, of_a_run, ran, seeds_of, simulate

if TYPE_CHECKING:
    from ticdc_lab.pd_core.pd_ctl_json import Loaded
    from ticdc_lab.pd_core.why import Opinion
    from ticdc_lab.simulate.pd.replay import Replayed
    from ticdc_lab.simulate.pd.world.world import World


@main.group()
def pd() -> None:
    """What PD decides, and why."""


@pd.command()
@click.argument("file")
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, help="Disagreements shown; 0 for all.")
@click.option("--seeds", help="Of runs of whole clusters: 1..20 runs each with 20 seeds; default: 1.")
@click.option("--out", help="Write a page that lists every record beside the model's answer.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def replay(file: str, lines: int, seeds: str | None, out: str | None, as_json: bool) -> None:
    """Compare the model's decisions with records of the real PD.

    FILE is JSON Lines, plain or gzipped, in the form of tests/data/golden/pd. PD may have several answers: `ours` is
    the most likely one, `legal` has them all.

    Exit 0: all agree or are not judged. 1: some disagree. 2: it could not run.
    """
    from ticdc_lab.cli.arguments import check_outs
    from ticdc_lab.simulate.pd.replay import replay as judged

    check_outs(None, out, page=True)
    replayed = judged(file, seeds=seeds_of(seeds) if seeds else (1,))
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
    """Print our run of each case beside the real PD's: operators started, and how uneven the end is."""
    if not cases:
        return
    rows = []
    for r in cases:
        ours, real = r["ours"], r["file"]
        made = {d for run in (ours, *real) for d in run["created"]} | set(ours.get("spread", ()))
        for n, desc in enumerate(sorted(made) or ["none"]):
            counts = [run["created"].get(desc, 0) for run in real]
            low, mid, high = ours.get("spread", {}).get(desc, [ours["created"].get(desc, 0)] * 3)
            mine = f"{low}..{high}, middle {mid}" if "spread" in ours else mid
            first = {
                "case": r["id"], "agrees": "yes" if r["agrees"] else "no", "peers": _extremes([ours]),
                "peers of PD": _extremes(real),
            } if not n else {"case": "", "agrees": "", "peers": "", "peers of PD": ""}  # fmt: skip
            within = {"PD within ours": "no" if desc in ours.get("outside", ()) else "yes"} if "spread" in ours else {}
            rows.append(first | {"operators": desc, "ours": mine, "PD": f"{min(counts)}..{max(counts)}", **within})
    click.echo()
    more = ("PD within ours",) if "PD within ours" in rows[0] else ()
    print_table(rows, "case", "agrees", "operators", "ours", "PD", *more, "peers", "peers of PD")


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


# ``ticdc-lab pd explain``: what PD would do now with a cluster that pd-ctl printed, and why.


@pd.command()
@click.option("--from", "folders", multiple=True, metavar="FOLDER", help="Folder, tar or zip of what pd-ctl printed.")
@click.option("--stores", help="What `pd-ctl store` printed.")
@click.option("--regions", help="What `region` or `region scan` printed; a million regions take half a minute.")
@click.option("--config", help="What `config show all` printed; default: the defaults of the stores' version.")
@click.option(
    "--rules", multiple=True, help="What `config placement-rules show`, `rule-group show` or `rule-bundle` printed."
)
@click.option("--also", multiple=True, help="Other output: operator show, scheduler show, hot read, store limit, ..")
@click.option("--before", metavar="FOLDER", help="Folder, tar or zip of a moment; with --after: what moved since.")
@click.option("--after", metavar="FOLDER", help="Folder, tar or zip of a later moment; with --before.")
@click.option("--region", type=int, help="The id of one region: explain it with all reasons.")
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, help="Reasons shown; 0 for all.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def explain(
    folders: tuple[str, ...], stores: str | None, regions: str | None, config: str | None, rules: tuple[str, ...],
    also: tuple[str, ...], before: str | None, after: str | None, region: int | None, lines: int, as_json: bool,
) -> None:  # fmt: skip
    """Explain what PD would do with a cluster now, and why.

    Give a folder, tar or zip with --from, or files. Each file of --from, --rules and --also is recognised by its
    contents, not by its name. The first line names what is missing.

    Without --region: what the checkers do with each kind of region, and one round of each scheduler.
    With --region: each checker's answer for this region, and what the schedulers would do if they drew it.

    If PD would do nothing, the reason is shown.
    """
    if before or after:
        if not before or not after:
            raise click.UsageError("Give both --before and --after.")
        sys.exit(_compared(before, after, as_json=as_json))
    loaded = _given(folders, stores, regions, config, (*rules, *also))
    told = _survey(loaded) if region is None else _region(loaded, region)
    told = {"missing": loaded.first_line, **told, "notes": [*told.get("notes", ()), *loaded.notes]}
    if as_json:
        print_json(told)
    else:
        _print_explained(told, lines)
    sys.exit(CLEAN)


def _compared(before: str, after: str, *, as_json: bool) -> int:
    from ticdc_lab.pd_core.before_after import before_after, words
    from ticdc_lab.pd_core.pd_ctl_json import from_folder

    one, other = from_folder(before), from_folder(after)
    found = before_after(one, other)
    missing = [f"{name}: {x.first_line}" for name, x in (("before", one), ("after", other)) if x.first_line]
    left = [
        _finite(f.forecast._asdict()) | {"at_pace_s": f.at_pace_s, "sentence": line}
        for f, line in zip(found.left, words(found), strict=True)
    ]
    told = found._asdict() | {"sentence": found.sentence, "moves": found.moves, "left": left, "missing": missing}
    if as_json:
        print_json({**told, "stores": list(found.stores), "held_by": list(found.held_by)})
        return CLEAN
    for line in (*missing, found.sentence, ""):
        click.echo(line)
    print_table(
        list(found.stores), "store", "peers_before", "peers_after", "came", "went", "leaders_before", "leaders_after"
    )
    for line in ("", *words(found), *(f"held by {why}" for why in found.held_by)):
        click.echo(line)
    if found.new or found.gone:
        only = "{:,} are new and {:,} are gone" if found.whole else "{:,} are only after and {:,} only before"
        click.echo(f"{found.compared:,} regions are compared; {only.format(found.new, found.gone)}")
    return CLEAN


def _given(
    folders: tuple[str, ...], stores: str | None, regions: str | None, config: str | None, more: tuple[str, ...]
) -> Loaded:
    from ticdc_lab.pd_core.pd_ctl_json import from_folder, from_pd_ctl

    if folders:
        return from_folder(*folders, *(f for f in (stores, regions, config) if f), *more)
    if not stores or not regions:
        lacks = "--stores" if not stores else "--regions"
        raise click.UsageError(f"Give --from, or --stores and --regions: {lacks} is missing.")
    return from_pd_ctl(stores, regions, config, None, *more)


def _survey(loaded: Loaded) -> dict[str, Any]:
    from ticdc_lab.pd_core.forecast import forecast, in_words
    from ticdc_lab.pd_core.survey import survey

    found = survey(
        loaded.cluster, loaded.regions, schedulers=loaded.schedulers, running=loaded.running, doubted=loaded.doubted
    )
    outcomes = [o._asdict() for o in found.outcomes]
    on_stores = {} if loaded.whole else {s.id: s.region_count for s in loaded.cluster.stores.values()}
    how_long = forecast(
        loaded.cluster, loaded.regions, loaded.limits, groups=found.groups, expected=on_stores,
        schedulers=loaded.schedulers,
    )  # fmt: skip
    return {
        "sentence": found.sentence, "regions": found.regions, "outcomes": outcomes,
        "forecast": [_finite(f._asdict()) | {"sentence": s} for f, s in zip(how_long, in_words(how_long), strict=True)],
        "answers": _told(found.rounds), "not_chosen": [n._asdict() for n in found.not_chosen],
    }  # fmt: skip


def _finite(told: dict[str, Any]) -> dict[str, Any]:
    """Give never as null, which JSON has a word for."""
    return {k: None if v == math.inf else v for k, v in told.items() if k != "never"} | {
        "never": [{"why": why, "peers": n} for why, n in told["never"]]
    }


def _region(loaded: Loaded, region_id: int) -> dict[str, Any]:
    from ticdc_lab.pd_core.regions import place_of, region_at
    from ticdc_lab.pd_core.survey import neighbours
    from ticdc_lab.pd_core.why import explain as answers_of

    place = place_of(loaded.regions, region_id)
    if place is None:
        raise click.BadParameter(f"no region {region_id} among {len(loaded.regions.id):,}", param_hint="--region")
    region = region_at(loaded.regions, place)
    if region_id in loaded.regions.busy:
        runs = next(o.text for o in loaded.operators if o.region == region_id)
        return {"sentence": f"region {region_id}: an operator runs: {runs}", "region": region_id, "answers": []}
    if loaded.doubted is not None and loaded.doubted[place]:
        words = f"region {region_id}: it is not judged, since its placement rules were not given: add --rules"
        return {"sentence": words, "region": region_id, "answers": []}
    beside = neighbours(loaded.regions, place)
    answers = answers_of(loaded.cluster, region, beside, running=loaded.running, schedulers=loaded.schedulers)
    return {"sentence": f"region {region_id}: {answers[0].sentence}", "region": region_id, "answers": _told(answers)}


def _told(answers: tuple[Opinion, ...]) -> list[dict[str, Any]]:
    from ticdc_lab.pd_core.recorded.scenario_decisions import operator_json
    from ticdc_lab.pd_core.why import rows

    return [
        {"asked": a.asked, "sentence": a.sentence, "operators": [operator_json(op) for op in a.explained.operators],
         "limit": a.explained.limit, "rows": rows(a)}
        for a in answers
    ]  # fmt: skip


def _print_explained(told: dict[str, Any], lines: int) -> None:
    if told["missing"]:
        click.echo(told["missing"])
    click.echo(told["sentence"])
    if told.get("outcomes"):
        click.echo("")
        print_table(told["outcomes"], "group", "regions", "asked", "here", "does", "why", "example")
    if told.get("forecast"):
        click.echo("\n" + "\n".join(f["sentence"] for f in told["forecast"]))
    for answer in told["answers"]:
        click.echo(f"\n{answer['sentence']}")
        if answer["asked"] == "patrol":  # it asks the checkers below, whose reasons follow
            continue
        shown = answer["rows"][: lines or None]
        if shown:
            rows = [{k: f"{v:,.2f}" if isinstance(v, float) else v for k, v in row.items()} for row in shown]
            print_table(rows, "store", "test", "outcome", "value", "against", "why")
        if len(shown) < len(answer["rows"]):
            click.echo(f"{len(answer['rows']) - len(shown)} more: --lines 0 shows them all")
    if told.get("not_chosen"):
        click.echo("\nNot chosen, and why:")
        print_table(told["not_chosen"][: lines or None], "who", "as_what", "times", "why", "example")
        if lines and len(told["not_chosen"]) > lines:
            click.echo(f"{len(told['not_chosen']) - lines} more: --lines 0 shows them all")
    if told["notes"]:
        click.echo("\n" + "\n".join(told["notes"]))


# The command that runs scenarios of PD.


@simulate.command("pd")
@of_a_run
@click.option(
    "--from",
    "folder",
    metavar="FOLDER",
    help="Without a file: play your own cluster from a folder, tar or zip of what pd-ctl printed, as it is and with "
    "the changes below. --set NAME=VALUE is then PD's `config set`.",
)
@click.option("--store-limit", "store_limits", multiple=True, metavar="N|STORE=N", help="With --from: peers a minute.")
@click.option("--remove-store", "remove", type=int, multiple=True, metavar="ID", help="With --from: delete a store.")
@click.option("--add-store", "add", multiple=True, metavar="ID[,LABEL=VALUE..]", help="With --from: a store joins.")
@click.option("--down", type=int, multiple=True, metavar="ID", help="With --from: a store falls silent.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="With --from: the longest that is played, virtual time. Default: 120, unless that takes CPU hours.",
)
@json_flag
@guarded
def simulate_pd(
    asked: RunAsked, folder: str | None, store_limits: tuple[str, ...], remove: tuple[int, ...], add: tuple[str, ...],
    down: tuple[int, ...], minutes: float | None,
) -> None:  # fmt: skip
    """Run a scenario of PD and judge it, or your own cluster.

    Exit 0: all assertions passed. 1: one failed, or an invariant was violated. 2: it did not run, or not to its end.
    With --seeds a Spark job runs all seeds, and --out keeps a row of numbers for each.
    """
    if folder is not None:
        if asked.scenario or asked.seeds or asked.swarm or asked.out:
            raise click.UsageError("--from plays your own cluster: leave out SCENARIO, --seeds, --swarm and --out.")
        told = {"settings": asked.settings, "store_limits": store_limits, "remove": remove, "add": add, "down": down}
        sys.exit(_own(folder, told, minutes, asked.seed or 1, as_json=asked.as_json))
    if store_limits or remove or add or down:
        raise click.UsageError("--store-limit, --remove-store, --add-store and --down change a cluster of --from.")
    sys.exit(ran("pd", asked, many=_many))


_PROGRESS_S = 10.0
"""CPU seconds between two lines on how far a long run is."""


_CPU_S_A_REGION = 2e-6
"""CPU seconds that a region takes for each second of its cluster: what a million on 100 stores took."""


_MOST_CPU_HOURS, _MINUTES = 0.5, 120.0
"""The default length: a run of CPU hours has to be asked for."""


def _own(folder: str, told: dict[str, Any], asked_minutes: float | None, seed: int, *, as_json: bool) -> int:
    """Play the user's cluster as it is and changed, side by side."""
    from ticdc_lab.errors import ScenarioError
    from ticdc_lab.pd_core.pd_ctl_json import from_folder
    from ticdc_lab.simulate.pd.looking.own_cluster import MANY_REGIONS, changed, own_case, own_futures, own_policies
    from ticdc_lab.simulate.pd.world.run import side_by_side, why_nothing

    loaded, minutes = from_folder(folder), asked_minutes or _MINUTES
    if (n := len(loaded.regions.id)) > MANY_REGIONS:
        runs = 2 if any(told.values()) else 1
        hours = n * _CPU_S_A_REGION * minutes * 60 * runs / 3600
        if hours > _MOST_CPU_HOURS and asked_minutes is None:
            hint = (
                f"--minutes 5 plays 5 minutes, about {hours / minutes * 300:,.0f} CPU minutes, --minutes {minutes:g} "
                f"all of it; `ticdc-lab pd explain --from {shlex.quote(loaded.source)}` forecasts without playing."
            )
            raise ScenarioError(
                f"{n:,} regions: {minutes:g} minutes of the cluster{', twice,' if runs == 2 else ''} take about "
                f"{hours:,.1f} CPU hours", hint=hint,
            )  # fmt: skip
        click.echo(
            f"{n:,} regions, up to {minutes:g} minutes of the cluster{', twice' if runs == 2 else ''}: this may take "
            f"{hours:,.1f} CPU hours. --minutes N plays less, `ticdc-lab pd explain --from "
            f"{shlex.quote(loaded.source)}` forecasts without playing.", err=True,
        )  # fmt: skip
    shown_s, began_s, playing = time.process_time(), 0.0, ""

    def progress(name: str, world: World) -> None:
        nonlocal shown_s, began_s, playing
        now_s = time.process_time()
        if name != playing:
            playing, began_s = name, now_s
        if now_s - shown_s >= _PROGRESS_S:
            shown_s, played = now_s, world.now_us / 60e6
            left = (now_s - began_s) / max(played, 1e-3) * (minutes - played) / 3600
            told = f"{name}: {played:.1f} of {minutes:g} min, {sum(world.controller.created.values()):,} operators"
            click.echo(f"{told} started; all of it would take {left:,.1f} CPU hours more at this pace", err=True)

    like = own_case(loaded).start
    found = own_futures(loaded, changed(**told, like=like), minutes=minutes, seed=seed, progress=progress)
    rows = side_by_side(found.runs).to_pylist()
    played = tuple(f"not simulated: {p.name}," for p in own_policies(loaded))
    notes = [note for note in loaded.notes if not note.startswith(played)]
    holds = {name: [f"{h.what}: {h.because}" for h in why_nothing(run.world)] for name, run in found.runs.items()}
    if as_json:
        numbers = {name: f._asdict() for name, f in found.numbers.items()}
        facts = {"missing": loaded.first_line, "sentence": found.sentence, "seed": seed, "numbers": numbers}
        print_json({**facts, "holds": holds, "notes": notes})
    else:
        for line in (*([loaded.first_line] if loaded.first_line else []), found.sentence, ""):
            click.echo(line)
        print_table(rows, *rows[0])
        for name, run in found.runs.items():
            if run.end.because != "settled":
                click.echo(f"\n{name}, at the end:\n" + "\n".join(f"  {line}" for line in holds[name]))
        if notes:
            click.echo("\n" + "\n".join(notes))
    return CLEAN if all(run.violation is None for run in found.runs.values()) else FINDINGS


def _many(scenario: Any, seeds: range, out: str | None, *, as_json: bool) -> int:
    from ticdc_lab.encode.export import write
    from ticdc_lab.engine import kept
    from ticdc_lab.simulate.sweep import summary, sweep

    with kept(sweep(session_of(), scenario, seeds)) as rows:
        if out:
            write(rows.orderBy("seed"), out)
        [told] = small(summary(rows))
    if as_json:
        print_json({"scenario": scenario.name, "seeds": [seeds[0], seeds[-1]], **told})
    else:
        click.echo(f"{scenario.name}, seeds {seeds[0]}..{seeds[-1]}")
        print_table([{"what": k, "value": v} for k, v in told.items()], "what", "value")
    return CLEAN if told["held"] == told["runs"] else FINDINGS
