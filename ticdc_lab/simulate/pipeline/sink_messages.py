"""Messages between captures and the downstream (node ``downstream``)."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.simulate.pipeline.tables import Change, FinishedJob

DOWNSTREAM = "downstream"


class Begin(NamedTuple):
    """A capture will write a table from ``start_ts`` on (exclusive); what an older writer staged above it is void."""

    table: int
    start_ts: int


SEVERAL = 0
"""Instead of a table: of all tables of the writer."""


class Write(NamedTuple):
    """Row changes in commit order, of one table or of :data:`SEVERAL`; ``id`` numbers them for the acknowledgement.

    Under ``exactly-once-snapshot`` they are staged and become visible with :class:`Publish`.
    """

    id: int
    table: int
    changes: tuple[Change, ...]


class Written(NamedTuple):
    """The downstream has them for good (staged: for good, though invisible); of a table, or all of the write."""

    id: int
    table: int


class Publish(NamedTuple):
    """The global checkpoint is persisted: staged changes of a table up to it become visible."""

    table: int
    checkpoint_ts: int


class Resolved(NamedTuple):
    """The owner's watermark for every partition: the global checkpoint_ts."""

    ts: int


class Execute(NamedTuple):
    """The owner wants a DDL executed (MQ: written to every partition); ``finished_ts`` is its commit_ts."""

    finished_ts: int
    job: FinishedJob


class Executed(NamedTuple):
    """The DDL is executed."""

    finished_ts: int


class Admin(NamedTuple):
    """The owner, with no table dispatched: from here on there are so many partitions; ``checkpoint_ts`` is resolved.

    Consumers drop what they hold above it. It comes again.
    """

    partitions: int
    checkpoint_ts: int


class AdminWritten(NamedTuple):
    """The Admin event is in every partition."""

    partitions: int
