"""axe-core, which looks for what keeps people with a screen reader, a keyboard or weak eyes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from selenium import webdriver

_RUN = """
const [within, without, rules, done] = arguments;
axe.run({include: [[within]], exclude: without.map((part) => [part])}, {runOnly: rules, resultTypes: ['violations']})
  .then((found) => done(JSON.stringify(found.violations.map((v) => v.nodes.map((n) => [v.id, n.html.slice(0, 200)])))));
"""

RULES = ("wcag2a", "wcag2aa", "wcag21aa", "best-practice")
COLOURS = ("cat.color",)
"""What another colour scheme can change."""

DRAWN = "svg"
"""What takes half of axe's time, and whose colours it cannot determine: one look is enough."""

_PLOTLYS = 'class="column-block"'
"""plotly.js calls the columns of each table the same."""


@cache
def _script() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def barriers(
    browser: webdriver.Chrome, within: str = "html", *, without: Sequence[str] = (), rules: Sequence[str] = RULES
) -> list[tuple[str, str]]:
    """What is wrong on the page that is shown, or in the part that a selector names: the rule, and where."""
    browser.execute_script(_script())
    found = json.loads(browser.execute_async_script(_RUN, within, without, rules))
    each = [(str(rule), str(where)) for nodes in found for rule, where in nodes]
    return [(rule, where) for rule, where in each if not (rule == "duplicate-id" and _PLOTLYS in where)]
