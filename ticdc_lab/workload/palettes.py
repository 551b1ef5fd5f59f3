"""Texts, documents and bytes that values are chosen from: what encoders must escape, and NULL, are among them."""

from __future__ import annotations

from ticdc_lab.workload.columns import hexed

NAMES = (
    "Ada Lovelace",
    "李明",
    "Søren Åkerlund",
    "José Muñoz",
    "Ольга",
    "O'Brien",
    "नेहा",
    'Max "M" Power',
    "ﷺ 😀",
    "X",
)
NOTES = (None, "", "ok", "bitte prüfen", "价格\t上调", "line\nbreak", "back\\slash", "日本語のメモ", "a" * 60, "€ 5,00")
DOCUMENTS = (None, "{}", '{"a": [1, 2.5, null]}', '{"名": "值", "ok": true}', '"text"', '[{"x": "\\"y\\""}]', "-17")
BLOBS = (None, *hexed(64, 24))
