"""Apache Spark comes when a command first needs it: in a checkout the command waits for the set-up and starts again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click

import ticdc_lab
from ticdc_lab.errors import SparkMissingError

_TRIED = "TICDC_LAB_SPARK_SET_UP"


def missing_spark(error: Exception) -> SparkMissingError | None:
    """Give the error if it says that Spark is not installed, and an import that fails for it in the same words."""
    if isinstance(error, SparkMissingError):
        return error
    if isinstance(error, ImportError) and str(error.name).split(".")[0] in ("pyspark", "py4j", "delta"):
        from ticdc_lab.engine.choosing import SPARK_SETUP

        return SparkMissingError(f"Apache Spark is needed, but not installed: {error.msg}.", hint=SPARK_SETUP)
    return None


def checkout_script() -> Path | None:
    """Give the ``lab`` of the checkout whose own ``.venv`` this is; None anywhere else, and after one attempt."""
    lab = Path(ticdc_lab.__file__).parents[1] / "lab"
    ours = lab.is_file() and Path(sys.prefix).resolve() == (lab.parent / ".venv").resolve()
    return lab if ours and _TRIED not in os.environ else None


def set_up_and_start_again(lab: Path, error: SparkMissingError) -> NoReturn:
    """Say that Spark is being installed and how long it takes, install it, and start this very command again.

    All that is said goes to stderr: stdout belongs to the command's answer.
    """
    click.echo(f"ticdc-lab: {error.message}\nInstalling it now, once, in one to three minutes (450 MB).", err=True)
    code = subprocess.call([sys.executable, str(lab), "setup", "--spark"], stdout=sys.stderr.fileno())
    if code != 0:
        sys.exit(code)
    os.environ[_TRIED] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
