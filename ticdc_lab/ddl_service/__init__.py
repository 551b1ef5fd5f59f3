"""DDL as a Service, really running: worker processes with the HTTP API of TiDB's proposal over a store that they share.

The worker is the machine of :mod:`ticdc_lab.ddl_core`, as in the model; here its messages go to a real store, and time
is the clock's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.ddl_service.client import Client
    from ticdc_lab.ddl_service.serving import Listening, running, serve
    from ticdc_lab.ddl_service.sqlite_store import SqliteStore
    from ticdc_lab.ddl_service.submitting import submitted
    from ticdc_lab.ddl_service.watch import ended, fleet_watch, job_watch, settled

__all__ = [
    "Client", "Listening", "SqliteStore", "ended", "fleet_watch", "job_watch", "running", "serve", "settled",
    "submitted",
]  # fmt: skip

lazily(__name__, __all__)
