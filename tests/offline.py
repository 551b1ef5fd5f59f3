"""A page in a browser without a network: what it draws, what it asks for, what its console says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

DRAWN = (
    "return [document.querySelectorAll('.plotly-graph-div').length, [...document.querySelectorAll('.plotly-graph-div')]"
)
DRAWN += ".filter(g => g._fullLayout && g.querySelector('.main-svg').getBoundingClientRect().height > 50).length]"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1000,1000",
)  # fmt: skip


class Looked:
    """An open page."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser
        self.asked_for: list[str] = []
        self.said: list[str] = []

    def drawn(self, patience_s: float = 30) -> tuple[int, int]:
        """Plots that the page has, and those that are drawn; waits for the rest."""
        until = time.monotonic() + patience_s
        while True:
            there, drawn = self.browser.execute_script(DRAWN)
            if there == drawn or time.monotonic() > until:
                return there, drawn
            time.sleep(0.2)

    def complaints(self) -> list[str]:
        """Errors of the console, and what was asked for from a network, since the page was opened."""
        self.said += [m["message"] for m in self.browser.get_log("browser") if m["level"] == "SEVERE"]
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            url = message["params"].get("request", {}).get("url", "")
            if message["method"] == "Network.requestWillBeSent" and url.startswith(("http:", "https:")):
                self.asked_for.append(url)
        return self.said + self.asked_for

    def move_slider(self, plot: str) -> str:
        """Drag the slider of a plot to its end; what the plot shows afterwards as its current value."""
        grip, rail = (
            self.browser.find_element(By.CSS_SELECTOR, f"#{plot} .slider-{part}-rect")
            for part in ("grip", "rail-touch")
        )
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", grip)
        right = rail.rect["x"] + rail.rect["width"] - grip.rect["x"] - grip.rect["width"] / 2
        ActionChains(self.browser).drag_and_drop_by_offset(grip, int(right), 0).perform()
        return self.browser.find_element(By.CSS_SELECTOR, f"#{plot} .slider-label").text


@contextmanager
def opened(*pages: Path) -> Iterator[Looked]:
    """The first page; ``.browser.get`` opens another."""
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver")) as browser:
        browser.get(pages[0].as_uri())
        yield Looked(browser)
