"""Children that Python forks, as Spark's Java is, while something else of the process is under way."""

from __future__ import annotations

BEGUN_BESIDE = """
import signal, subprocess, threading

def ignore():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

def keep_asking():
    while not over.is_set():
        ask()

over, asking = threading.Event(), threading.Thread(target=keep_asking)
asking.start()
ends = [subprocess.run(["true"], preexec_fn=ignore, capture_output=True) for _ in range(200)]
over.set()
asking.join()
print({(e.returncode, e.stderr) for e in ends})
"""
"""Code that begins them beside ``ask``, which is called over and over, and prints how they ended."""

WHOLE = "{(0, b'')}\n"
"""What it prints where none was aborted."""
