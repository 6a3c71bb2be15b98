"""The live page in a real browser: headless Chromium, driven as a reader would."""

from __future__ import annotations

import contextlib
import json
import os
import queue
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

from online_psp.engine.types import Floats
from tests.command import psp

pytest.importorskip("bokeh", reason="the live page needs Bokeh")
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
        with contextlib.suppress(KeyError, TypeError):
            answer = found()
            if answer:
                return answer
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


class Browser:
    """A browser with what tests ask of it."""

    def __init__(self) -> None:
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

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.ready()

    def show(self, address: str) -> None:
        """Open a page, unless it is open: loading takes time."""
        if self.driver.current_url != address:
            self.open(address)

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

    def column(self, source: str, name: str) -> list[float]:
        """What a chart draws."""
        code = f"const s = Bokeh.documents[0].get_model_by_name('data-{source}'); return Array.from(s.data['{name}'])"
        return list(self.js(code))

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def press(self, selector: str, key: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(key)

    def choose(self, name: str, value: str) -> None:
        self.js(f"const s = document.getElementById('{name}'); s.value = '{value}'; s.dispatchEvent(new Event('change'))")

    def open_alarm(self) -> None:
        """Open the newest alarm."""
        if self.js("return document.querySelector('#alarms button').getAttribute('aria-expanded')") != "true":
            self.click("#alarms button")

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses of everything that was asked for since the last call."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
            if message["method"] == "Network.webSocketCreated":
                found.append(message["params"]["url"])
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.driver.quit()


class Process:
    """A psp command that serves a page."""

    def __init__(self, *words: Any, pipe: bool = False) -> None:
        # where the tests run in the background of a script Ctrl-C is ignored, and child processes inherit that
        listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from online_psp.cli.main import app; app()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", listen, *map(str, words)],
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.address = wait_for(self._address, "the address of the page")

    def _read(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self.said.append(line.strip())

    def _address(self) -> str | None:
        assert self.process.poll() is None, f"psp has ended: {self.said}"
        return next((line.split(" at ")[1] for line in self.said if "The page is at http" in line), None)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stderr):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


class PipedFit(Process):
    """psp fit --watch of a pipe, to which a test writes rows."""

    def __init__(self, folder: Path) -> None:
        self.model = folder / "m.psp"
        self.written = 0
        words = ("fit", "-", "--ids", "site", "-k", K, "-o", self.model, "--monitor", folder / "a.csv", "--watch", "--port", 0)
        self._begun = threading.Event()
        super().__init__(*words, "--checkpoint-every", "1s", "--block", 200, pipe=True)

    def _address(self) -> str | None:
        if not self._begun.is_set():  # the page is served once the source is open, and that needs its first rows
            self._begun.set()
            self._put("site," + ",".join(f'"{name}"' for name in NAMES) + "\n")
            self.write(rows_of(200))
        return super()._address()

    def _put(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def write(self, X: Floats) -> None:
        lines = [SITES[(self.written + i) % 3] + "," + ",".join(f"{value:.6f}" for value in row) for i, row in enumerate(X)]
        self._put("\n".join(lines) + "\n")
        self.written += len(X)


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipedFit]:
    """A fit of 1,600 rows whose subspace changes after 1,000."""
    found = PipedFit(tmp_path_factory.mktemp("watched"))
    found.write(rows_of(800, seed=1))
    found.write(rows_of(600, changed=True))
    yield found
    found.end()


def arrived(browser: Browser, fit: PipedFit) -> None:
    wait_for(lambda: browser.value("samples") == fit.written, f"the page to show {fit.written} rows; it shows {browser.text('f-samples')}")


def test_charts_grow_and_no_request_leaves_the_machine(browser: Browser, fit: PipedFit) -> None:
    browser.requests()
    browser.open(fit.address)
    arrived(browser, fit)
    charts = [("whole", "t2"), ("whole", "spe"), ("explained", "share"), ("variances", "v1")]
    last = {each: browser.column(each[0], "row")[-1] for each in charts}
    fit.write(rows_of(300, changed=True, seed=fit.written))
    arrived(browser, fit)
    for chart, name in charts:
        wait_for(lambda chart=chart: browser.column(chart, "row")[-1] == fit.written, f"{chart} to end at row {fit.written}")  # type: ignore[misc]
        rows, values = browser.column(chart, "row"), browser.column(chart, name)
        assert rows[-1] > last[chart, name], f"{chart} has not grown"
        assert values[-1] > 0, f"{name} of {chart} is {values[-1]}"
    assert len(browser.column("rows", "s1")) > 100, "the newest rows are not in the plane"
    assert browser.console() == [], "something is on the console"
    asked = browser.requests()
    own = (fit.address, fit.address.replace("http:", "ws:"), "data:", "blob:")
    assert any(each.startswith("ws:") for each in asked), "the log of requests does not show what was asked for"
    assert [each for each in asked if not each.startswith(own)] == []


def test_an_alarm_of_a_planted_drift_appears_and_opens(browser: Browser, fit: PipedFit) -> None:
    browser.show(fit.address)
    number = int(wait_for(lambda: browser.js("return document.querySelector('#alarms li:last-child button').dataset.number"), "an alarm"))
    assert 1000 < number < 1100, f"the drift after row 1,000 was found at row {number}"
    from selenium.webdriver.common.keys import Keys

    browser.press("#alarms li:last-child button", Keys.ENTER)
    detail = browser.text("detail")
    assert f"Row {number:,}" in detail
    cells = browser.js("return Array.from(document.querySelectorAll('#detail tbody tr'), r => Array.from(r.cells, c => c.textContent))")
    assert {line[0] for line in cells} == set(NAMES), "every one of the few features has a line"
    X = np.concatenate([rows_of(200), rows_of(800, seed=1), rows_of(600, changed=True)])
    shown = {line[0]: float(line[1].replace(",", "").replace("−", "-")) for line in cells}
    np.testing.assert_allclose([shown[name] for name in NAMES], X[number - 1], rtol=2e-3, atol=1e-3)
    browser.press("#detail", Keys.ESCAPE)
    assert browser.js("return document.getElementById('detail').hidden"), "Esc does not close the alarm"
    assert browser.js("return document.activeElement.dataset.number") == str(number), "the focus is lost"
    assert browser.console() == []


def test_a_reload_keeps_the_history(browser: Browser, fit: PipedFit) -> None:
    browser.show(fit.address)
    arrived(browser, fit)
    before, alarms = browser.column("whole", "row"), browser.js("return document.querySelectorAll('#alarms button').length")
    browser.driver.refresh()
    browser.ready()
    assert browser.column("whole", "row")[: len(before) // 2] == before[: len(before) // 2]
    assert browser.js("return document.querySelectorAll('#alarms button').length") == alarms >= 1
    assert browser.console() == []


def test_names_stay_text(browser: Browser, fit: PipedFit) -> None:
    browser.show(fit.address)
    arrived(browser, fit)
    assert browser.js("return Array.from(document.querySelectorAll('.who'), e => e.textContent)").count(NAMES[2]) >= 1
    browser.choose("colour", "id0")
    assert SITES[2] in browser.text("k-plane")
    browser.open_alarm()
    assert NAMES[5] in browser.text("detail")
    assert browser.js("return window.hacked") is None
    assert browser.js("return document.querySelectorAll('main script, main b[onclick], main img[onerror]').length") == 0


def test_a_paused_page_stands_still_and_catches_up(browser: Browser, fit: PipedFit) -> None:
    browser.show(fit.address)
    arrived(browser, fit)
    browser.click("#pause")
    assert "Paused" in browser.text("state")
    time.sleep(2.0)  # the server hears of it a moment later, and on a busy machine more rows could be faster
    stood = browser.value("samples")
    fit.write(rows_of(200, changed=True, seed=fit.written))
    other = fit.written
    with urllib.request.urlopen(fit.address) as answer:  # the server has not stopped
        assert answer.status == 200
    wait_for(lambda: psp_info(fit.model)["samples"] == other, "the checkpoint")
    assert browser.value("samples") == stood, "a paused page has moved"
    browser.click("#pause")
    arrived(browser, fit)


def test_components_are_chosen(browser: Browser, fit: PipedFit) -> None:
    browser.show(fit.address)
    arrived(browser, fit)
    browser.choose("x", "3")
    browser.choose("axes", "p")
    glyph = "const g = Bokeh.documents[0].get_model_by_name('plane').renderers[0].glyph; return "
    assert browser.js(glyph + "[g.x.field, g.y.field]") == ["p3", "p2"]
    browser.choose("window", "newest")
    drawn = browser.js("return Bokeh.documents[0].get_model_by_name('spe').renderers.filter(r => r.visible).map(r => r.tags[0])")
    assert set(drawn) == {"newest", None}
    assert browser.console() == []


def test_the_saved_page_needs_no_server(browser: Browser, fit: PipedFit, tmp_path: Path) -> None:
    browser.show(fit.address)
    arrived(browser, fit)
    browser.choose("colour", "spe")
    address = browser.js("return document.getElementById('save').href")
    with urllib.request.urlopen(address) as answer:
        data = answer.read()
        assert "attachment" in answer.headers["Content-Disposition"]
    shown = browser.value("samples"), browser.value("explained"), browser.column("whole", "row")
    (tmp_path / "page.html").write_bytes(data)
    browser.requests()
    browser.open((tmp_path / "page.html").as_uri())
    assert (browser.value("samples"), browser.value("explained"), browser.column("whole", "row")) == shown
    assert "Saved" in browser.text("state")
    browser.open_alarm()
    assert NAMES[5] in browser.text("detail"), "an alarm of a saved page does not open"
    assert browser.js("return window.hacked") is None
    assert [each for each in browser.requests() if not each.startswith(("file:", "data:", "blob:"))] == []
    assert browser.console() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [420, 1600])
def test_the_page_fits_its_window(browser: Browser, fit: PipedFit, width: int, dark: bool) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    scheme = "dark" if dark else "light"
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    try:
        browser.show(fit.address)
        arrived(browser, fit)
        browser.open_alarm()
        assert browser.js("return document.documentElement.scrollWidth") <= width, "the page is wider than its window"
        red, ink = (
            int(browser.js(f"return getComputedStyle(document.body).{name}.match(/\\d+/)[0]")) for name in ("backgroundColor", "color")
        )
        assert (red < 60 and ink > 200) if dark else (red > 200 and ink < 60), "colours do not follow the scheme"
        label = browser.js("return getComputedStyle(document.documentElement).getPropertyValue('--bk-axis-label-text-color')")
        assert label.strip(), "charts do not take the page's colours"
        folder = os.environ.get("ONLINE_PSP_SCREENSHOTS")
        if folder:
            height = browser.js("return document.documentElement.scrollHeight")
            browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            time.sleep(1.0)
            browser.driver.save_screenshot(str(Path(folder) / f"watch-{width}-{scheme}.png"))
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")
        browser.command("Emulation.setEmulatedMedia", features=[])
    assert browser.console() == []


def psp_info(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(psp("info", model, "--json").stdout)
    return found


def test_ctrl_c_ends_both_with_a_checkpoint(browser: Browser, tmp_path: Path) -> None:
    fit = PipedFit(tmp_path)
    try:
        fit.write(rows_of(500, seed=3))
        browser.open(fit.address)
        arrived(browser, fit)
        fit.process.send_signal(signal.SIGINT)
        assert fit.process.wait(_PATIENCE) == 130
        wait_for(lambda: "Stopped" in browser.text("state"), "the page to say that the fit was stopped")
        info = psp_info(fit.model)
        assert info["samples"] == browser.value("samples") == fit.written
        assert browser.value("explained") == pytest.approx(sum(info["explained_variance_ratio"]), rel=1e-12)
        assert browser.value("components") == info["components"]
        assert browser.value("noise") == pytest.approx(info["noise_variance"], rel=1e-12)
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(fit.address, timeout=5)
        assert "checkpoint" in " ".join(fit.said)
        assert browser.console() == [], "the end of the server is an error on the console"
    finally:
        fit.end()
        browser.driver.get("about:blank")


def test_psp_watch_shows_a_file_as_it_is_rewritten(browser: Browser, tmp_path: Path) -> None:
    source, model = tmp_path / "x.npy", tmp_path / "m.psp"
    np.save(source, rows_of(400))
    psp("fit", source, "-k", K, "-o", model, "-q")
    before = model.read_bytes()
    watching = Process("watch", model, "--port", 0)
    try:
        browser.open(watching.address)
        info = psp_info(model)
        assert browser.value("samples") == info["samples"] == 400
        assert browser.value("explained") == pytest.approx(sum(info["explained_variance_ratio"]), rel=1e-12)
        assert model.read_bytes() == before, "watching has changed the file"
        np.save(tmp_path / "y.npy", rows_of(300, seed=5))
        psp("update", model, tmp_path / "y.npy", "-q")
        wait_for(lambda: browser.value("samples") == 700, "the page to show the rewritten file")
        assert browser.column("explained", "row") == [400, 700]
        kept = model.read_bytes()
        model.write_bytes(kept[: len(kept) // 2])
        wait_for(lambda: "m.psp" in browser.text("note"), "the page to say that the file is damaged")
        assert browser.value("samples") == 700, "the last good numbers are gone"
        model.write_bytes(kept)
        wait_for(lambda: browser.js("return document.getElementById('note').hidden"), "the note to go")
        assert browser.console() == []
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(_PATIENCE) in (0, 130)
    finally:
        watching.end()
        browser.driver.get("about:blank")


def test_a_notebook_shows_rows_that_are_pictures_inline(browser: Browser, tmp_path: Path) -> None:
    from online_psp import OnlinePCA
    from online_psp.watch import Dashboard, PageSettings

    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 64)) @ rng.standard_normal((64, 64))
    model = OnlinePCA(5).partial_fit(X)
    with Dashboard(model, PageSettings(port=0, image=(8, 8))) as page:
        (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><body>{page._repr_html_()}</body>")
        browser.driver.get((tmp_path / "notebook.html").as_uri())
        browser.driver.switch_to.frame(0)
        browser.ready()
        assert browser.value("samples") == 300
        sizes = wait_for(
            lambda: browser.js("return Array.from(document.querySelectorAll('#components img'), i => [i.naturalWidth, i.naturalHeight])"),
            "the pictures",
        )
        assert sizes == [[8, 8]] * 5
        assert "5" in browser.js("return document.querySelector('#components li:last-child img').alt")
        browser.driver.switch_to.default_content()
        assert browser.console() == []
    browser.driver.get("about:blank")
