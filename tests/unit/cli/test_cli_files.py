"""The command line as a new user meets it: what it says about files, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp import OnlinePCA
from online_psp.cli.main import app
from tests.messy_files import NAMES, clean, lines, put


def run(*words: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, run in this process."""
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), f"{words}: {found.exception!r}"
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return put(tmp_path / "x.csv", lines(clean()))


def test_no_arguments_show_the_help_and_nothing_else() -> None:
    code, _, said = run()
    assert code == 2
    assert "psp:" not in said, f"an error after the help: {said[-200:]}"


def test_a_question_ends_a_sentence() -> None:
    assert "Did you mean 'fit'? See psp --help." in run("fti")[2]


def test_columns_may_be_given_several_times(table: Path, tmp_path: Path) -> None:
    code, _, said = run("fit", table, "-k", 1, "-o", tmp_path / "m.psp", "--columns", "depth", "--columns", "heat,4")
    assert code == 0, said
    assert OnlinePCA.load(tmp_path / "m.psp").feature_names_in_.tolist() == ["depth", "heat", "noise"]


def test_a_missing_value_has_ways_on_that_work(tmp_path: Path) -> None:
    text = lines(clean())
    text[8] = "-," + text[8].partition(",")[2]
    source, model = put(tmp_path / "x.csv", text), tmp_path / "m.psp"
    code, _, said = run("fit", source, "-k", 2, "-o", model)
    assert (code, model.exists()) == (1, False)
    assert "(--na-values '-' if it stands for a missing value); --on-bad-row skip leaves such rows out." in said
    code, _, said = run("fit", source, "-k", 2, "-o", model, "--na-values", "-")
    assert "--on-bad-row skip leaves such rows out, a model fitted with --missing impute learns" in said
    for ways, rows in ((["--on-bad-row", "skip"], 59), (["--missing", "impute"], 60)):
        code, _, said = run("fit", source, "-k", 2, "-o", model, "--force", "--na-values", "-", *ways)
        assert code == 0, said
        assert OnlinePCA.load(model).n_samples_seen_ == rows


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl", "npz"])
def test_numbers_that_stand_for_nothing_hold_for_every_format(tmp_path: Path, ending: str) -> None:
    import pandas as pd
    from scipy.sparse import csr_array, save_npz

    holed = clean().astype(np.float32)
    holed[7, 3] = -999.25
    source, frame = tmp_path / f"x.{ending}", pd.DataFrame(holed, columns=NAMES)
    writers: dict[str, Any] = {
        "npy": lambda: np.save(source, holed),
        "parquet": lambda: frame.to_parquet(source),
        "jsonl": lambda: frame.to_json(source, orient="records", lines=True),
        "npz": lambda: save_npz(source, csr_array(holed)),
    }
    writers[ending]()
    code, _, said = run("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "--na-values", "-999.25")
    assert code == 1
    assert "row 8" in said, said
    assert "an empty or NaN value in column 3" in said, said


def test_a_model_that_is_merged_with_itself_is_told(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.psp"
    assert run("fit", table, "-k", 2, "-o", model, "-q")[0] == 0
    code, _, said = run("merge", model, model, "-o", tmp_path / "n.psp")
    assert (code, said) == (0, f"psp: {model} is given more than once; its rows count as often.\n")
    assert OnlinePCA.load(tmp_path / "n.psp").n_samples_seen_ == 120


def test_bad_rows_are_counted_where_scores_go_to_standard_output(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.psp"
    assert run("fit", table, "-k", 2, "-o", model, "-q")[0] == 0
    text = lines(clean())
    text[3] = "broken" + text[3]
    code, out, said = run("transform", model, put(tmp_path / "y.csv", text), "-o", "-", "--on-bad-row", "skip")
    assert (code, len(out.splitlines())) == (0, 61)
    assert out.splitlines()[3] == ","
    assert "psp: 1 row of 60 is bad, and empty in the output" in said


def test_records_and_objects_have_a_sentence(tmp_path: Path) -> None:
    np.save(tmp_path / "r.npy", np.zeros(9, dtype=[(name, float) for name in NAMES]))
    np.save(tmp_path / "o.npy", clean().astype(object))
    for name, sentence in (
        ("r", "holds records (depth, speed, heat, load, noise), not a table"),
        ("o", "holds Python objects, not numbers"),
    ):
        code, _, said = run("fit", tmp_path / f"{name}.npy", "-k", 2, "-o", tmp_path / "m.psp")
        assert (code, (tmp_path / "m.psp").exists()) == (1, False)
        assert sentence in said


def test_genes_and_barcodes_of_a_cell_ranger_folder(tmp_path: Path) -> None:
    """Also as it lies in archives of studies, with a prefix; where the tables beside it do not fit, it is refused."""
    from scipy.io import mmwrite
    from scipy.sparse import random as random_matrix

    counts = random_matrix(7, 12, 0.5, random_state=3)
    mmwrite(tmp_path / "GSM1_matrix.mtx", counts)
    put(tmp_path / "GSM1_genes.tsv", [f"ENS{i}\tgene{i % 6}" for i in range(7)])
    put(tmp_path / "GSM1_barcodes.tsv", [f"AC{i}-1" for i in range(12)])
    model, scores = tmp_path / "m.psp", tmp_path / "s.csv"
    code, _, said = run("fit", tmp_path / "GSM1_matrix.mtx", "-k", 2, "-o", model)
    assert code == 0, said
    fitted = OnlinePCA.load(model)
    assert fitted.feature_names_in_.tolist() == [*(f"gene{i}" for i in range(6)), "gene0-1"]
    np.testing.assert_allclose(fitted.mean_, counts.toarray().mean(axis=1), atol=1e-12)
    code, _, said = run("transform", model, tmp_path / "GSM1_matrix.mtx", "-o", scores, "--ids", "barcodes")
    assert code == 0, said
    assert scores.read_text().splitlines()[1].startswith('"AC0-1",')
    put(tmp_path / "GSM1_barcodes.tsv", ["AC0-1"])
    code, _, said = run("fit", tmp_path / "GSM1_matrix.mtx", "-k", 2, "-o", tmp_path / "n.psp")
    assert (code, (tmp_path / "n.psp").exists()) == (1, False)
    assert "is 7 × 12, and the tables beside it name 7 genes and 1 cells: they do not belong together." in said


def test_scores_are_mapped_back_by_the_names_of_their_columns(table: Path, tmp_path: Path) -> None:
    run("fit", table, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    run("transform", tmp_path / "m.psp", table, "-o", tmp_path / "scores.csv", "-q")
    rows = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()]
    put(tmp_path / "turned.csv", [",".join(row[::-1]) for row in rows])
    for name in ("scores", "turned"):
        code, _, said = run("transform", tmp_path / "m.psp", tmp_path / f"{name}.csv", "--inverse", "-o", tmp_path / f"{name}.npy", "-q")
        assert code == 0, said
    np.testing.assert_array_equal(np.load(tmp_path / "turned.npy"), np.load(tmp_path / "scores.npy"))
    put(tmp_path / "third.csv", [",".join(["pc3", *row[1:]] if i == 0 else row) for i, row in enumerate(rows)])
    code, _, said = run("transform", tmp_path / "m.psp", tmp_path / "third.csv", "--inverse", "-o", tmp_path / "third.npy", "-q")
    assert code == 1
    assert "'pc1' is missing, and 'pc3' is unknown" in said


def test_columns_without_names_are_said_to_be_taken_in_order(table: Path, tmp_path: Path) -> None:
    run("fit", table, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    np.save(tmp_path / "x.npy", clean())
    for command in ("transform", "score", "impute"):
        code, _, said = run(command, tmp_path / "m.psp", tmp_path / "x.npy", "-o", tmp_path / f"{command}.csv")
        assert code == 0, said
        assert "x.npy has no column names; its columns are taken in the order of" in said, f"{command}: {said}"
        assert "column names" not in run(command, tmp_path / "m.psp", table, "-o", "-")[2]


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, said = run("fit", "", "-k", 1, "-o", "m.psp")
    assert code == 2
    assert "An empty name is not a source" in said


def test_an_error_of_excel_has_a_way_on_that_works(tmp_path: Path) -> None:
    text = lines(clean())
    text[8] = "#DIV/0!," + text[8].partition(",")[2]
    path = put(tmp_path / "x.csv", text)
    code, _, said = run("fit", path, "-k", 1, "-o", tmp_path / "m.psp")
    assert code == 1
    assert "--na-values '#DIV/0!' if it stands for a missing value" in said
    code, _, said = run("fit", path, "-k", 1, "-o", tmp_path / "m.psp", "--na-values", "#DIV/0!", "--missing", "impute")
    assert code == 0, said


def test_a_name_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "~backup.csv", lines(clean()))
    code, _, err = run("fit", "~backup.csv", "-k", 2, "-o", "m.psp", "-q")
    assert (code, err) == (0, "")


def test_a_model_does_not_go_to_standard_output(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written to a file called - instead."""
    monkeypatch.chdir(tmp_path)
    run("fit", table, "-k", 2, "-o", "m.psp", "-q")
    for command in (["fit", table, "-k", 2], ["merge", "m.psp", "m.psp"]):
        code, _, err = run(*command, "-o", "-")
        assert code == 2
        assert "ends in .psp" in err
    assert not (tmp_path / "-").exists()


def test_rows_of_a_workbook_that_are_skipped_are_part_of_a_run(tmp_path: Path) -> None:
    """Other rows would follow on those that were learned."""
    book = pytest.importorskip("openpyxl").Workbook()
    for row in clean().tolist():
        book.active.append(row)
    book.active["B31"] = "broken"
    book.save(tmp_path / "x.xlsx")
    fit = ("fit", tmp_path / "x.xlsx", "-k", 2, "-o", tmp_path / "m.psp", "-q", "--set", "block=10")
    assert "'broken'" in run(*fit)[2]
    code, _, err = run(*fit, "--resume", "--set", "skip_rows=5")
    assert code == 1
    assert "The source was read with lines before the rows: 0, and now with lines before the rows: 5." in err
