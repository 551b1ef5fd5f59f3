"""The README's five pictures, made again: `.venv/bin/python docs/pictures.py [NAME ..]`.

Each is a figure of the package, on data of the repository, drawn by Chromium. Nothing is drawn by hand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ticdc_lab import figures, load, session
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.plotly_js import library

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/pictures"
SMALL = str(ROOT / "data/messages_canal-json-tidb_small.jsonl.gz")
BANK = str(ROOT / "data/messages_canal-json-tidb_bank.jsonl.gz")
WIDTH_PX, ABOVE_PX = 900, 10


def guarantee_matrix() -> Figure:
    """What each dispatcher would break of a log's order, counted."""
    from ticdc_lab.dispatch import WhatIf
    from ticdc_lab.dispatch.comparison import guarantee_frame
    from ticdc_lab.facts.catalog import catalog_of

    events = load(session("spark"), SMALL).events
    what_if = WhatIf.from_events(events, catalog_of(events))
    return figures.guarantee_matrix(guarantee_frame(what_if, partitions=4), partitions=4)


def invariant_curve() -> Figure:
    """A sum that no transaction changes, as the downstream shows it under three sets of consumer rules."""
    import pandas as pd

    from ticdc_lab.consumer import Listeners, Study
    from ticdc_lab.consumer.consistency import invariant_curve, measure_of
    from ticdc_lab.consumer.model import run
    from ticdc_lab.consumer.policy import DESIGN_ROW, REFERENCE, STRICT

    one_slow = Listeners(10_000, {1: 3000}, write_us=20)
    money = Study.of(load(session("spark"), BANK).events, strategies=("table",), measure=measure_of("balance"))
    runs = {policy.name: run(money.recorded, policy, one_slow) for policy in (DESIGN_ROW, REFERENCE, STRICT)}
    curves = [invariant_curve(found, money.recorded, label=name) for name, found in runs.items()]
    return figures.invariant_curve(pd.concat(curves), of="the total balance")


def watermark_tree() -> Figure:
    """What holds the checkpoint of a simulated changefeed, down to the lock of one transaction."""
    from ticdc_lab.simulate.pipeline.run import simulate
    from ticdc_lab.simulate.pipeline.samples import seen_in
    from ticdc_lab.simulate.pipeline.settings import PipelineSettings
    from ticdc_lab.simulate.pipeline.tryout import SAMPLE_US, shop
    from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

    load_of_clients = shop(long_us=3_000_000, until_us=7_000_000)
    run = simulate(PipelineSettings(Scheduler(captures=2)), load_of_clients, until_us=7_000_000, sample_us=SAMPLE_US)
    return figures.watermark_tree(seen_in(run.snapshots).watermarks, at_us=5_800_000)


def ownership_gantt() -> Figure:
    """Who writes which table when the owner crashes and comes back."""
    from ticdc_lab.simulate.faults import Crash, Restart
    from ticdc_lab.simulate.ledger import owners
    from ticdc_lab.simulate.scheduler.run import simulate
    from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

    settings = SchedulerSettings(captures=3, tables=6)
    owner = owners(simulate(settings, until_us=1_000_000).trace)["capture"].iloc[0]
    faults = [Crash(3_200_000, owner), Restart(9_000_000, owner)]
    return figures.ownership_gantt(simulate(settings, faults=faults, until_us=15_000_000).trace)


def schema_timeline() -> Figure:
    """An online schema change, and the one server that it waits for."""
    from immutables import Map

    from ticdc_lab.ddl_core.server_state import Habits, Submit
    from ticdc_lab.simulate.ddl_service.run import simulate
    from ticdc_lab.simulate.ddl_service.world import ServiceSettings
    from ticdc_lab.simulate.faults import Ask

    slow = Map({"cluster1/tidb-2": Habits(load_us=2_000_000)})
    index = Ask(4_000_000, "cluster1/tidb-1", Submit("add index", "orders", "by_day", rows=20_000))
    run = simulate(ServiceSettings(workers=3, clusters=6, servers=3, slow=slow), faults=[index], until_us=24_000_000)
    return figures.schema_timeline(run.trace)


PICTURES: tuple[Callable[[], Figure], ...] = (
    guarantee_matrix, invariant_curve, watermark_tree, ownership_gantt, schema_timeline,
)  # fmt: skip


def photograph(fig: Figure, path: Path) -> None:
    """Draw a figure in Chromium, at its own height."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("No Chromium in the PATH; install one and run this again.")
    drawn = (
        fig.update_layout(width=WIDTH_PX)
        .go()
        .to_html(full_html=False, include_plotlyjs=False, config={"staticPlot": True, "displayModeBar": False})
    )
    style = f"<style>body {{ margin: {ABOVE_PX}px 0 0; background: white; }}</style>"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f"<meta charset='utf-8'>{style}<script>{library()}</script>{drawn}", encoding="utf-8")
        size = f"--window-size={WIDTH_PX},{int(fig.layout.height) + ABOVE_PX}"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=6000",
            size,
        ]
        options += [f"--user-data-dir={folder}/profile", f"--screenshot={path}"]
        subprocess.run([chromium, *options, page.as_uri()], check=True, capture_output=True)


def main(names: list[str]) -> None:
    """Make the pictures of these names, or all."""
    OUT.mkdir(exist_ok=True)
    for picture in PICTURES:
        if not names or picture.__name__ in names:
            path = OUT / f"{picture.__name__}.png"
            photograph(picture(), path)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
