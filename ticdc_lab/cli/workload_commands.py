"""The command that makes logs of any size."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from ticdc_lab.cli import completion
from ticdc_lab.cli.common import engine_options, guarded, json_flag, main, print_json, session_of
from ticdc_lab.engine.running import shown
from ticdc_lab.workload.settings import KINDS, Workload

_SETTABLE = {f.name: f.type for f in fields(Workload) if f.name not in ("kind", "rows", "seed")}

_DEFAULTS = ", ".join(
    f.name if f.default is None else f"{f.name}={f.default}" for f in fields(Workload) if f.name in _SETTABLE
)


@main.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--rows", type=int, default=100_000, show_default=True, help="About how many row changes; at least 1000.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed makes the same log.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help=f"Another setting, may be repeated, with its default: {_DEFAULTS}. See docs/workload.md.",
)  # fmt: skip
@click.option(
    "--protocol",
    shell_complete=completion.written_protocols,
    default="canal-json",
    show_default=True,
    help="open-protocol, canal-json or mq-v1.",
)
@click.option(
    "--strategy",
    shell_complete=completion.strategies,
    default="index-value",
    show_default=True,
    help="table, index-value or ts.",
)
@click.option("--partitions", type=int, default=3, show_default=True, help="Number of partitions of the topic.")
@click.option("--out", required=True, help="FILE (.gz), DIR.parquet, DIR/ (Delta), kafka://HOST:PORT/TOPIC.")
@click.option("--truth", help="Also write the true events: FILE (JSON Lines, .gz), DIR.parquet or DIR/ (Delta).")
@engine_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@json_flag
@guarded
def workload(
    kind: str, rows: int, seed: int, settings: tuple[str, ...], protocol: str, strategy: str, partitions: int,
    out: str, truth: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a log of any size with known content.

    bank: transfers that keep a total. tpcc: new orders, payments and deliveries. hot-keys: rows chosen by a zipf law.
    """
    from ticdc_lab.cli.arguments import check_outs
    from ticdc_lab.codecs.registry import require_written

    require_written(protocol)
    asked = Workload(kind=kind, rows=rows, seed=seed, **_given(settings))
    check_outs(out, truth)
    check_outs(None, out)
    from ticdc_lab.encode import encoder
    from ticdc_lab.encode.export import write
    from ticdc_lab.encode.produce import write_topic
    from ticdc_lab.engine import counted, is_sail
    from ticdc_lab.engine.choosing import BYTES_A_ROW, too_large_to_sort
    from ticdc_lab.sources import local_path
    from ticdc_lab.workload import generate, generate_into, log_of

    lost = {name: why for name, why in encoder(protocol).lost.items() if name not in ("admin", "incomplete")}
    spark = session_of(out, needs_spark=too_large_to_sort(rows * BYTES_A_ROW))
    messages = log_of(spark, asked, protocol=protocol, strategy=strategy, partitions=partitions)
    messages, written = counted(messages)
    so_far = (lambda: (written(), max(rows, written()))) if is_sail(spark) else None
    with shown(spark, f"writing {protocol}", measured=so_far):
        write_topic(messages, out)
    if truth is not None:
        with shown(spark, "writing the truth"):
            place = local_path(truth)
            if place is not None and place.suffix == ".parquet":
                generate_into(spark, asked, place)
            else:
                write(generate(spark, asked), truth)
    if as_json:
        print_json({"kind": kind, "rows": rows, "seed": seed, "protocol": protocol, "partitions": partitions,
                    "written": written(), "out": out, "truth": truth, "lost": lost})  # fmt: skip
        return
    click.echo(f"{written()} messages of {protocol} in {partitions} partitions: {out}")
    if truth is not None:
        click.echo(f"the truth: {truth}")
    click.echo(f"  {protocol} does not keep {', '.join(lost)} as they are; the reasons: --json", err=True)


def _given(settings: tuple[str, ...]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or name not in _SETTABLE:
            raise click.BadParameter(f"{text!r}; expected one of {', '.join(_SETTABLE)} = VALUE", param_hint="--set")
        try:
            given[name] = float(value) if _SETTABLE[name] == "float" else int(value)
        except ValueError:
            raise click.BadParameter(f"{text!r}; expected a number", param_hint="--set") from None
    return given
