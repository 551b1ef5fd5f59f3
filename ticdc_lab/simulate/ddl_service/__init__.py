"""DDL as a Service: workers that run the DDL of many registered clusters.

Nodes: ``pd`` (the service's own store), ``ddl-service-node-1``, ... (workers), and of each registered cluster its store
(named by its ``store_addr``) and its tidb-servers. Workers and servers are pure machines; the kernel drives them here,
and :mod:`ticdc_lab.ddl_service` drives the same workers over a real store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.simulate.ddl_service.run import simulate
    from ticdc_lab.simulate.ddl_service.world import Settings

__all__ = ["Settings", "simulate"]

lazily(__name__, __all__, {"Settings": "world", "simulate": "run"})
