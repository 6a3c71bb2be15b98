"""Evaluate: everybody's algorithm, each in a process of its own; tracks; provenance; the leaderboard; data sets of one's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import IncrementalPCA
from typer.testing import CliRunner

from online_psp import FSM
from online_psp.cli.main import app
from online_psp.datasets import load
from online_psp.datasets.own import add_set, own_sets
from online_psp.experiments import Plan, evaluate, provenance, rows, tracks
from online_psp.experiments.evaluation import parse_curve
from online_psp.experiments.imports import algorithm_digest
from online_psp.experiments.leaderboard import boards, collect, overall, write_leaderboard
from online_psp.experiments.learners import DictLearner, build, takes_missing
from online_psp.experiments.measure import FILLED, Workbench
from online_psp.experiments.records import Curve, Experiment, SpikedData, Track, parse_spiked
from online_psp.experiments.rows import DONE, Row, read_rows, select, write_rows
from online_psp.experiments.runner import run
from online_psp.metrics import subspace_error
from tests.somebodys import Mine, Sleeps, TakesHoles

Floats = NDArray[np.float64]
HERE = "tests.somebodys"


@pytest.fixture
def X() -> Floats:
    scales = np.array([5.0, 4.0, 3.0] + [0.5] * 9)
    return np.asarray(np.random.default_rng(0).standard_normal((300, 12)) * scales + 7.0)


ALONE = Plan(trials=2, builtin=False)


# In this process


def test_evaluate_says_what_is_wrong(X: Floats) -> None:
    with pytest.raises(ValueError, match=r"K must be between 1 and 12 .* got 13"):
        evaluate(X, K=13)
    with pytest.raises(ValueError, match="samples as rows"):
        evaluate(X[0], K=2)
    with pytest.raises(ValueError, match="Row 4 of the data"):
        evaluate(np.where(np.arange(300)[:, None] == 4, np.nan, X), K=2)
    with pytest.raises(ValueError, match=r"Row 4 of the data has a value of .*, whose square overflows"):
        evaluate(np.where(np.arange(300)[:, None] == 4, 1e200, X), K=2)
    with pytest.raises(ValueError, match="squares vanish"):
        evaluate(X * 1e-200, K=2)
    with pytest.raises(ValueError, match="The data has 0 directions, fewer than K=2"):
        evaluate(np.ones((30, 5)), K=2)
    with pytest.raises(ValueError, match="The data has 1 direction, fewer than K=2"):
        evaluate(np.outer(np.arange(30), np.ones(5)), K=2)
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(X, K=2, plan=Plan(builtin=False))
    with pytest.raises(TypeError, match="Missing: fit_next"):
        evaluate(X, K=2, algorithms={"not one": lambda K, D: object()})
    with pytest.raises(TypeError, match="Missing: fit_next"):
        evaluate(X, K=2, algorithms={"not one": "builtins:int"})
    with pytest.raises(ValueError, match="no track 'nonsense'; there are drift, missing, outliers, sorted"):
        evaluate(X, K=2, plan=Plan(tracks=("nonsense",)))
    with pytest.raises(ValueError, match="A track is a single pass"):
        evaluate(X, K=2, plan=Plan(tracks=("drift",), epochs=2))


def test_an_algorithm_with_its_options_on_one_line() -> None:
    assert parse_curve("fsm,gamma=0.6") == Curve("fsm, gamma=0.6", "fsm", (("gamma", 0.6),))
    assert parse_curve("m:C,name=text") == Curve("C, name=text", "m:C", (("name", "text"),))
    assert parse_curve("m:C,a=1,b=x").text == "m:C,a=1,b=x"
    with pytest.raises(ValueError, match="is not an option: write name=value"):
        parse_curve("fsm,gamma")


def test_the_time_of_getting_the_components_is_counted(X: Floats) -> None:
    result = evaluate(X, K=2, algorithms={"sleeps": Sleeps}, plan=Plan(trials=1, builtin=False, isolate=False))
    assert select(result.rows, metric=DONE)[0].value >= 0.02, "components are asked for once, and that takes 0.02 s"


def test_dictionaries_in_and_a_basis_out() -> None:
    data = np.random.default_rng(0).standard_normal((80, 6)) * np.r_[3.0, 2.0, np.full(4, 0.2)] + 1.0
    learner = build(Curve("river", f"{HERE}:RiverStyle"), 2, 6)
    assert isinstance(learner, DictLearner)
    learner.feed(data)
    top = np.linalg.svd(data - data.mean(axis=0))[2][:2].T
    assert subspace_error(learner.basis(), top) < 1e-10


def test_spiked_data_from_one_line() -> None:
    assert parse_spiked("spiked:D=64,K=4,rho=0.1,N=500") == SpikedData(64, 4, 0.1, 500)
    assert parse_spiked("spiked") == SpikedData(1024, 16, 0.01, 6000)
    with pytest.raises(ValueError, match="'x' in 'spiked:D=x' is not a whole number"):
        parse_spiked("spiked:D=x")
    with pytest.raises(ValueError, match="gives D twice"):
        parse_spiked("spiked:D=20,K=2,D=30")


def test_spiked_data_knows_the_truth() -> None:
    result = evaluate("spiked:D=20,K=3,rho=0.01,N=200", algorithms={"mine": Mine}, plan=Plan(trials=1, builtin=False, isolate=False))
    truth = Workbench().prepare(SpikedData(20, 3, 0.01, 200), 3, 0)
    model = FSM(3, 20)
    model.fit_block(truth.X)
    assert truth.truth is not None
    assert select(result.rows, metric="err_pop")[-1].value == pytest.approx(subspace_error(model.get_components(), truth.truth), abs=1e-9)
    assert "Err_pop" in result.table()


# In processes of their own


# Tracks


SMALL = SpikedData(40, 3, 0.01, 400)


def stream_of(track: Track, seed: int = 0) -> tuple[tracks.Stream, Floats, Floats]:
    prepared = Workbench().prepare(SMALL, 3, seed)
    assert prepared.truth is not None
    return tracks.make_stream(track, prepared.X, prepared.truth, seed), prepared.X, prepared.truth


def test_a_rotation_ends_where_nothing_is_left_of_the_start() -> None:
    stream, X, V = stream_of(Track("drift-rotation"))
    assert subspace_error(stream.present(1), V) < 1e-12
    assert subspace_error(stream.present(400), V) == pytest.approx(np.sqrt(2.0))
    angle = np.pi / 2 * 199 / 399
    assert subspace_error(stream.present(200), V) == pytest.approx(np.sqrt(2.0) * np.sin(angle))
    np.testing.assert_allclose(np.linalg.norm(stream.X, axis=1), np.linalg.norm(X, axis=1), rtol=1e-12, err_msg="a turn keeps lengths")
    late = stream.X[350:]
    inside = np.linalg.norm(late @ stream.present(375)) / np.linalg.norm(late)
    assert inside > 0.9, "the rows must lie in the subspace that is said to be present"


def test_a_switch_happens_once() -> None:
    stream, X, V = stream_of(Track("drift-switch"))
    np.testing.assert_array_equal(stream.X[:200], X[:200])
    assert subspace_error(stream.present(200), V) < 1e-12
    assert subspace_error(stream.present(201), V) == pytest.approx(np.sqrt(2.0))


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_so_many_values_are_missing(share: float) -> None:
    stream, X, _ = stream_of(Track("missing", share))
    holes = np.isnan(stream.X)
    assert abs(holes.mean() - share) < 0.02
    np.testing.assert_array_equal(stream.X[~holes], X[~holes])


def test_gross_rows_are_gross_and_few() -> None:
    stream, X, _ = stream_of(Track("outliers", 0.1))
    gross = np.linalg.norm(stream.X, axis=1) > 15 * np.linalg.norm(X, axis=1).mean()
    assert 0.05 < gross.mean() < 0.15
    np.testing.assert_array_equal(stream.X[~gross], X[~gross])


def test_sorted_rows_are_the_same_rows() -> None:
    stream, X, V = stream_of(Track("sorted"))
    assert (np.diff(stream.X @ V[:, 0]) >= 0).all()
    np.testing.assert_array_equal(np.sort(stream.X[:, 0]), np.sort(X[:, 0]))


def test_holes_are_filled_for_those_that_need_it_and_that_is_said() -> None:
    algorithms: dict[str, Any] = {"takes": TakesHoles, "needs": Mine}
    result = evaluate(
        "spiked:D=10,K=2,N=300", algorithms=algorithms, plan=Plan(trials=1, builtin=False, isolate=False, tracks=("missing",))
    )
    assert {row.note for row in select(result.rows, label="needs")} == {FILLED}
    assert {row.note for row in select(result.rows, label="takes", track="missing 10 %")} == {""}
    assert takes_missing(Curve("t", f"{HERE}:TakesHoles"), 2, 5)
    assert not takes_missing(Curve("t", f"{HERE}:Mine"), 2, 5)


def test_drift_is_ranked_over_time_and_the_rest_at_the_end() -> None:
    plan = Plan(trials=1, builtin=False, isolate=False, tracks=("drift", "sorted"))
    found = evaluate("spiked:D=20,K=2,N=300", algorithms={"mine": Mine}, plan=plan).rows
    for name, expected in (("drift-switch", np.mean), ("sorted", lambda values: values[-1])):
        errors = [row.value for row in select(found, track=name, metric="err_present")]
        assert len(errors) == 30
        assert select(found, track=name, metric="score")[0].value == pytest.approx(float(expected(errors)))


# Provenance and stale rows


def test_rows_of_other_code_are_not_taken_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    record = Experiment("test", SMALL, Curve("IPCA", "ipca"), 3, 0, 1, ("err_batch",), (400,))
    old = run([record], path)
    key = record.key
    for module in ("records", "runner", "provenance"):
        monkeypatch.setattr(f"online_psp.experiments.{module}.code_digest", lambda: "othercode123", raising=True)
    provenance._here.cache_clear()
    assert record.key != key, "other code, another record"
    assert {row.origin.code for row in run([record], path)} == {"othercode123"}
    assert {row.key for row in read_rows(path)} == {record.key}, "nothing is mixed"
    aside = read_rows(tmp_path / "rows.csv.stale")
    assert aside == old, "nothing is lost"
    monkeypatch.undo()
    provenance._here.cache_clear()


def test_the_digest_follows_the_files_that_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in provenance._MEASURING:
        assert (provenance.PACKAGE / name).exists(), f"{name} is not a part of the package any more"
    (tmp_path / "metrics.py").write_text("a = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    first = provenance.code_digest.__wrapped__()
    (tmp_path / "metrics.py").write_text("a = 2\n")
    assert provenance.code_digest.__wrapped__() != first
    monkeypatch.setattr(provenance, "_git", lambda *_: None)
    assert provenance.commit.__wrapped__().startswith("files:"), "without git, a digest of the files"


def test_the_file_of_somebodys_algorithm_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "changing_algorithm.py").write_text("x = 1\n")
    record = Experiment("test", SMALL, Curve("c", "changing_algorithm:C"), 3, 0, 1, ("err_batch",), (400,))
    before = record.key
    (tmp_path / "changing_algorithm.py").write_text("x = 2\n")
    assert record.key != before
    assert algorithm_digest("no_such_module_anywhere:C") == ""


def test_what_somebodys_algorithm_imports_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    parts, inner = tmp_path / "imported_parts", tmp_path / "imported_parts" / "inner"
    inner.mkdir(parents=True)
    files = {
        tmp_path / "importing_algorithm.py": "import numpy\nfrom imported_parts import basis\n",
        parts / "__init__.py": "from .inner.deep import *\n",
        parts / "basis.py": "def basis():\n    import imported_late\n",
        inner / "__init__.py": "",
        inner / "deep.py": "from .. import basis\nfrom ..rates import rate\n",
        parts / "rates.py": "rate = 1\n",
        tmp_path / "imported_late.py": "x = 1\n",
    }
    for file, text in files.items():
        file.write_text(text)
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    before = algorithm_digest("importing_algorithm:C")
    (tmp_path / "unrelated.py").write_text("x = 2\n")
    assert algorithm_digest("importing_algorithm:C") == before, "a file that is not imported does not matter"
    for file in files:
        with file.open("a") as stream:
            stream.write("y = 2\n")
        now = algorithm_digest("importing_algorithm:C")
        assert now != before, f"{file.name} is imported, and was changed"
        before = now
    assert algorithm_digest("imported_parts.inner.deep:C") != ""
    (parts / "rates.py").write_text("rate = (\n")
    assert algorithm_digest("importing_algorithm:C") not in (before, ""), "a file that does not compile is not ignored"


def test_an_installed_class_counts_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn

    before = algorithm_digest("sklearn.decomposition:IncrementalPCA")
    monkeypatch.setattr(sklearn, "__version__", "0.0")
    assert algorithm_digest("sklearn.decomposition:IncrementalPCA") not in (before, "")


def test_a_class_that_was_changed_is_not_ranked_by_its_old_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "improving_algorithm.py"
    records = [Experiment("test", SMALL, Curve(name, name), 3, 0, 1, ("err_batch",), (400,), scored=True) for name in ("ipca", "ccipca")]
    mine = replace(records[0], curve=Curve("C", "improving_algorithm:C"))
    file.write_text("from online_psp.algorithms import CCIPCA as C\n")
    old = run([mine, *records], tmp_path / "rows.csv")
    file.write_text("from online_psp.algorithms import IPCA as C\n")
    sys.modules.pop("improving_algorithm")
    run([mine, records[0]], tmp_path / "rows.csv")
    kept = read_rows(tmp_path / "rows.csv")
    assert [row.key for row in kept if row.label == "C" and row.metric == "score"] == [mine.key], "one measurement of it counts"
    assert select(kept, label="ccipca"), "what was not asked for again stays"
    assert read_rows(tmp_path / "rows.csv.stale") == select(old, label="C"), "nothing is lost"
    found, remarks = collect([tmp_path / "rows.csv"])
    scores = {row.label: row.value for row in select(found, metric="score")}
    assert scores["C"] == scores["ipca"] != scores["ccipca"], f"ranked by what it is now: {scores}, {remarks}"


def test_batches_tell_runs_of_one_class_apart(X: Floats, tmp_path: Path) -> None:
    for batch in (10, 50):
        plan = Plan(trials=1, builtin=False, isolate=False, batch=batch)
        evaluate(X, K=2, algorithms={"IncrementalPCA": IncrementalPCA}, plan=plan, out=tmp_path / str(batch))
    rows, remarks = collect([tmp_path / "10" / "rows.csv", tmp_path / "50" / "rows.csv"])
    assert len(select(rows, metric="score")) == 2, remarks
    assert {row.label.rpartition("(")[2] for row in rows} == {"batches of 10)]", "batches of 50)]"}


# The leaderboard


def scored(label: str, values: list[float], track: str = "", microseconds: float = 10.0, **columns: Any) -> list[Row]:
    found = []
    for seed, value in enumerate(values):
        base = Row(
            f"{label}{track}{seed}", "evaluation", "set", 100, 10, 0.0, label, f"m:{label}", 4, seed, 100, "score", value, track=track
        )
        found += [replace(base, **columns), replace(base, metric=DONE, value=1e-6 * microseconds * 100, **columns)]
    return found


def failed(label: str, track: str = "") -> list[Row]:
    base = scored(label, [0.0], track)
    return [replace(base[0], metric="failed", value=float("nan"), note="it broke", t=0), replace(base[1], t=0)]


def test_places_on_a_board(tmp_path: Path) -> None:
    write_rows(tmp_path / "one.csv", [*scored("good", [0.1, 0.11, 0.12]), *scored("bad", [0.5, 0.4, 0.6]), *failed("broken")])
    write_rows(tmp_path / "two.csv", [*scored("good", [0.3, 0.3, 0.3], "sorted"), *scored("bad", [0.2, 0.2, 0.2], "sorted")])
    found, remarks = collect([tmp_path / "one.csv", tmp_path / "two.csv"])
    plain, hard = boards(found)
    assert [(place.label, place.rank.value) for place in plain.places] == [("good", 1.0), ("bad", 2.0), ("broken", 3.0)]
    assert plain.places[0].score == (0.11, 0.1, 0.12)
    assert plain.places[2].note == "it broke"
    assert [place.label for place in hard.places] == ["bad", "good"]
    table = overall([plain, hard])
    assert [line[:2] for line in table.lines] == [("bad", "1.50"), ("good", "1.50"), ("broken", "3.00")]
    assert remarks == []
    page = write_leaderboard([tmp_path / "one.csv", tmp_path / "two.csv"], tmp_path / "page.html", "psp leaderboard x").read_text("utf-8")
    for text in ("good", "it broke", "sorted", "psp leaderboard x", "95 % bootstrap"):
        assert text in page


def test_ranks_move_where_trials_overlap() -> None:
    board = boards([*scored("one", [0.1, 0.3, 0.2]), *scored("two", [0.25, 0.15, 0.22])])[0]
    assert (board.places[0].rank.low, board.places[0].rank.high) == (1.0, 2.0), "three trials do not tell these two apart"


def test_equal_scores_share_their_places() -> None:
    """FSM and SM differ by rounding alone: neither is ahead, and the interval of a place holds it."""
    errors = [0.2, 0.3, 0.25]
    rows = [*scored("fsm", errors), *scored("sm", [value * (1 + 1e-12) for value in errors]), *scored("worse", [0.5, 0.6, 0.7])]
    board = boards(rows)[0]
    assert [place.rank for place in board.places] == [(1.5, 1.5, 1.5), (1.5, 1.5, 1.5), (3.0, 3.0, 3.0)]
    assert [line[1:3] for line in overall([board]).lines] == [("1.50", "1.50 – 1.50")] * 2 + [("3.00", "3.00 – 3.00")]
    assert boards(scored("alone", errors))[0].places[0].rank == (1.0, 1.0, 1.0)


def test_a_board_is_one_data_set(tmp_path: Path) -> None:
    one = [replace(row, origin=provenance.Provenance(checksum="a")) for row in scored("m", [0.1])]
    other = [replace(row, key=row.key + "x", origin=provenance.Provenance(checksum="b")) for row in scored("m", [0.1])]
    assert len(boards([*one, *other])) == 2, "another file under the same name is another data set"


def test_what_cannot_be_ranked_is_said(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", [rows.Row("k", "fig2", "d", 1, 2, 0.1, "l", "a", 3, 4, 5, "err_batch", 0.1)])
    with pytest.raises(ValueError, match=r"rows.csv has no rows of an evaluation"):
        collect([tmp_path / "rows.csv"])
    with pytest.raises(FileNotFoundError, match=r"absent.csv does not exist"):
        collect([tmp_path / "absent.csv"])
    mixed = [*scored("m", [0.1]), *(replace(row, key="z", algorithm="other:m") for row in scored("m", [0.2]))]
    machines = [replace(row, origin=provenance.Provenance(cpu=f"cpu{i % 2}")) for i, row in enumerate(mixed)]
    write_rows(tmp_path / "mixed.csv", machines)
    found, remarks = collect([tmp_path / "mixed.csv", tmp_path / "mixed.csv"])
    assert {row.label for row in found} == {"m [m:m]", "m [other:m]"}, "one label, two algorithms"
    assert any("2 different machines" in remark for remark in remarks)
    assert any("Measured more than once: 2 trials" in remark for remark in remarks)


# Data sets of one's own, and the commands


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_set_of_ones_own(home: Path, X: Floats) -> None:
    np.save(home / "X.npy", X)
    add_set("mine", home / "X.npy")
    found = load("mine")
    np.testing.assert_array_equal(found.X, X)
    assert found.name == "mine"
    with pytest.raises(ValueError, match=r"'mine' already names .*X.npy; use --force"):
        add_set("mine", home / "X.npy")
    with pytest.raises(ValueError, match="comes with this package"):
        add_set("mnist", home / "X.npy")
    for name in ("a/b", "", ".", "..", "-x", "_", "a b"):
        with pytest.raises(ValueError, match="cannot be a name"):
            add_set(name, home / "X.npy")
    with pytest.raises(FileNotFoundError, match=r"absent.npy does not exist"):
        add_set("other", home / "absent.npy")
    np.savez(home / "several.npz", a=X, b=X[:, :2])
    assert add_set("part", f"{home / 'several.npz'}::b").D == 2
    assert load("part").X.shape == (300, 2)
    np.save(home / "X.npy", X + 1)
    with pytest.raises(ValueError, match=r"has changed since it was added as 'mine'"):
        load("mine")
    (home / "X.npy").unlink()
    with pytest.raises(FileNotFoundError, match="no longer exists"):
        load("mine")
    (home / "cache" / "online-psp" / "datasets.json").write_text("{")
    with pytest.raises(ValueError, match=r"datasets.json is damaged"):
        own_sets()


def test_a_set_and_a_file_of_one_name_are_not_confused(home: Path, X: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(home / "rows.npy", X)
    add_set("rows.npy", home / "rows.npy")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert len(load("rows.npy").X) == len(X), "there is no such file here"
    np.save("rows.npy", X[:50])
    with pytest.raises(ValueError, match=r"'rows.npy' is your data set .*, and also a file in this folder: write \./rows.npy for the file"):
        load("rows.npy")
    assert len(load("./rows.npy").X) == 50
    monkeypatch.chdir(home)
    assert len(load("rows.npy").X) == len(X), "here it is the very file"


def test_the_working_folder_is_left_alone_where_no_module_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    result = CliRunner().invoke(app, ["evaluate", "-d", "digits", "-k", "300", "-a", "fsm,gamma=0.6"])
    assert result.exit_code == 1
    assert str(home) not in sys.path


def test_an_extra_curve_in_the_papers_figures() -> None:
    from online_psp.experiments.reproduction import Scope, plan

    mine = parse_curve(f"{HERE}:Mine")
    planned, plain = plan(Scope(quick=True, algorithms=(mine,))), plan(Scope(quick=True))
    for name, added in (("fig1", 0), ("fig2", 4 * 3 * 2), ("fig3", 3 * 2 * 2), ("fig4", 0)):
        extra = [record for record in planned[name] if isinstance(record, Experiment) and record.curve == mine]
        assert len(extra) == len(planned[name]) - len(plain[name]) == added, name
