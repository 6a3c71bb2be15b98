"""The live page without a browser: what it shows, who can see it, and that learning never depends on it."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.io.files import OutputError
from online_psp.io.model_file import ModelFileError
from online_psp.monitoring import Monitor, contributions
from online_psp.watch import Dashboard, dashboard, server
from online_psp.watch.contents import Contents
from online_psp.watch.file import ModelFile
from online_psp.watch.history import Stretches, Trace
from online_psp.watch.server import PageError, Server
from tests.command import psp

D, K = 12, 3


def data(n: int, changed: bool = False, seed: int = 0) -> Floats:
    rng = np.random.default_rng([seed, changed])
    base = np.random.default_rng(1 + changed).standard_normal((K, D)) * np.array([[6.0], [4.0], [3.0]])
    return np.asarray(rng.standard_normal((n, K)) @ base + rng.standard_normal((n, D)))


def opened(watched: OnlinePCA | Monitor, **settings: Any) -> Dashboard:
    return Dashboard(watched, port=0, **settings)


@pytest.fixture(autouse=True)
def _all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show all rows, however fast they come."""
    monkeypatch.setattr(dashboard, "_SLOT", 0.0)
    monkeypatch.setattr(dashboard, "_SLOT_ROWS", 10_000)


def decoded(document: bytes) -> Any:
    return json.loads(document, object_hook=lambda found: np.frombuffer(base64.b64decode(found["f64"])) if set(found) == {"f64"} else found)


