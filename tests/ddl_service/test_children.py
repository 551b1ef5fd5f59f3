"""What is begun beside a channel to etcd is left alone."""

from __future__ import annotations

import os
import subprocess
import sys

from begun_beside import BEGUN_BESIDE, WHOLE

ASKED = """
from ticdc_lab.ddl_service import etcd_rpc
import grpc

async def opened():
    return etcd_rpc.channel(etcd_rpc.Etcd("127.0.0.1:1"))

etcd_rpc.done(opened(), 5)
other = grpc.insecure_channel("127.0.0.1:1")

def ask():
    try:
        other.unary_unary("/a/b")(b"", timeout=0.2)
    except grpc.RpcError:
        pass
"""


def test_what_is_begun_beside_a_channel_is_not_aborted() -> None:
    """A child that Python forks, as Spark's Java is, where a channel to etcd was the first of the process."""
    plain = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED + BEGUN_BESIDE], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout == WHOLE, done.stdout
