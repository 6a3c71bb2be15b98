"""The live page in a real browser: headless Chromium, driven as a reader would."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.watch import Dashboard
from tests.command import psp

pytest.importorskip("selenium", reason="the browser is driven by selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed")

D, K = 10, 3
NAMES = [f"sensor {i}" for i in range(D)]
NAMES[2] = "<script>window.hacked = 1</script>"
NAMES[5] = "<img src=x onerror='window.hacked = 2'>"
SITES = ["north", "south", "<b onclick=alert(1)>east</b>"]
_PATIENCE = 120.0


def rows_of(n: int, changed: bool = False, seed: int = 0) -> Floats:
    """Gaussian rows near a subspace, or near another one."""
    rng = np.random.default_rng([seed, changed])
    base = np.random.default_rng(7 + changed).standard_normal((K, D)) * np.array([[6.0], [4.0], [3.0]])
    return np.asarray(rng.standard_normal((n, K)) @ base + rng.standard_normal((n, D)))


def wait_for(found: Callable[[], Any], what: str) -> Any:
    """What a question is answered with, as soon as that is true."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if answer := found():
                return answer
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


class Browser:
    """A browser with what tests ask of it."""

    def __init__(self, downloads: Path) -> None:
        from selenium.webdriver import Chrome
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1200"):
            options.add_argument(word)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver: Any = Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_page_load_timeout(_PATIENCE)
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.ready()

    def ready(self) -> None:
        wait_for(lambda: self.js("return document.body.dataset.ready"), "the page to be drawn")

    def js(self, code: str) -> Any:
        return self.driver.execute_script(code)

    def command(self, name: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(name, arguments)

    def text(self, name: str) -> str:
        return str(self.js(f"return document.getElementById('{name}').textContent"))

    def value(self, name: str) -> float:
        return float(self.js(f"return document.getElementById('f-{name}').dataset.value"))

    def drawn(self, chart: str) -> list[str]:
        """The paths of a chart."""
        return list(self.js(f"return Array.from(document.querySelectorAll('#c-{chart} path'), path => path.getAttribute('d'))"))

    def press(self, selector: str, key: str | None = None) -> None:
        """Click an element, or type a key there."""
        from selenium.webdriver.common.by import By

        element = self.driver.find_element(By.CSS_SELECTOR, selector)
        element.click() if key is None else element.send_keys(key)

    def choose(self, name: str, value: str) -> None:
        self.js(f"const s = document.getElementById('{name}'); s.value = '{value}'; s.dispatchEvent(new Event('change'))")

    def open_alarm(self) -> None:
        if self.js("return document.querySelector('#alarms li:last-child button').getAttribute('aria-expanded')") != "true":
            self.js("document.querySelector('#alarms li:last-child button').click()")

    def quiet(self) -> None:
        """Nothing is on the console, and no request has left the machine."""
        assert [entry["message"] for entry in self.driver.get_log("browser")] == []
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        assert [each for each in asked if not each.startswith(("http://127.0.0.1:", "file:", "data:", "blob:", "about:"))] == []


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("downloads"))
    yield found
    found.driver.quit()


class Process:
    """A psp command that serves a page."""

    def __init__(self, *words: Any, rows: str = "") -> None:
        # where the tests run in the background of a script Ctrl-C is ignored, and child processes inherit that
        listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from online_psp.cli.main import app; app()"
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", listen, *map(str, words)], **pipes, text=True, bufsize=1)
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.put(rows)
        self.address = wait_for(self._address, "the address of the page")

    def put(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self.said.append(line.strip())

    def _address(self) -> str | None:
        assert self.process.poll() is None, f"psp has ended: {self.said}"
        return next((line.split(" at ")[1] for line in self.said if "The page is at http" in line), None)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(_PATIENCE)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stderr):
            with contextlib.suppress(OSError):
                file.close()  # type: ignore[union-attr]


class PipedFit(Process):
    """psp fit --watch of a pipe, to which a test writes rows, one a minute."""

    def __init__(self, folder: Path) -> None:
        self.model, self.written = folder / "m.psp", 0
        words = ("fit", "-", "--ids", "site", "--time-column", "time", "-k", K, "-o", self.model, "--monitor", folder / "a.csv")
        head = "time,site," + ",".join(f'"{name}"' for name in NAMES) + "\n"
        more = ("--watch", "--set", "port=0", "--checkpoint-every", "1s", "--set", "block=200")
        super().__init__(*words, *more, rows=head + self._lines(rows_of(200)))

    def _lines(self, X: Floats) -> str:
        numbers = self.written + np.arange(len(X))
        self.written += len(X)
        times = np.datetime64("2026-03-01T00:00:00") + numbers * np.timedelta64(60, "s")
        lines = zip(times, numbers, X, strict=True)
        return "".join(f"{time},{SITES[i % 3]},{','.join(f'{value:.6f}' for value in row)}\n" for time, i, row in lines)

    def write(self, X: Floats) -> None:
        self.put(self._lines(X))


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipedFit]:
    """A fit of 1,600 rows whose subspace changes after 1,000."""
    found = PipedFit(tmp_path_factory.mktemp("watched"))
    found.write(rows_of(800, seed=1))
    found.write(rows_of(600, changed=True))
    yield found
    found.end()