def shown(page: Dashboard) -> Any:
    """What the page shows now, from the file that it saves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        page.save(path)
        text = path.read_text("utf-8")
    found = text.partition('id="data">')[2].partition("</script>")[0]
    return decoded(found.encode())["data"]


# Histories


def test_stretches_lose_no_large_value_however_long_the_run() -> None:
    n = 50_000
    numbers, scores = np.arange(1.0, n + 1.0), np.random.default_rng(0).gamma(2.0, 2.0, (2, n))
    scores[1, [77, 31_234]] = 1e6, np.inf
    none = np.full(n, np.nan)
    kept = Stretches(100)
    for start in range(0, n, 777):
        part = slice(start, start + 777)
        found = (
            Monitor(OnlinePCA(K))
            .score(data(2))
            ._replace(t2=scores[0, part], spe=scores[1, part], t2_limit=none[part], spe_limit=none[part])
        )
        kept.add(numbers[part], none[part], found)
    table, width = kept.table(), kept.width
    assert table.shape[1] <= 100
    np.testing.assert_array_equal(table[0], [min(at + width, n) for at in range(0, n, width)])
    np.testing.assert_array_equal(table[4], [scores[0, at : at + width].max() for at in range(0, n, width)])
    np.testing.assert_allclose(table[2], [np.exp(np.log(scores[0, at : at + width]).mean()) for at in range(0, n, width)], rtol=1e-10)
    assert table[5, 77 // width] == 1e6
    assert table[5, 31_234 // width] == 1e300, "a row at infinity is at the top of the chart"


def test_a_trace_is_thinned_evenly_and_ends_with_the_newest() -> None:
    trace = Trace(64)
    for row in range(1, 10_001):
        trace.add(np.array([row, -row]))
    table = trace.table()
    assert 32 <= len(table) <= 66
    assert table[-1].tolist() == [10_000, -10_000]
    assert len(set(np.diff(table[:-1, 0]))) == 1, "gaps are not equal"
    trace.add(np.array([10_000, 1.0]))
    assert trace.table()[-1].tolist() == [10_000, 1.0], "the same row again replaces the point"


def test_a_page_of_any_length_has_a_fixed_size() -> None:
    contents, X, sizes = Contents("x", alpha=0.01), data(2000), []
    monitor = Monitor(OnlinePCA(K))
    found = monitor.update(X)
    for i in range(800):
        contents.judge(np.arange(2000.0) + 2000 * i, np.full(2000, np.nan), found)
        if i % 10 == 0:
            contents.read(monitor.model.snapshot(), 2000 * i)
        if i in (399, 799):
            sizes.append(len(contents.document(2000 * i)))
    assert sizes[1] <= 1.05 * sizes[0] < 1e6


# Following


def test_rows_are_counted_however_they_are_learned() -> None:
    X, model = data(1000), OnlinePCA(K)
    with opened(model) as page:
        model.partial_fit(X[:10])
        for x in X[10:400]:
            model.fit_next(x)
        _ = model.components_
        assert shown(page)["row"] == shown(page)["model"]["samples"] == 400
        model.merge(OnlinePCA(K).fit(X[500:600]))
        model.partial_fit(X[600:700])
        assert (shown(page)["row"], shown(page)["model"]["samples"]) == (500, 600), "after a merge the page no longer follows"
        model.fit(X[:20, :5])
        assert (shown(page)["row"], shown(page)["model"]["features"]) == (520, 5), "after a fit the page no longer follows"
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            twin.partial_fit(X[:10, :5])
        assert page.row == 520, "a copy of the model is followed"
    model.partial_fit(X[:, :5])
    assert page.row == 520, "a page that is closed still follows"
    assert shown(page)["status"] == "finished"


def test_error_bars_are_those_of_the_model() -> None:
    rng = np.random.default_rng(3)
    model = OnlinePCA(4, window=500)
    with opened(model) as page:
        model.partial_fit(rng.standard_normal((900, 9)) * [5.0, 3.0, 3.0, 2.0, *[0.1] * 5])
        found = shown(page)["model"]
    assert np.array_equal(found["errors"], model.explained_variance_error_)
    assert found["span_error"] == model.subspace_error_
    assert found["alike"] == [[2, 3]]
    assert found["effective"] == model.kish_samples_


def test_a_model_may_have_more_features_later() -> None:
    X, model = data(400), OnlinePCA(K)
    with opened(model) as page:
        model.partial_fit(X[:200, :9])
        assert shown(page)["model"]["features"] == 9
        model.add_features(3).partial_fit(X[200:])
        found = shown(page)
    assert (found["row"], found["model"]["features"], found["rows"]["places"][0].size > 0) == (400, 12, True)


def test_a_second_page_takes_over() -> None:
    model = OnlinePCA(K).fit(data(100))
    with opened(model) as first, opened(model) as second:
        model.partial_fit(data(50))
        assert (first.row, second.row) == (100, 150)
        assert "taken over" in shown(first)["note"]
        with opened(model, follow=False) as third:
            third.update(data(10))
            model.partial_fit(data(10))
            assert (second.row, third.row) == (160, 160)


@pytest.mark.parametrize("make", [np.asarray, csr_array, lambda X: X.astype(np.float32)])
def test_rows_of_any_kind_are_scored_before_they_are_learned_and_placed(make: Any) -> None:
    model, X = OnlinePCA(K), data(400)
    with opened(model) as page:
        model.partial_fit(make(X))
        shown(page)
        before = model.snapshot()
        model.partial_fit(make(X[:1] + 50.0))
        found = shown(page)
        assert found["scored"] == 1, "rows before the first reading are not scored"
        places = np.stack(found["rows"]["places"])[:, -1]
        np.testing.assert_allclose(np.abs(places), np.abs(model.transform(X[:1] + 50.0)[0]), rtol=1e-4)
        from online_psp.monitoring import spe

        np.testing.assert_allclose(found["newest"][3][-1], spe(before, make(X[:1] + 50.0))[0], rtol=1e-4)


def test_a_monitor_is_shown_the_same_in_blocks_and_row_by_row() -> None:
    X = np.concatenate([data(700), data(100, changed=True)])
    documents = []
    for size in (1, 7, 800):
        monitor = Monitor(OnlinePCA(K))
        with opened(monitor, feature_names=[f"f{i}" for i in range(D)]) as page:
            for start in range(0, len(X), size):
                if size == 1:
                    monitor.update_one(X[start])
                else:
                    monitor.update(X[start : start + size])
            documents.append(shown(page))
        assert pickle.loads(pickle.dumps(monitor)).onlooker is None
    found = Monitor(OnlinePCA(K)).update(X)
    for each in documents:
        assert each["alarms"], "the test needs an alarm"
        np.testing.assert_allclose(each["newest"][2:4], documents[0]["newest"][2:4], rtol=1e-9)
        assert [alarm["number"] for alarm in each["alarms"]] == (np.flatnonzero(found.drift != "") + 1).tolist()
        assert each["outliers"] == found.outlier.sum()
    alarm = documents[0]["alarms"][0]
    place = int(alarm["number"]) - 1
    assert alarm["spe"] == pytest.approx(found.spe[place]), "contributions do not add up to the score"
    values = {name: value for name, value, *_ in alarm["features"]}
    assert values == {f"f{i}": X[place, i] for i in range(D)}


def test_ids_times_and_numbers_of_rows_are_shown() -> None:
    model, X = OnlinePCA(K), data(40)
    times = np.datetime64("2026-03-01T00:00:00") + np.arange(40) * np.timedelta64(60, "s")
    with opened(model, follow=False, id_names=["site"]) as page:
        page.update(model.partial_fit(X) and X, ids=["<b>"] * 40, times=times, numbers=np.arange(101, 141))
        found = shown(page)
        assert found["clock"] == "date"
        assert found["rows"]["ids"] == [["<b>"]] * 40
        assert (found["row"], found["rows"]["numbers"][-1]) == (140, 140)
        assert found["rows"]["times"][1] - found["rows"]["times"][0] == 60.0
        with pytest.raises(ValueError, match="one entry a row"):
            page.update(X, ids=["a"])
    with opened(model) as page, pytest.raises(ValueError, match="follow=False"):
        page.update(X)
    with opened(Monitor(model), follow=False) as page, pytest.raises(TypeError, match=r"monitor\.update"):
        page.update(X)


def test_rows_with_holes_and_pictures_are_shown() -> None:
    model, X = OnlinePCA(K, missing="impute"), data(500)
    X[::3, 2] = np.nan
    with opened(model, image=(4, 3)) as page:
        model.partial_fit(X[:300])
        shown(page)
        model.partial_fit(X[300:])
        found = shown(page)
        assert np.isfinite(found["rows"]["places"]).all()
        assert found["scored"] > 0
        assert [picture["shape"] for picture in found["model"]["pictures"]] == [[4, 3, 1]] * K
    with opened(OnlinePCA(K).fit(data(50)), image=(5, 5)) as page:
        assert shown(page)["model"]["pictures"] is None
        assert shown(page)["model"]["loadings"], "pictures of another size are not shown, and loadings are"


def test_the_model_is_the_same_with_and_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_EVERY", 0.001)
    monkeypatch.setattr(dashboard, "_SHARE", 1.0)
    X, watched, alone = data(700), OnlinePCA(K), OnlinePCA(K)
    with opened(watched) as page:
        for model in (watched, alone):
            model.partial_fit(X[:300])
            for x in X[300:]:
                model.fit_next(x)
        monkeypatch.setattr(page, "_take", lambda *_: 1 // 0)
        with pytest.warns(RuntimeWarning, match="Learning goes on"):
            watched.partial_fit(X)
        watched.partial_fit(X)
    alone.partial_fit(X).partial_fit(X)
    np.testing.assert_array_equal(watched.components_, alone.components_)
    assert watched.n_samples_seen_ == alone.n_samples_seen_


def test_several_threads_may_learn_while_pages_open_and_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_EVERY", 0.001)
    monkeypatch.setattr(dashboard, "_SHARE", 1.0)
    model, X = OnlinePCA(K).fit(data(200)), data(64)
    threads = [threading.Thread(target=lambda: [model.partial_fit(X) for _ in range(100)], daemon=True) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(5):
        with opened(model) as page:
            assert shown(page)["note"] == ""
    for each in threads:
        each.join(30.0)
        assert not each.is_alive(), "two threads wait for each other"
    assert model.n_samples_seen_ == 200 + 200 * 64


# Serving


def get(address: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""


def test_the_page_is_served_to_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LAST", 0.1)
    model = OnlinePCA(K).fit(data(100))
    with opened(model, title="</script><b>title") as page:
        assert page.url == f"http://127.0.0.1:{page.port}/"
        code, text = get(page.url)
        assert code == 200
        assert b"</script><b>" not in text
        news = decoded(get(page.url + "data?0")[1])
        assert news["data"]["title"] == "</script><b>title"
        for path in ("", "data?0"):
            assert get(page.url + path, Host=f"evil.example:{page.port}")[0] == 403
        for path in ("data", "data?x", "page.js", "../pyproject.toml", "data?0/.."):
            assert get(page.url + path)[0] == 404
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.2", page.port)) != 0
        with opened(OnlinePCA(2)) as other:
            assert other.port != page.port
        with Dashboard(OnlinePCA(2), port=page.port) as beside:
            assert page.port < beside.port < page.port + 100, "a busy port takes the next one"
    with pytest.raises(urllib.error.URLError):
        get(page.url)


def test_a_browser_that_waits_is_given_news_and_the_last_document() -> None:
    serving = Server(0)
    serving.publish(b"1")
    heard = [decoded(get(f"{serving.url}data?0")[1])]

    def ask() -> None:
        while heard[-1]["data"] < 100:
            heard.append(decoded(get(f"{serving.url}data?{heard[-1]['version']}")[1]))

    asking = threading.Thread(target=ask)
    asking.start()
    for i in range(2, 101):
        serving.publish(b"%d" % i)
    serving.close()
    asking.join(30.0)
    assert heard[-1]["data"] == 100


def test_a_page_that_cannot_be_served_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PORTS", 1)
    with opened(OnlinePCA(2)) as page, pytest.raises(PageError, match="busy"):
        Dashboard(OnlinePCA(2), port=page.port)


def test_names_stay_data_in_a_saved_page(tmp_path: Path) -> None:
    names = ["</script><script>alert(1)</script>", "\ud800", *(f"f{i}" for i in range(2, D))]
    with opened(OnlinePCA(K).fit(data(100)), feature_names=names) as page:
        loadings = shown(page)["model"]["loadings"]
        assert names[0] in {name for component in loadings for name, _ in component}
        page.save(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        assert "<script>alert(1)" not in text
        assert "Content-Security-Policy" in text
        with pytest.raises(OutputError, match="does not exist"):
            page.save(tmp_path / "missing" / "page.html")
        assert page.url in page._repr_html_()


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"port": 70000}, ValueError, "port"),
        ({"image": (4, 3, 2)}, ValueError, "channels"),
        ({"image": (4,)}, ValueError, "image"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        Dashboard(OnlinePCA(K), **settings)
    with pytest.raises(TypeError, match="OnlinePCA or a Monitor"):
        Dashboard(object())  # type: ignore[arg-type]


# Files


def test_a_monitored_file_is_shown_with_its_rows_and_alarms(tmp_path: Path) -> None:
    X = np.concatenate([data(700), data(60, changed=True)])
    np.save(tmp_path / "x.npy", X)
    model, table = tmp_path / "m.psp", tmp_path / "a.csv"
    psp("fit", tmp_path / "x.npy", "-k", K, "-o", model, "--monitor", table, "-q")
    again = Monitor(OnlinePCA(K)).update(X)
    file, whole = ModelFile(model), ModelFile(model, table)
    assert file.look()
    assert not file.look(), "a file that has not changed has nothing to tell"
    found = decoded(file.document())
    assert [alarm["number"] for alarm in found["alarms"]] == (np.flatnonzero(again.drift != "") + 1).tolist()
    place = int(found["alarms"][0]["number"]) - 1
    parts = contributions(Monitor.load(model).model, X[place])
    assert found["alarms"][0]["spe"] == pytest.approx(parts.spe.sum()), "the row of an alarm is among those kept, and is not shown"
    np.testing.assert_array_equal(found["newest"][0], np.arange(760 - 256 + 1, 761))
    assert found["outliers"] == again.outlier.sum()
    assert found["model"]["samples"] == found["total"] == 760
    assert whole.look()
    found = decoded(whole.document())
    np.testing.assert_array_equal(found["newest"][0], np.arange(1, 761))
    np.testing.assert_allclose(found["newest"][3], again.spe, rtol=1e-12)
    assert found["outliers"] == again.outlier.sum()


def test_a_damaged_file_is_said_and_the_last_good_one_is_kept(tmp_path: Path) -> None:
    path, model = tmp_path / "m.psp", OnlinePCA(K).fit(data(100))
    with pytest.raises(FileNotFoundError):
        ModelFile(path).look()
    path.write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        ModelFile(path).look()
    model.save(path)
    file = ModelFile(path)
    assert file.look()
    good = path.read_bytes()
    for damaged in (good[:100], b"", None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        assert file.look()
        found = decoded(file.document())
        assert "m.psp" in found["note"]
        assert found["model"]["samples"] == 100
        assert not file.look(), "the same sentence is told once"
        path.write_bytes(good)
        file.look()
        assert decoded(file.document())["note"] == ""
    model.partial_fit(data(50)).save(path)
    assert file.look()
    assert decoded(file.document())["readings"][0].tolist() == [100, 150]
    for other in (OnlinePCA(K).fit(data(70)), OnlinePCA(2).fit(data(500)[:, :5])):
        other.save(path)
        assert file.look()
        found = decoded(file.document())
        assert "another model" in found["note"]
        assert found["readings"][0].tolist() == [other.n_samples_seen_], "two histories are mixed"


def test_a_table_that_is_cut_and_written_again_gives_each_row_once(tmp_path: Path) -> None:
    X, path, table = data(40), tmp_path / "m.psp", tmp_path / "a.csv"
    monitor = Monitor(OnlinePCA(K))
    head = "row,source,t2,spe,t2_limit,spe_limit,missing,outlier,drift,features"
    lines = [head, *(f'{i},"a,b.csv",{i}.5,1,9,9,0,0,,' for i in range(1, 9))]
    file = ModelFile(path, table)
    for text, rows in ((lines[:7], 6), (lines[:4], 6), (lines, 8)):
        table.write_text("\n".join(text) + "\n" + ("7,7." if rows == 6 and len(text) == 7 else ""))
        monitor.update(X)
        monitor.save(path)
        file.look()
        assert decoded(file.document())["newest"][0].tolist() == list(range(1, rows + 1))
    table.write_text("\n".join(lines) + "\n9,s,x,1,9,9,0,0,,\n")
    monitor.update(X)
    monitor.save(path)
    file.look()
    assert "Row #2" in decoded(file.document())["note"]


def test_psp_watch_of_what_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.psp").write_bytes(b"no model")
    for name, code in (("m.psp", 1), ("absent.psp", 2)):
        done = psp("watch", tmp_path / name, code=code)
        assert name in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    OnlinePCA(K).fit(data(30)).save(tmp_path / "n.psp")
    assert "25" in psp("watch", tmp_path / "n.psp", "--image", "5x5", code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (
                "--set",
                "open=yes",
            ),
            "--watch",
        ),
        (("--watch", "--image", "3x3"), "9 values"),
        (("--watch", "--set", "port=70000"), "65535"),
    ],
)
def test_options_that_mean_nothing_are_refused(words: tuple[Any, ...], said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(50))
    assert said in psp("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", *words, code=2).stderr
    assert not (tmp_path / "m.psp").exists(), "something was written all the same"
