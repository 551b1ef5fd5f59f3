"""How help is laid out: a command's own options first, commands by what they are for."""

from __future__ import annotations

import re
from typing import Any

import click

COMMANDS = {
    "Start here": ("demo", "workbench", "notebooks", "notebook", "open", "tso", "options"),
    "Ask a log": (
        "survey", "settings", "report", "watermarks", "why", "transactions", "audit", "fsck", "compare", "table",
        "dispatch", "advise", "expand", "consumer",
    ),
    "Write, replay and follow logs": ("record", "watch", "events", "produce", "consume", "ingest", "workload"),
    "Models of the cluster, and the DDL service": ("simulate", "pd", "ddl-service"),
}  # fmt: skip
"""What the commands of the program are for, in the order of the help."""

EXAMPLES = {
    "demo": "demo",
    "workbench": "workbench topic.jsonl.gz",
    "notebooks": "notebooks my-notebooks",
    "notebook": "notebook 05 topic.jsonl.gz --out page.html",
    "open": "open audit-state.json --out page.html",
    "tso": "tso 470603993791332352",
    "options": "options",
    "survey": "survey kafka://127.0.0.1:9092/orders",
    "report": "report topic.jsonl.gz --out report.html",
    "watermarks": "watermarks topic.jsonl.gz",
    "why": "why topic.jsonl.gz --stall 30",
    "transactions": "transactions topic.jsonl.gz --out transactions.jsonl",
    "audit": "audit topic.jsonl.gz --json",
    "fsck": "fsck storage-sink-folder",
    "compare": "compare before.jsonl.gz after.jsonl.gz",
    "table": "table topic.jsonl.gz --table shop.orders --out orders.parquet",
    "dispatch": "dispatch topic.jsonl.gz --strategy table --partitions 8 --out placed.jsonl",
    "advise": "advise topic.jsonl.gz --partitions 3,8,16",
    "expand": "expand topic.jsonl.gz --after 8",
    "consumer": "consumer topic.jsonl.gz",
    "watch run": "watch run kafka://127.0.0.1:9092/orders --state watch-orders --listen 127.0.0.1:10082",
    "watch status": "watch status --state watch-orders",
    "watch findings": "watch findings --state watch-orders",
    "watch show": "watch show 3 --state watch-orders",
    "watch ignore": "watch ignore 3 --state watch-orders",
    "watch resolve": "watch resolve 3 --state watch-orders",
    "watch rules": "watch rules --out ticdc-lab-watch.yml",
    "watch dashboard": "watch dashboard --out ticdc-lab-watch.json",
    "settings": "settings topic.jsonl.gz",
    "record": "record kafka://127.0.0.1:9092/orders --out orders.jsonl.gz",
    "events": "events topic.jsonl.gz --out events.parquet",
    "produce": "produce topic.jsonl.gz --to open-protocol --strategy table --partitions 4 --out new.jsonl.gz",
    "consume": "consume topic.jsonl.gz --mode row --sink duckdb:///replica.duckdb",
    "ingest": "ingest kafka://127.0.0.1:9092/orders --out lake",
    "workload": "workload bank --rows 10000 --out bank.jsonl.gz",
    "simulate scheduler": "simulate scheduler failover.yaml --seed 7",
    "simulate pipeline": "simulate pipeline pipeline.yaml --seed 7",
    "simulate changefeeds": "simulate changefeeds changefeeds.yaml --seed 7",
    "simulate ddl-service": "simulate ddl-service ddl.yaml --seed 7",
    "simulate pd": "simulate pd cluster.yaml --seed 7",
    "pd replay": "pd replay records.jsonl",
    "pd explain": "pd explain --from pd-ctl-folder",
    "ddl-service serve": "ddl-service serve --store ddl-store",
    "ddl-service audit": "ddl-service audit --store ddl-store",
    "ddl-service register": "ddl-service register cluster-1 tikv://192.168.1.100:2379",
    "ddl-service remove": "ddl-service remove cluster-1",
    "ddl-service submit": 'ddl-service submit cluster-1 "add index" orders by_time --rows 1000',
    "ddl-service show-ddl": "ddl-service show-ddl cluster-1",
    "ddl-service go-on": "ddl-service go-on --etcd 127.0.0.1:2379 --from mirror",
    "ddl-service cancel": "ddl-service cancel cluster-1 7",
    "ddl-service list": "ddl-service list",
    "ddl-service workers": "ddl-service workers",
}  # fmt: skip
"""How a command may be called."""

