"""ticdc_lab: from a TiCDC change log to a proved answer.

What most people need is here; each name is imported when it is first used.
"""

from __future__ import annotations

from os import environ as _environ
from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

# Else gRPC restarts its threads between fork and exec of a child, where their files are closed, and aborts it, as
# Spark's Java. It looks when it is imported and never again, and here nothing of ours has imported it.
_environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

if TYPE_CHECKING:
    from ticdc_lab import figures, simulate, widgets
    from ticdc_lab.audit import audit
    from ticdc_lab.consumer.replay import open_sink, replay
    from ticdc_lab.consumer.study import Study
    from ticdc_lab.dispatch.advise import advise
    from ticdc_lab.dispatch.dispatching import dispatch
    from ticdc_lab.dispatch.whatif import WhatIf
    from ticdc_lab.encode.export import write
    from ticdc_lab.encode.produce import produce
    from ticdc_lab.engine.failures import in_words
    from ticdc_lab.engine.sessions import engine_of, session
    from ticdc_lab.errors import TiCDCLabError
    from ticdc_lab.events.sample import Sample
    from ticdc_lab.facts.stalls import stall_causes
    from ticdc_lab.facts.watermarks import partition_watermarks, topic_watermarks
    from ticdc_lab.lake.ingest import ingest
    from ticdc_lab.log import Log, open, summarise, survey
    from ticdc_lab.repartition.expand import expand
    from ticdc_lab.report import report
    from ticdc_lab.sources.change_log import ChangeLog
    from ticdc_lab.sources.load import load
    from ticdc_lab.sources.provenance import provenance
    from ticdc_lab.tables import table_as_of, table_history
    from ticdc_lab.transactions import transactions
    from ticdc_lab.watch.starting import watch
    from ticdc_lab.widgets.workbench import workbench
    from ticdc_lab.workload import Workload, generate

__all__ = [
    "ChangeLog", "Log", "Sample", "Study", "TiCDCLabError", "WhatIf", "Workload", "advise", "audit", "dispatch",
    "engine_of", "expand", "figures", "generate", "in_words", "ingest", "load", "open", "open_sink",
    "partition_watermarks", "produce", "provenance", "replay", "report", "session", "simulate", "stall_causes",
    "summarise", "survey", "table_as_of", "table_history", "topic_watermarks", "transactions", "watch", "widgets",
    "workbench", "write",
]  # fmt: skip

lazily(__name__, __all__)
