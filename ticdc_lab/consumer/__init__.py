"""What a consumer makes of a change log: a model of it, and real ones that replay the log into databases."""

from __future__ import annotations
