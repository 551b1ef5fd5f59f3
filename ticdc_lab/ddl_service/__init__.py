"""DDL as a Service, really running: worker processes with the HTTP API of TiDB's proposal over a store that they share.

The worker is the machine of :mod:`ticdc_lab.simulate.ddl_service`, unchanged; here its messages go to a real store, and
time is the clock's.
"""

from __future__ import annotations

from ticdc_lab.ddl_service.serving import Listening, running, serve

__all__ = ["Listening", "running", "serve"]