_NEAR, _MEANT = 0.82, 2
"""How alike an option must be to be suggested, and how many are by their help."""
_OWN, _SOURCE, _RUN = "Options", "How SOURCE is read", "How it runs"
_OF_ALL = ("json", "debug", "help")


class SourceOption(click.Option):
    """An option for reading the source: every command that reads one has it."""


class EngineOption(click.Option):
    """An option that chooses what runs a command."""


class Command(click.Command):
    """A command whose own options are explained, those that many share named; an example stands above them."""

    explains_all = False
    """Whether the options that many share are explained too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments; an unknown option gets suggestions by its name, or by a word of the help."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from difflib import get_close_matches  # here: a help needs none

            name = error.option_name.lstrip("-").lower()
            own = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.hidden]
            names = {opt: p for p in own for opt in p.opts if opt.startswith("--")}
            near = [n for n in names if len(name) > 1 and (n[2:].startswith(name) or name.startswith(f"{n[2:]}-"))]
            near = near or get_close_matches(f"--{name}", names, n=2, cutoff=_NEAR)
            word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
            near = near or [n for n, p in names.items() if word.search(p.help or "")][:_MEANT]
            meant = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
            raise click.UsageError(f"No such option {error.option_name!r}.{meant}", ctx) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what it does, and an example."""
        super().format_help_text(ctx, formatter)
        program, _, name = ctx.command_path.partition(" ")
        if name in EXAMPLES:
            with formatter.section("Example"):
                formatter.write_text(f"{program} {EXAMPLES[name]}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections."""
        sections: dict[str, list[tuple[str, str]]] = {_OWN: [], _SOURCE: [], _RUN: []}
        for parameter in self.get_params(ctx):
            shown = parameter.get_help_record(ctx)
            if shown is not None and isinstance(parameter, click.Option):
                sections[_section(parameter)].append(shown)
        for name, shown_options in sections.items():
            if shown_options:
                with formatter.section(name):
                    if name == _OWN or self.explains_all:
                        formatter.write_dl(shown_options)
                    else:
                        names = [record[0].split()[0] for record in shown_options]
                        formatter.write_text(f"{', '.join(names)}. See: ticdc-lab options")


def _section(parameter: click.Parameter) -> str:
    if isinstance(parameter, SourceOption):
        return _SOURCE
    shared = isinstance(parameter, EngineOption) or (parameter.opts and parameter.opts[0].lstrip("-") in _OF_ALL)
    return _RUN if shared else _OWN


class Group(click.Group):
    """Commands of one subject."""

    command_class = Command


class Program(click.Group):
    """All commands, by what they are for."""

    command_class = Command
    group_class = Group

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its first sentence."""
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for title, names in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{n:{width}}", self.commands[n].get_short_help_str(limit)) for n in names])


class Moment(click.ParamType[int]):
    """A TSO, or a time in UTC, as a TSO."""

    name = "MOMENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read what was written."""
        from ticdc_lab.errors import SourceError
        from ticdc_lab.events.sample import moment

        if isinstance(value, int):
            return value
        try:
            ts = moment(value)
        except SourceError as error:
            self.fail(f"{error.message} {error.hint}", param, ctx)
        if ts is None:
            self.fail("it is empty", param, ctx)
        return ts
