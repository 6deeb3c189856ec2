"""A page of each lab, and a browser that writes down what it asks of the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from hvlab.report import data
from hvlab.report.write import browser as find_browser
from hvlab.report.write import write
from tests.unit import runs

PATIENCE_S = 60
# In CSS pixels; A4 within the page's margins.
WIDE, PHONE, PAPER = (1280, 900), (390, 844), (680, 960)
FLAGS = (
    "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """A Chromium of its own profile. ``folder`` takes what it saves."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = find_browser()
        for flag in (*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={folder / 'profile'}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        path = shutil.which("chromedriver")
        assert path, "there is no chromedriver in PATH: install the package chromium-driver"
        self.saved = folder / "saved"
        self.driver = webdriver.Chrome(options=options, service=Service(path))
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.saved))

    def command(self, name: str, **given: object) -> dict[str, object]:
        """Give Chromium's own protocol a command."""
        return self.driver.execute_cdp_cmd(name, given)

    def ask(self, script: str, *given: object) -> object:
        """Run a script in the page and return what it returns."""
        return self.driver.execute_script(f"return {script}", *given)

    def wait(self, script: str) -> None:
        """Wait until a script is true."""
        WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.1).until(lambda _: self.ask(script), script)

    def screen(self, size: tuple[int, int], *, phone: bool = False) -> None:
        """Make the screen of that size; a phone is touched and has denser dots."""
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 2 if phone else 1}
        self.command("Emulation.setDeviceMetricsOverride", **shape, mobile=phone)
        self.command("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, kind: str = "", *, scheme: str = "light") -> None:
        """Show the page as on paper (``print``), or in a colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", media=kind, features=features)

    def open(self, page: Path) -> None:
        """Open a page and wait until it is drawn."""
        self.driver.get(page.as_uri())
        self.wait("document.documentElement.dataset.drawn")

    def switch(self, lang: str) -> None:
        """Choose a language and wait until its plots are drawn."""
        self.ask(f"document.querySelector('[data-choose={lang}]').click()")
        self.wait(f"document.documentElement.dataset.drawn === '{lang}'")

    def errors(self) -> list[str]:
        """What the console said since the last time it was asked, but for plain messages."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The HTML report of lab7 (Chinese first) and of lab4 (English first)."""
    folder = tmp_path_factory.mktemp("pages")
    store = runs.store(folder / "results", runs.lab7(), runs.lab4())
    written = {}
    for name, run_id, lang in (("lab7", runs.LAB7, "zh"), ("lab4", runs.LAB4, "en")):
        found = data.read(store, run_id)
        written[name] = write(found, folder / f"{name}.html", output_format="html", lang=lang).path
    return written


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser with a wide, light screen and an empty console."""
    chromium.screen(WIDE)
    chromium.media()
    for log in ("browser", "performance"):
        chromium.driver.get_log(log)
    return chromium
