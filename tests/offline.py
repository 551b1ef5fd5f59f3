"""A page in a browser without a network: what it draws, what it asks for, what its console shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

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

    def drawn(self, patience_s: float = 300) -> tuple[int, int]:
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
        """Move the slider of a plot to its end with the keyboard; what is beside it afterwards."""
        bar = self.browser.find_element(By.CSS_SELECTOR, f"#{plot} + .ticdc-steps")
        bar.find_element(By.CSS_SELECTOR, "input").send_keys(Keys.END)
        return self.slider_of(plot)

    def slider_of(self, plot: str) -> str:
        """What the slider of a plot is at."""
        label = self.browser.find_element(By.CSS_SELECTOR, f"#{plot} + .ticdc-steps label")
        return " ".join(part.text for part in label.find_elements(By.CSS_SELECTOR, "span, output"))

    def has_slider(self, plot: str) -> bool:
        """Whether there is one."""
        return bool(self.browser.find_elements(By.CSS_SELECTOR, f"#{plot} + .ticdc-steps input"))


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
