"""``ticdc-lab pd explain``: what PD would do now with a cluster that pd-ctl printed, and why."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import CLEAN, guarded, json_flag, print_json, print_table
from ticdc_lab.cli.pd_commands import pd

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.ctl import Loaded
    from ticdc_lab.simulate.pd.why import Answer


@pd.command()
@click.option("--stores", required=True, help="What `pd-ctl store` printed.")
@click.option("--regions", required=True, help="What `pd-ctl region` printed; a million regions take half a minute.")
@click.option("--config", help="What `pd-ctl config show all` printed; PD's defaults without it.")
@click.option("--rules", help="What `pd-ctl config placement-rules show` printed; the settings' rule without it.")
@click.option("--region", type=int, help="One region, by id, with all reasons.")
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, help="Reasons shown; 0 for all.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def explain(
    stores: str, regions: str, config: str | None, rules: str | None, region: int | None, lines: int, as_json: bool
) -> None:
    """Say what PD would do now with a cluster, and why, or why nothing.

    Without --region: what the checkers do with regions of each kind, and a round of both balance schedulers.
    With it: what every checker says to the region, and what the schedulers would do if they drew it.
    """
    from ticdc_lab.simulate.pd.ctl import from_pd_ctl

    loaded = from_pd_ctl(stores, regions, config, rules)
    operator_json = _survey(loaded) if region is None else _region(loaded, region)
    if as_json:
        print_json(operator_json)
    else:
        _print(operator_json, lines)
    sys.exit(CLEAN)


def _survey(loaded: Loaded) -> dict[str, Any]:
    from ticdc_lab.simulate.pd.forecast import forecast, in_words
    from ticdc_lab.simulate.pd.survey import survey

    found = survey(loaded.cluster, loaded.regions)
    outcomes = [o._asdict() for o in found.outcomes]
    how_long = forecast(loaded.cluster, loaded.regions, loaded.limits)
    return {
        "sentence": found.sentence, "regions": found.regions, "outcomes": outcomes, "answers": _told(found.rounds),
        "forecast": [_finite(f._asdict()) | {"sentence": s} for f, s in zip(how_long, in_words(how_long), strict=True)],
    }  # fmt: skip


def _finite(operator_json: dict[str, Any]) -> dict[str, Any]:
    """Give never as null, which JSON has a word for."""
    return {k: None if v == math.inf else v for k, v in operator_json.items()}


def _region(loaded: Loaded, region_id: int) -> dict[str, Any]:
    from ticdc_lab.simulate.pd.region_columns import place_of, region_at
    from ticdc_lab.simulate.pd.survey import neighbours
    from ticdc_lab.simulate.pd.why import explain as answers_of

    place = place_of(loaded.regions, region_id)
    if place is None:
        raise click.BadParameter(f"no region {region_id} among {len(loaded.regions.id):,}", param_hint="--region")
    region = region_at(loaded.regions, place)
    answers = answers_of(loaded.cluster, region, neighbours(loaded.regions, place))
    return {"sentence": f"region {region_id}: {answers[0].sentence}", "region": region_id, "answers": _told(answers)}


def _told(answers: tuple[Answer, ...]) -> list[dict[str, Any]]:
    from ticdc_lab.simulate.pd.replay.expected import operator_json
    from ticdc_lab.simulate.pd.why import rows

    return [
        {"asked": a.asked, "sentence": a.sentence, "operators": [operator_json(op) for op in a.explained.operators],
         "limit": a.explained.limit, "rows": rows(a)}
        for a in answers
    ]  # fmt: skip


def _print(operator_json: dict[str, Any], lines: int) -> None:
    click.echo(operator_json["sentence"])
    if operator_json.get("outcomes"):
        click.echo("")
        print_table(operator_json["outcomes"], "group", "regions", "asked", "here", "does", "why", "example")
    if operator_json.get("forecast"):
        click.echo("\n" + "\n".join(f["sentence"] for f in operator_json["forecast"]))
    for answer in operator_json["answers"]:
        click.echo(f"\n{answer['sentence']}")
        if answer["asked"] == "patrol":  # it asks the checkers below, whose reasons follow
            continue
        shown = answer["rows"][: lines or None]
        if shown:
            print_table([_rounded(r) for r in shown], "store", "test", "outcome", "value", "against", "why")
        if len(shown) < len(answer["rows"]):
            click.echo(f"{len(answer['rows']) - len(shown)} more: --lines 0 shows them all")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: f"{v:,.2f}" if isinstance(v, float) else v for k, v in row.items()}