def arrived(browser: Browser, fit: PipedFit) -> None:
    browser.js("window.scrollTo(0, 0)")
    if browser.driver.current_url != fit.address:
        browser.open(fit.address)
    wait_for(lambda: browser.value("samples") == fit.written, f"the page to show {fit.written} rows; it shows {browser.text('f-samples')}")


def test_charts_grow_with_times_on_their_axes(browser: Browser, fit: PipedFit) -> None:
    for _ in range(2):  # trends need two readings
        arrived(browser, fit)
        fit.write(rows_of(300, changed=True, seed=fit.written))
    arrived(browser, fit)
    before = {name: browser.drawn(name) for name in ("t2", "spe", "explained", "variances", "scree", "plane")}
    fit.write(rows_of(300, changed=True, seed=fit.written))
    arrived(browser, fit)
    for name, paths in before.items():
        assert all(len(path) > 20 for path in paths[:2]), f"{name} is empty"
        assert browser.drawn(name) != paths, f"{name} has not grown"
    assert "2026-03-01" in browser.text("c-spe")
    browser.quiet()


def test_an_alarm_of_a_planted_drift_appears_and_opens(browser: Browser, fit: PipedFit) -> None:
    from selenium.webdriver.common.keys import Keys

    arrived(browser, fit)
    number = int(browser.js("return document.querySelector('#alarms li:last-child button').dataset.number"))
    assert 1000 < number < 1100, f"the drift after row 1,000 was found at row {number}"
    browser.press("#alarms li:last-child button", Keys.ENTER)
    assert f"Row {number:,}" in browser.text("detail")
    cells = browser.js("return Array.from(document.querySelectorAll('#detail tbody tr'), r => Array.from(r.cells, c => c.textContent))")
    X = np.concatenate([rows_of(200), rows_of(800, seed=1), rows_of(600, changed=True)])
    shown = {line[0]: float(line[1].replace(",", "").replace("−", "-")) for line in cells}
    np.testing.assert_allclose([shown[name] for name in NAMES], X[number - 1], rtol=2e-3, atol=1e-3)
    browser.press("#detail", Keys.ESCAPE)
    assert browser.js("return document.getElementById('detail').hidden"), "Esc does not close the alarm"
    assert browser.js("return document.activeElement.dataset.number") == str(number), "the focus is lost"
    browser.quiet()


def test_choices_hold_and_names_stay_text(browser: Browser, fit: PipedFit) -> None:
    arrived(browser, fit)
    browser.choose("x", "2")
    browser.choose("colour", "0")
    browser.choose("window", "newest")
    fit.write(rows_of(100, changed=True, seed=fit.written))
    arrived(browser, fit)
    assert "component 3" in browser.text("c-plane")
    assert SITES[2] in browser.text("k-plane")
    assert "a row" in browser.text("k-scores")
    browser.open_alarm()
    assert NAMES[5] in browser.text("detail")
    assert NAMES[2] in browser.text("components")
    assert browser.js("return window.hacked") is None
    browser.driver.refresh()
    browser.ready()
    assert browser.js("return document.querySelectorAll('#alarms button').length") >= 1, "a reload loses the history"
    browser.quiet()


def test_a_paused_page_stands_still_is_saved_and_catches_up(browser: Browser, fit: PipedFit, tmp_path: Path) -> None:
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    arrived(browser, fit)
    browser.press("#pause")
    assert "Paused" in browser.text("state")
    stood = browser.value("samples")
    fit.write(rows_of(200, changed=True, seed=fit.written))
    wait_for(lambda: psp_info(fit.model)["samples"] == fit.written, "the checkpoint")
    assert browser.value("samples") == stood, "a paused page has moved"
    browser.press("#save")
    saved = wait_for(lambda: next(tmp_path.glob("*.html"), None), "the saved page")
    explained, charts = browser.value("explained"), [browser.drawn(name) for name in ("t2", "plane")]
    browser.press("#pause")
    arrived(browser, fit)
    browser.open(saved.as_uri())
    assert (browser.value("samples"), browser.value("explained")) == (stood, explained)
    assert [browser.drawn(name) for name in ("t2", "plane")] == charts
    assert "Saved" in browser.text("state")
    browser.open_alarm()
    assert NAMES[5] in browser.text("detail"), "an alarm of a saved page does not open"
    assert browser.js("return window.hacked") is None
    browser.quiet()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [420, 1280, 1600])
