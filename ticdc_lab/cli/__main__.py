"""``python -m ticdc_lab.cli``."""

from __future__ import annotations

from ticdc_lab.cli import main

main()
