"""The replication pipeline, from a transaction in TiKV to a row downstream.

Nodes: ``tidb`` (clients of TiKV), ``pd`` (where regions are), ``tikv-1``, ... (stores with their CDC component),
``etcd`` and ``capture-1``, ... (the scheduler's, with a data path in each capture), ``downstream``.
"""