def test_the_page_fits_its_window(browser: Browser, fit: PipedFit, width: int, dark: bool) -> None:
    scheme = "dark" if dark else "light"
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        arrived(browser, fit)
        browser.open_alarm()
        wait_for(lambda: browser.js("return document.documentElement.scrollWidth") <= width, "a page that is not wider than its window")
        red, ink = (
            int(browser.js(f"return getComputedStyle(document.body).{name}.match(/\\d+/)[0]")) for name in ("backgroundColor", "color")
        )
        assert (red < 60 and ink > 200) if dark else (red > 200 and ink < 60), "colours do not follow the scheme"
        wide = "return Math.max(...Array.from(document.querySelectorAll('.chart svg'), s => s.getBoundingClientRect().right))"
        assert browser.js(wide) <= width, "a chart is cut"
        if folder := os.environ.get("ONLINE_PSP_SCREENSHOTS"):
            height = browser.js("return document.documentElement.scrollHeight")
            browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            time.sleep(1.0)
            browser.driver.save_screenshot(str(Path(folder) / f"watch-{width}-{scheme}.png"))
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")
        browser.command("Emulation.setEmulatedMedia", features=[])
    browser.quiet()


def psp_info(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(psp("info", model, "--json").stdout)
    return found


def test_ctrl_c_ends_both_with_a_checkpoint(browser: Browser, tmp_path: Path) -> None:
    fit = PipedFit(tmp_path)
    try:
        fit.write(rows_of(500, seed=3))
        arrived(browser, fit)
        assert fit.interrupt() == 130
        wait_for(lambda: "Stopped" in browser.text("state"), "the page to say that the fit was stopped")
        info = psp_info(fit.model)
        assert info["samples"] == browser.value("samples") == fit.written
        assert browser.value("explained") == pytest.approx(sum(info["explained_variance_ratio"]), rel=1e-12)
        assert browser.value("noise") == pytest.approx(info["noise_variance"], rel=1e-12)
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(fit.address, timeout=5)
        assert "checkpoint" in " ".join(fit.said)
    finally:
        fit.end()
        browser.driver.get("about:blank")
        browser.driver.get_log("browser")  # that the server is gone is told there


def test_psp_watch_shows_a_file_as_it_is_rewritten(browser: Browser, tmp_path: Path) -> None:
    source, model = tmp_path / "x.npy", tmp_path / "m.psp"
    np.save(source, rows_of(400))
    psp("fit", source, "-k", K, "-o", model, "-q")
    before = model.read_bytes()
    watching = Process("watch", model, "--port", 0)
    try:
        browser.open(watching.address)
        assert browser.value("samples") == 400
        assert browser.js("return document.getElementById('c-explained').hidden"), "a trend of one point is drawn"
        assert model.read_bytes() == before, "watching has changed the file"
        np.save(tmp_path / "y.npy", rows_of(300, seed=5))
        psp("update", model, tmp_path / "y.npy", "-q")
        wait_for(lambda: browser.value("samples") == 700, "the page to show the rewritten file")
        kept = model.read_bytes()
        model.write_bytes(kept[: len(kept) // 2])
        wait_for(lambda: "m.psp" in browser.text("note"), "the page to say that the file is damaged")
        assert browser.value("samples") == 700, "the last good numbers are gone"
        model.write_bytes(kept)
        wait_for(lambda: browser.js("return document.getElementById('note').hidden"), "the note to go")
        browser.quiet()
        assert watching.interrupt() in (0, 130)
    finally:
        watching.end()
        browser.driver.get("about:blank")
        browser.driver.get_log("browser")


def test_a_notebook_shows_rows_that_are_pictures_inline(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = OnlinePCA(5).partial_fit(rng.standard_normal((300, 64)) @ rng.standard_normal((64, 64)))
    with Dashboard(model, port=0, image=(8, 8)) as page:
        (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><body>{page._repr_html_()}</body>")
        browser.driver.get((tmp_path / "notebook.html").as_uri())
        browser.driver.switch_to.frame(0)
        browser.ready()
        assert browser.value("samples") == 300
        sizes = browser.js("return Array.from(document.querySelectorAll('#components canvas'), c => [c.width, c.height])")
        assert sizes == [[8, 8]] * 5
        browser.driver.switch_to.default_content()
        browser.quiet()
        browser.driver.get("about:blank")
