"""How help is laid out: a command's own options first, commands by what they are for."""

from __future__ import annotations

from typing import Any

import click

COMMANDS = {
    "Start here": ("demo", "notebooks", "notebook", "open", "tso"),
    "Ask a log": (
        "survey", "settings", "report", "watermarks", "why", "transactions", "audit", "fsck", "compare", "table",
        "dispatch", "advise", "expand", "consumer",
    ),
    "Write, replay and follow logs": ("record", "events", "produce", "consume", "ingest", "workload"),
    "Models of the cluster, and the DDL service": ("simulate", "pd", "ddl-service"),
}  # fmt: skip
"""What the commands of the program are for, in the order of the help."""

_OWN, _SOURCE, _RUN = "Options", "How SOURCE is read", "How it runs"
_OF_ALL = ("json", "debug", "help")


class SourceOption(click.Option):
    """An option that says how the source is read: every command that reads one has it."""


class EngineOption(click.Option):
    """An option that says what runs a command."""


class Command(click.Command):
    """A command whose own options stand before those that many share."""

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
                    formatter.write_dl(shown_options)


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
