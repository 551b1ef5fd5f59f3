"""The command line: thin; every command is one public function (docs/contracts.md)."""

from __future__ import annotations

from ticdc_lab.cli import (
    check_commands,
    consumer_commands,
    ddl_client_commands,
    ddl_commands,
    dispatch_commands,
    log_commands,
    open_commands,
    pd_commands,
    record_commands,
    report_commands,
    simulate_commands,
    start_commands,
    watch_commands,
    workload_commands,
)
from ticdc_lab.cli.common import main

__all__ = [
    "check_commands", "consumer_commands", "ddl_client_commands", "ddl_commands", "dispatch_commands", "log_commands",
    "main", "open_commands", "pd_commands", "record_commands", "report_commands", "simulate_commands", "start_commands",
    "watch_commands", "workload_commands",
]  # fmt: skip
