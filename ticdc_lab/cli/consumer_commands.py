"""The command that asks what a consumer would have shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import (
    CLEAN,
    FINDINGS,
    decoded,
    facts_of,
    json_flag,
    main,
    print_json,
    print_table,
    source_options,
)
from ticdc_lab.engine.running import shown

if TYPE_CHECKING:
    from ticdc_lab.consumer.consumption import Scenario
    from ticdc_lab.consumer.listeners import Listeners
    from ticdc_lab.consumer.log import NarrowLog
    from ticdc_lab.consumer.model import Run
    from ticdc_lab.consumer.policy import Policy


class _PolicyName(click.ParamType[str]):
    """A name of POLICIES; they come with the whole model of a consumer, so only when somebody asks for them."""

    name = "policy"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """As of a choice."""
        return self._choice().get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As a choice does."""
        return self._choice().convert(value, param, ctx)

    def _choice(self) -> click.Choice[str]:
        from ticdc_lab.consumer.policy import POLICIES

        return click.Choice(tuple(POLICIES))


@main.command()
@source_options
@click.option(
    "--policy",
    type=_PolicyName(),
    multiple=True,
    help="A consumer's rules; may be repeated; all if left out.",
)
@click.option("--strategy", help="Lay the log out by this dispatcher first; as recorded if left out.")
@click.option("--partitions", type=int, default=0, help="With --strategy: the number of partitions.")
@click.option(
    "--per-second", type=click.IntRange(1), default=10_000, show_default=True, help="Messages a listener reads."
)
@click.option("--speed", multiple=True, metavar="PARTITION=N", help="Another speed of one listener.")
@click.option("--pause", multiple=True, metavar="PARTITION=FROM_MS:UNTIL_MS", help="A listener that reads nothing.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Partition p is in p modulo N.")
@click.option("--crash", multiple=True, metavar="PROCESS=AT_MS:BACK_MS", help="A process that dies and comes back.")
@click.option("--write-ms", type=click.IntRange(0), default=0, help="What one transaction of the target takes.")
@click.option(
    "--examples", type=click.IntRange(0), default=1, show_default=True, help="Of each kind, in the fewest messages."
)
@click.option("--watch", default="", metavar="COLUMN", help="Also follow a sum over all rows, such as a balance.")
@json_flag
def consumer(source: str, as_json: bool, examples: int, watch: str, **where: Any) -> None:
    """What would a consumer have shown that upstream never had? Exit 0 nothing, 1 something, 2 could not run.

    Times are the consumer's own: it begins at 0 and finds the whole log there.
    """
    import pandas as pd

    from ticdc_lab.answers.consumers import shown_wrong, watched_sum
    from ticdc_lab.consumer.consumption import RECORDED, Scenario, judged, layout
    from ticdc_lab.consumer.invariant import invariant_curve, measure_of
    from ticdc_lab.consumer.listeners import Listeners
    from ticdc_lab.consumer.model import run
    from ticdc_lab.consumer.policy import POLICIES
    from ticdc_lab.consumer.study import Study
    from ticdc_lab.figures import anomaly_matrix

    how = _listeners(where)
    if bool(where["strategy"]) != bool(where["partitions"]):
        raise click.UsageError("expected --strategy and --partitions together: they lay the log out")
    policies = [POLICIES[p] for p in where["policy"] or POLICIES]
    strategy, partitions = where["strategy"] or RECORDED, where["partitions"]
    with decoded(source, where) as (spark, log):
        log.require_commit_ts("a consumer's run")
        with shown(spark, "measuring"):
            measure: dict[str, Any] = {"measure": measure_of(watch)} if watch else {}
            study = Study.of(log.events, strategies=[strategy] if where["strategy"] else [], **measure)
        speeds = "even" if how == Listeners(per_second=how.per_second) else "as given"
        scenarios = [Scenario(p, strategy, partitions, how, speeds) for p in policies]
        laid = layout(study, scenarios[0])
        _require_there(how, laid)
        found, left, printed, curves = [], [], [], []
        for s in scenarios:
            done = run(laid, s.policy, how)
            found += judged(done, laid, s)
            curves += [invariant_curve(done, laid, label=s.policy.name)] if watch else []
            left.append(_left(done, s.policy))
            printed += _examples(done, laid, s, examples) if examples else []
        finding = shown_wrong(anomaly_matrix(pd.DataFrame(found)), watched_sum(curves, watch) if watch else None)
        if as_json:
            print_json(facts_of(log) | {"answer": finding, "matrix": found, "anomalies": printed, "left": left})
        else:
            click.echo(finding)
            _print(found, printed, left)
    sys.exit(FINDINGS if any(one["n"] for one in found) else CLEAN)


