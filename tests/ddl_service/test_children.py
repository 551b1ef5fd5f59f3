"""What is begun beside a channel to etcd is left alone."""

from __future__ import annotations

import os
import subprocess
import sys

BEGUN = """
import signal, subprocess, threading
from ticdc_lab.ddl_service import etcd_rpc
import grpc

async def opened():
    return etcd_rpc.channel(etcd_rpc.Etcd("127.0.0.1:1"))

def ignore():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

def ask():
    while not over.is_set():
        try:
            other.unary_unary("/a/b")(b"", timeout=0.2)
        except grpc.RpcError:
            pass

etcd_rpc.done(opened(), 5)
over, other = threading.Event(), grpc.insecure_channel("127.0.0.1:1")
asking = threading.Thread(target=ask)
asking.start()
ends = [subprocess.run(["true"], preexec_fn=ignore, capture_output=True) for _ in range(400)]
over.set()
asking.join()
print({(e.returncode, e.stderr) for e in ends})
"""


def test_what_is_begun_beside_a_channel_is_not_aborted() -> None:
    """A child that Python forks, as Spark's Java is, where a channel to etcd was the first of the process."""
    plain = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-c", BEGUN], env=plain, capture_output=True, text=True, check=True)
    assert done.stdout == "{(0, b'')}\n", done.stdout
