"""The trace of a run: what happened, in order, as a table that Spark, DuckDB and the figures read."""

from __future__ import annotations

import pyarrow as pa

TRACE = pa.schema(
    [
        ("run", pa.string()),  # a name the caller gives: scenario, variant, seed
        ("step", pa.int64()),  # rows of one event of the loop share it
        ("time_us", pa.int64()),  # virtual time
        ("node", pa.string()),  # capture-1, etcd, ...; an address (capture-1.2) from the second life on
        ("kind", pa.string()),  # one of KINDS
        ("peer", pa.string()),  # the other end of a message
        ("message", pa.string()),  # the name of the message, timer or command: DispatchTable, tick
        ("message_id", pa.int64()),  # joins sent, received, lost, ...; a duplicate has its original's
        ("detail", pa.string()),  # the message's fields as JSON, with the protocol's own names
        ("subject", pa.string()),  # of changed and decided: table:7, checkpoint, owner, global-checkpoint, ...
        ("before", pa.string()),  # of changed
        ("after", pa.string()),  # of changed; of decided what was chosen
        ("because", pa.string()),  # a sentence
        ("rejected", pa.list_(pa.struct([("candidate", pa.string()), ("because", pa.string())]))),  # of decided
    ]
)
"""One row an event or an output of it. Sorted by step; rows of a step stand in the order in which they came out."""

KINDS = (
    "started",  # a node begins
    "sent",
    "received",
    "lost",  # the network dropped it for good (because: loss, partition, the node is down)
    "resent",  # the transport tries again
    "refused",  # the transport took nothing ("try again")
    "ignored",  # received and without effect; because says why (stale owner, old epoch)
    "fired",  # a timer; only with a full trace
    "asked",  # a user, a load or a fault asked the node for something
    "changed",
    "decided",
    "crashed",
    "restarted",
    "paused",
    "resumed",
    "parted",  # a partition begins; peer is the other side
    "healed",
    "violated",  # an invariant: subject is its name, because tells it; the run ends here
    "stopped",  # the end: because says why
)