def _listeners(where: dict[str, Any]) -> Listeners:
    from ticdc_lab.consumer.listeners import Crash, Listeners, Pause

    return Listeners(
        per_second=where.pop("per_second"),
        speeds={p: n for p, (n,) in _numbers("--speed", where.pop("speed"), 1)},
        processes=where.pop("processes"),
        pauses=tuple(Pause(p, a * 1000, b * 1000) for p, (a, b) in _numbers("--pause", where.pop("pause"), 2)),
        faults=tuple(Crash(p, a * 1000, b * 1000) for p, (a, b) in _numbers("--crash", where.pop("crash"), 2)),
        write_us=where.pop("write_ms") * 1000,
    )


def _numbers(option: str, given: Sequence[str], n: int) -> list[tuple[int, list[int]]]:
    """``1=20:30`` as (1, [20, 30])."""
    out = []
    for text in given:
        who, _, rest = text.partition("=")
        values = rest.split(":")
        if not who.isdigit() or len(values) != n or not all(map(str.isdigit, values)):
            raise click.BadParameter(f"{text!r}; expected NUMBER={':'.join(['NUMBER'] * n)}", param_hint=option)
        numbers = [int(v) for v in values]
        if numbers != sorted(numbers) or (n == 1 and numbers[0] < 1):
            raise click.BadParameter(f"{text!r}; expected rising numbers, and a speed above 0", param_hint=option)
        out.append((int(who), numbers))
    return out


def _require_there(how: Listeners, log: NarrowLog) -> None:
    """Every partition and process that an option names is there."""
    from ticdc_lab.consumer.listeners import Crash

    partitions = {p.partition for p in log.parts}
    crashed = {f.process for f in how.faults if isinstance(f, Crash)}
    named: dict[str, set[Any]] = {
        "partition": {*how.speeds, *(p.partition for p in how.pauses)} - partitions,
        "process": {p for p in crashed if p >= how.processes},
    }
    for what, unknown in named.items():
        if unknown:
            which = ", ".join(map(str, sorted(unknown)))
            raise click.UsageError(f"there is no {what} {which}; the log has partitions {sorted(partitions)}")


def _left(done: Run, policy: Policy) -> dict[str, Any]:
    """Row changes that a consumer did not come to write."""
    pending = sum(o == "pending" for o in done.deliveries["outcome"].to_pylist())
    return {"policy": policy.name, "pending": pending, "unread": len(done.unread)}


def _examples(done: Run, log: NarrowLog, scenario: Scenario, most: int) -> list[dict[str, Any]]:
    """The first anomalies of each kind, each with the fewest messages that show it."""
    from ticdc_lab.consumer.anomalies import anomalies
    from ticdc_lab.consumer.smallest import smallest

    fields = ("topic", "partition", "offset", "kind", "commit_ts")
    out = []
    for a in anomalies(done, log, most=most).to_pylist():
        few = smallest(log, scenario.policy, scenario.listeners, a).events.sort_by("arrival")
        out.append({"policy": scenario.policy.name, **a, "messages": few.select(fields).to_pylist()})
    return out


def _print(found: list[dict[str, Any]], printed: list[dict[str, Any]], left: list[dict[str, Any]]) -> None:
    for one in left:
        if one["pending"] or one["unread"]:
            click.echo(
                f"{one['policy']}: {one['pending']} row changes are still buffered at the end, above what watermarks "
                f"release; {one['unread']} lie behind a DDL at which a listener stands for good."
            )
    told = [
        {**r, "share of time": f"{r['wrong_us'] / r['total_us']:.1%}" if r["total_us"] else "-"}
        for r in found
        if r["n"]
    ]
    if not told:
        click.echo("Upstream once was as the downstream was, after every transaction of the downstream.")
        return
    print_table(told, "policy", "strategy", "partitions", "kind", "n", "share of time")
    for a in printed:
        until = "for good" if a["ends_us"] is None else f"until {a['ends_us'] / 1000:.1f} ms"
        click.echo(f"\n{a['policy']}: {a['guarantee']}, {a['table']}, from {a['begins_us'] / 1000:.1f} ms {until}")
        click.echo(f"  {a['message']}")
        for m in a["messages"]:
            click.echo(f"    {m['topic']}/{m['partition']} offset {m['offset']}: {m['kind']} {m['commit_ts']}")
