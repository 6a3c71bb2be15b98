"""Methods: one interface to everybody's algorithms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import IncrementalPCA

from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.suite.data import parse, problem
from online_psp.suite.methods import FAMILY, PAPER, DictLearner, Method, build, check, check_basis, contest, told_apart, yours
from online_psp.suite.rows import version

HERE = "tests.somebodys"
PLAIN = problem(parse("spiked:D=30,K=3,rho=0.01,N=300"), 3, 0)
X = np.concatenate(list(PLAIN.blocks(0, 300)))


def learned(method: Method, rows: Floats = X, K: int = 3) -> Floats:
    learner = build(method, K, rows.shape[1])
    for part in np.array_split(rows, 4):
        learner.feed(part)
    learner.flush()
    return check_basis(learner.basis(), K, rows.shape[1])


@pytest.mark.parametrize("method", [*PAPER, *FAMILY, *contest()], ids=lambda method: method.label)
def test_every_registered_method_finds_the_subspace_and_leaves_the_rows_alone(method: Method) -> None:
    if "proSVD" in method.label and version("proSVD") is None:
        pytest.skip("proSVD is not installed")
    kept = X.copy()
    error = subspace_error(learned(method), PLAIN.V)
    assert error < (1.0 if "GROUSE" in method.label else 0.6), f"{method.label}: {error:.2f}"
    np.testing.assert_array_equal(X, kept)


def test_labels_are_distinct() -> None:
    labels = [method.label for method in contest()]
    assert len(labels) == len(set(labels))


def test_online_pca_row_by_row_is_online_pca_in_blocks() -> None:
    row, block = (next(method for method in contest() if method.label == label) for label in ("OnlinePCA fit_next", "OnlinePCA"))
    assert subspace_error(learned(row), learned(block)) < 1e-9


def test_estimators_get_equal_batches_whatever_comes_in_and_whoever_looks() -> None:
    method = Method("m", "sklearn.decomposition:IncrementalPCA", batch="20K")
    plain = IncrementalPCA(3, batch_size=60).fit(X[:270]).components_.T
    learner = build(method, 3, 30)
    for part in np.array_split(X[:270], 17):
        learner.feed(part)
        learner.basis()
    learner.flush()
    assert subspace_error(learner.basis(), plain) < 1e-10


def test_dictionaries_in_and_a_basis_out() -> None:
    learner = build(yours(f"{HERE}:RiverStyle"), 2, 6)
    assert isinstance(learner, DictLearner)
    data = np.random.default_rng(0).standard_normal((80, 6)) * np.r_[3.0, 2.0, np.full(4, 0.2)] + 1.0
    learner.feed(data)
    assert subspace_error(learner.basis(), np.linalg.svd(data - data.mean(axis=0))[2][:2].T) < 1e-10


def test_who_takes_holes_says_so() -> None:
    taken = {name: build(yours(name), 2, 5).takes_missing for name in (f"{HERE}:TakesHoles", f"{HERE}:Mine", "rival:petrels", "fsm")}
    assert taken == {f"{HERE}:TakesHoles": True, f"{HERE}:Mine": False, "rival:petrels": True, "fsm": False}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "There is no algorithm 'nonsense'"),
        ("rival:nonsense", "There is no rival"),
        ("no_such_module:C", "cannot be imported: ModuleNotFoundError"),
        ("mine.py:C", "Write mine:C"),
        ("os:nothing", "cannot be imported: AttributeError"),
        ("sys:path", "is not a class or a function"),
        ("fsm,gamma", "is not an option: write name=value"),
        ("fractions:Fraction", "Missing: fit_next"),
        ("fsm,nonsense=1", "cannot be made"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        check(yours(text), 2, 5)


def test_a_module_that_raises_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "thinks_it_is_a_program.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(ValueError, match="SystemExit"):
        check(yours("thinks_it_is_a_program:C"), 2, 5)


def test_an_algorithm_with_its_options_on_one_line() -> None:
    method = yours("m:C,a=1,b=x")
    assert (method.label, method.algorithm, method.options, method.text) == ("C, a=1, b=x", "m:C", (("a", 1), ("b", "x")), "m:C,a=1,b=x")


def test_a_class_with_the_name_of_another_takes_nobodys_place() -> None:
    mine, other = yours(f"{HERE}:IPCA"), yours("another.module:IPCA")
    labels = [method.label for method in told_apart([mine, other, mine], PAPER)]
    assert labels == [f"IPCA [{HERE}:IPCA]", "IPCA [another.module:IPCA]"]


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (np.ones((4, 3)), "has shape"),
        (np.ones(5), "has shape"),
        (np.ones((5, 2)) * 1j, "real numbers"),
        (np.full((5, 2), np.nan), "not finite"),
    ],
)
def test_a_basis_that_is_none_is_refused(basis: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_basis(basis, 2, 5)
