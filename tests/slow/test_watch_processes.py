"""The live page without a browser: what is handed over and kept, who can see it, and that learning never depends on it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.io.files import OutputError
from online_psp.watch import Dashboard, PageSettings, feed
from online_psp.watch.dashboard import PageError
from tests.command import psp
from tests.unit.watch.test_watch import D, K, data


def test_an_onlooker_that_fails_is_left_and_the_fit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the page is broken")

    def never(*_: Any) -> str:
        raise PageError("It was not served.")

    waits = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]  # in place of the serving process
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    monkeypatch.setattr("online_psp.watch.dashboard._start", lambda: subprocess.Popen(waits, **pipes))
    monkeypatch.setattr(Dashboard, "update", fail)
    monkeypatch.setattr(Dashboard, "wait", never)
    np.save(tmp_path / "x.npy", data(300))
    done = psp("fit", tmp_path / "x.npy", "-k", K, "-o", tmp_path / "m.psp", "--watch", "--port", 0)
    assert "the page is broken" in done.stderr
    assert done.stderr.count("the page is broken") == 1
    assert OnlinePCA.load(tmp_path / "m.psp").n_samples_seen_ == 300


def test_the_serving_process_ends_with_the_learner() -> None:
    code = (
        "import os, time\n"
        "from online_psp import OnlinePCA\n"
        "from online_psp.watch import Dashboard, PageSettings\n"
        "page = Dashboard(OnlinePCA(2), PageSettings(port=0))\n"
        "page.wait()\n"
        "print(page.address['process'], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    process = int(done.stdout)
    for _ in range(600):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1][:3]:
                time.sleep(0.05)
                continue
        return
    os.kill(process, signal.SIGKILL)
    pytest.fail("the serving process outlives its learner")


def test_importing_the_package_does_not_import_bokeh() -> None:
    code = "import sys, online_psp, online_psp.cli.main; online_psp.watch.Dashboard; sys.exit('bokeh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def get(address: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""


def test_the_page_is_served_to_this_machine_alone(page: Dashboard) -> None:
    assert page.url.startswith("http://127.0.0.1:")
    port = page.address["port"]
    assert page.url == f"http://127.0.0.1:{port}/"
    code, text = get(page.url)
    assert code == 200
    assert "&lt;b&gt;title" in text
    assert "<b>title" not in text
    with socket.socket() as probe:  # other addresses of this machine do not answer
        probe.settimeout(5)
        assert probe.connect_ex(("127.0.0.2", port)) != 0


def test_a_foreign_name_for_this_machine_gets_nothing(page: Dashboard) -> None:
    assert get(page.url + "save")[0] == 200
    assert get(page.url + "save", Host="evil.example:80")[0] == 403
    assert "&lt;b&gt;title" in get(page.url)[1]
    assert "title&lt;" not in get(page.url, Host="evil.example:80")[1]


def test_a_host_beyond_this_machine_needs_the_token(tmp_path: Path) -> None:
    with Dashboard(OnlinePCA(K).fit(data(50)), PageSettings(host="0.0.0.0", port=0)) as page:
        token, port = page.settings.token, page.address.get("port") or int(page.url.split(":")[2].split("/")[0])
        assert len(token) >= 24
        assert page.url.endswith(f":{port}/{token}/")
        local = f"http://127.0.0.1:{port}"
        assert get(f"{local}/{token}/")[0] == 200
        assert get(f"{local}/{token}/save")[0] == 200, "the page cannot be saved"
        page.save(tmp_path / "page.html")
        for path in ("", "/", "/save", "/ws", "/static/js/bokeh.min.js", "/autoload.js", "/metadata", f"/{token[:-1]}/"):
            assert get(local + path)[0] == 404, f"{path} answers without the token"
    assert PageSettings(host="0.0.0.0").token != PageSettings(host="0.0.0.0").token
    assert PageSettings().token == ""
    assert PageSettings(host="192.0.2.1").token


def test_a_page_that_cannot_be_served_says_so_and_learning_goes_on() -> None:
    model = OnlinePCA(K)
    with Dashboard(model, PageSettings(host="192.0.2.1", port=0)) as page:
        with pytest.raises(PageError, match=r"cannot be served at 192\.0\.2\.1"):
            _ = page.url
        for _ in range(3):
            model.partial_fit(data(10))
    assert model.n_samples_seen_ == 30


def test_a_page_that_hangs_or_is_killed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The serving process is stopped as by a debugger while far more is handed over than a pipe holds, and then killed."""
    from online_psp.watch import dashboard

    monkeypatch.setattr(dashboard, "_END", 0.2)
    monkeypatch.setattr(feed, "EVERY", 0.0)
    monkeypatch.setattr(feed, "_SLOT", 0.0)
    for name in ("_MODEL_SHARE", "_FRAME_SHARE", "_ROWS_SHARE"):
        monkeypatch.setattr(feed, name, 1e9)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    heard: list[dict[str, Any]] = []
    X = np.random.default_rng(0).standard_normal((500, 600))
    model, other = OnlinePCA(20).fit(X), OnlinePCA(20).fit(X)
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with Dashboard(model, PageSettings(port=port), on_served=heard.append) as page:
            page.wait()
            page.save(tmp_path / "page.html")
            assert b"OnlinePCA" in (tmp_path / "page.html").read_bytes(), "a proxy was asked for a page of this machine"
            assert port < page.address["port"] < port + 100, "the port is busy, and the next one was not taken"
            assert page.address["wanted"] == port
            os.kill(page.address["process"], signal.SIGSTOP)
            for _ in range(20):
                model.partial_fit(X)
                other.partial_fit(X)
            assert page.feed.handed_over < 5, "frames were made that nobody takes"
            os.kill(page.address["process"], signal.SIGKILL)
            deadline = time.monotonic() + 60
            while page.alive and time.monotonic() < deadline:
                time.sleep(0.02)
            before = page.feed.handed_over
            for i in range(5):
                model.partial_fit(X[i:])
                other.partial_fit(X[i:])
            assert page.feed.handed_over <= before + 1
            assert not page.alive
            deadline = time.monotonic() + 60
            while len(heard) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert [list(each) for each in heard[1:]] == [["error"]], "that the page is gone was not said, or twice"
            with pytest.raises(PageError, match="has ended"):
                page.save(tmp_path / "page.html")
    assert len(heard) == 2
    np.testing.assert_array_equal(model.components_, other.components_)


@pytest.fixture(scope="module")
def page() -> Iterator[Dashboard]:
    model = OnlinePCA(K).fit(data(100))
    names = ["</script><script>alert(1)</script>", *(f"f{i}" for i in range(1, D))]
    with Dashboard(model, PageSettings(title="<b>title</b>", port=0, feature_names=names)) as found:
        model.partial_fit(data(100))
        yield found


def test_a_saved_page_has_names_as_data_only(page: Dashboard, tmp_path: Path) -> None:
    page.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert(1)" not in text
    assert "<b>title" not in text
    assert "http-equiv" in text
    with pytest.raises(OutputError, match="does not exist"):
        page.save(tmp_path / "missing" / "page.html")
