"""Messy files give the model of the clean one, or one sentence."""

from __future__ import annotations

import gzip
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse

from online_psp import OnlinePCA
from online_psp.io.sources import Source, SourceError, open_source
from tests.messy_files import Case, clean, lines, put
from tests.messy_tables import CASES


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The folder of messy files: a source for every case."""
    root, X = tmp_path_factory.mktemp("messy"), clean()
    found = {}
    for each in CASES:
        folder = root / each.name
        folder.mkdir()
        found[each.name] = each.write(folder, X)
    return found


def fitted(source: Source) -> OnlinePCA:
    model = OnlinePCA(2)
    for block in source.blocks(17):
        if block.bad:
            raise SourceError(f"{source.where(block.bad[0])}: it {block.bad[0].problem}.")
        model.partial_fit(block.rows)
    return model


def test_there_are_forty_of_them() -> None:
    assert len(CASES) >= 40
    assert len({each.name for each in CASES}) == len(CASES)


@pytest.mark.parametrize("each", CASES, ids=[each.name for each in CASES])
def test_the_model_of_the_clean_file_or_one_sentence(messy: dict[str, Any], each: Case) -> None:
    if each.said is not None:
        with pytest.raises(SourceError) as raised:
            fitted(open_source(messy[each.name], **each.options))
        assert re.search(each.said, str(raised.value)), f"{each.name}: {raised.value}"
        assert "\n" not in str(raised.value)
        return
    source = open_source(messy[each.name], **each.options)
    expected, model = OnlinePCA(2).fit(clean()), fitted(source)
    assert model.n_samples_seen_ == len(clean()), f"{each.name}: {source.notes}"
    np.testing.assert_allclose(model.mean_, expected.mean_, atol=1e-12, rtol=1e-12)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)
    np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-12)
    assert source.feature_names == each.names
    said = [*source.notes, *source.warnings]
    assert not each.notes or any(re.search(each.notes, note) for note in said), f"{each.name}: {each.notes!r} is in none of {said}"


@pytest.mark.parametrize("each", [each for each in CASES if each.said is None], ids=lambda each: each.name)
def test_they_go_on_from_any_row(messy: dict[str, Any], each: Case) -> None:
    source = open_source(messy[each.name], **each.options)
    for start in (0, 19, 20, 59, 60):
        blocks = list(source.blocks(7, start))
        rows = np.concatenate([np.zeros((0, 5)), *(block.rows.toarray() if issparse(block.rows) else block.rows for block in blocks)])
        np.testing.assert_array_equal(rows, clean()[start:])
        assert [block.start for block in blocks] == list(range(start, 60, 7))


def test_the_options_overrule_what_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",a,b\n0,1.5,2\n1,3.5,4\n")
    kept = open_source(path, keep_index=True)
    assert kept.feature_names == ["unnamed_0", "a", "b"]
    assert next(kept.blocks()).rows.tolist() == [[0, 1.5, 2], [1, 3.5, 4]]
    path.write_text("2019,2020,2021\n5,3,1\n6,2,2\n")
    assert open_source(path).feature_names == ["2019", "2020", "2021"]
    assert next(open_source(path, header=False).blocks()).rows.tolist() == [[2019, 2020, 2021], [5, 3, 1], [6, 2, 2]]
    path.write_text("1,5;2,5\n3,5;4,5\n")
    assert next(open_source(path).blocks()).rows.tolist() == [[1.5, 2.5], [3.5, 4.5]]
    with pytest.raises(SourceError, match="column 1 is text"):
        open_source(path, delimiter=",", header=False)
    path.write_text("a,b\n1,2\n#3,4\n5,6\n")
    (block,) = open_source(path).blocks()
    assert block.bad[0].problem == "has the text '#3' in column 0 ('a')"
    assert next(open_source(path, comment="#").blocks()).rows.tolist() == [[1, 2], [5, 6]]


def test_named_row_numbers_are_learned_and_said(tmp_path: Path) -> None:
    names, *rows = lines(clean())
    path = put(tmp_path / "x.csv", [f"row,{names}", *(f"{i},{row}" for i, row in enumerate(rows, 1))])
    source = open_source(path)
    assert source.features == 6
    said = [note for note in source.notes if "column 0 ('row') counts the rows (1, 2, 3, …) and is learned" in note]
    assert len(said) == 1
    assert not [note for note in open_source(path, exclude=0).notes if "counts the rows" in note]


def test_rows_that_only_look_like_names_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text, rows in (("1,2,3\n4,5,6\n7,8,9\n", 3), ("0,1\n1,0\n", 2), ("3,2,1\n1,1,1\n", 2), ("1,2,3\n", 1)):
        path.write_text(text)
        assert sum(block.rows.shape[0] for block in open_source(path).blocks()) == rows, text


def test_ids_and_times_are_carried_through_bad_rows_and_all(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('who,when,a,b\n"Doe, J",2026-01-01T00:00:00,1,2\nRoe,2026-01-01T00:00:01,x,4\nPoe,2026-01-01T01:00:02+01:00,5,6\n')
    source = open_source(path, ids=["who"], time_column="when")
    assert source.feature_names == ["a", "b"]
    (block,) = source.blocks()
    assert block.ids is not None
    assert block.ids.tolist() == [["Doe, J"], ["Roe"], ["Poe"]]
    assert block.times is not None
    assert block.times.dtype == "datetime64[us]"
    assert np.diff(block.times).astype(int).tolist() == [1_000_000, 1_000_000]
    assert [bad.row for bad in block.bad] == [2]
    assert block.rows.tolist() == [[1, 2], [5, 6]]
    np.save(tmp_path / "x.npy", np.array([[7.0, 1.5, 2.0], [8.0, 3.5, 4.0]]))
    (block,) = open_source(tmp_path / "x.npy", ids=0, time_column=2).blocks()
    assert block.ids is not None
    assert block.ids.tolist() == [["7"], ["8"]]
    assert block.times is not None
    assert block.times.tolist() == [2.0, 4.0]
    assert block.rows.tolist() == [[1.5], [3.5]]


def test_missing_values_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,NA\n,4\n5,inf\n7,?\n")
    (block,) = open_source(path, missing="keep", na_values=["?"]).blocks()
    np.testing.assert_array_equal(block.rows, [[1, np.nan], [np.nan, 4], [7, np.nan]])
    assert [(bad.row, bad.problem) for bad in block.bad] == [(3, "has an infinite value in column 1 ('b')")]


@pytest.mark.parametrize("seed", range(60))
def test_any_table_in_any_dialect(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, D = int(rng.choice([25, 60, 300])), int(rng.choice([2, 3, 7, 40]))
    X = (
        rng.standard_normal((n, D)) * 10.0 ** rng.integers(-20, 20, (n, D))
        if seed % 3 == 0
        else rng.integers(-50, 50, (n, D)).astype(float)
        if seed % 3 == 1
        else np.where(rng.random((n, D)) < 0.5, rng.integers(0, 100, (n, D)), np.round(rng.standard_normal((n, D)), 3))
    )
    delimiter = str(rng.choice([",", ";", "\t", "|", " "]))
    decimal = "," if delimiter != "," and rng.random() < 0.5 else "."
    names = [f"name {i}" if delimiter != " " else f"name{i}" for i in range(D)] if rng.random() < 0.5 else None
    mark = '"' if rng.random() < 0.3 else ""
    rows = [[repr(int(value)) if value.is_integer() else repr(value).replace(".", decimal) for value in row] for row in X.tolist()]
    text = [delimiter.join(f"{mark}{cell}{mark}" for cell in row) for row in ([names] if names else []) + rows]
    end = str(rng.choice(["\n", "\r\n"]))
    path = tmp_path / str(rng.choice(["x.csv", "x.txt", "x.tsv"]))
    path.write_bytes((end.join(text) + str(rng.choice(["", end]))).encode(str(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))))
    source = open_source(path)
    assert source.feature_names == names, source.notes
    np.testing.assert_array_equal(np.concatenate([block.rows for block in source.blocks(int(rng.choice([1, 19, 400])))]), X)


def test_numbers_that_can_be_read_in_two_ways(tmp_path: Path) -> None:
    """Three decimals between semicolons are decimals; thousands where the option says so, and a question where both are likely."""
    path = tmp_path / "x.csv"
    path.write_text("n;heat\n1;21.500\n2;22.125\n3;19.875\n")
    assert next(open_source(path).blocks()).rows[:, 1].tolist() == [21.5, 22.125, 19.875]
    assert next(open_source(path, thousands=".").blocks()).rows[:, 1].tolist() == [21500, 22125, 19875]
    path.write_text("n;heat\n1;1.500\n2;987\n")
    with pytest.raises(SourceError, match=r"'1\.500' may be 1500 or 1\.500; say which: --set thousands=\. or --set decimal=\."):
        open_source(path)


@pytest.mark.parametrize(("sign", "decimal"), [(",", "."), (".", ","), (" ", ","), ("'", "."), ("\u202f", ",")])
def test_thousands_by_every_sign(tmp_path: Path, sign: str, decimal: str) -> None:
    X = np.round(clean() * 1e5, 2)
    cells = [[f"{value:,.2f}".translate({44: sign, 46: decimal}) for value in row] for row in X.tolist()]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["\t".join("abcde"), *map("\t".join, cells)]) + "\n")
    told: dict[str, Any] = {"thousands": sign, "decimal": decimal}
    with pytest.raises(SourceError, match=r"(is|are) text"):
        open_source(path)
    source = open_source(path, **told)
    np.testing.assert_array_equal(np.concatenate([block.rows for block in source.blocks(7)]), X, err_msg=str(source.notes))


def test_a_json_list_that_is_missing_in_the_first_row_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"v": null}\n{"v": [1, 2]}\n{"v": [3, 4]}\n')
    (block,) = open_source(path).blocks()
    assert block.rows.tolist() == [[1, 2], [3, 4]]
    assert [bad.row for bad in block.bad] == [1]


def test_names_of_genes_of_raw_counts(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.abs(clean()), var=pd.DataFrame(index=list("abcde")))
    cells.raw = cells.copy()
    cells[:, :3].copy().write_h5ad(tmp_path / "x.h5ad")
    assert open_source(f"{tmp_path / 'x.h5ad'}::raw/X").feature_names == list("abcde")


def test_words_for_yes_and_no_are_parsed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pandas writes booleans; a number among them later is one all the same."""
    rows = [(i % 3 == 0, i / 4) for i in range(500)]
    (tmp_path / "x.csv").write_text("yes,a\n" + "".join(f"{yes},{a}\n" for yes, a in rows))
    with monkeypatch.context() as patched:
        patched.setattr("online_psp.io.sources.text.Cells._one_by_one", lambda *_: pytest.fail("cells were parsed one by one"))
        assert open_source(tmp_path / "x.csv").gather().tolist() == [[float(yes), a] for yes, a in rows]
    (tmp_path / "x.csv").write_text("yes,a\n" + "".join(f"{yes},{a}\n" for yes, a in rows) + "0.5,7\n")
    assert open_source(tmp_path / "x.csv").gather()[-1].tolist() == [0.5, 7]


def test_a_workbook_that_unpacks_to_more_than_is_allowed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
        book.writestr("xl/sharedStrings.xml", " " * 50_000_000)
    with pytest.raises(SourceError, match=r"the workbook, which is read as a whole, would take 50\.0 MB"):
        open_source(tmp_path / "x.xlsx", max_memory=1 << 24)


def test_a_line_of_units_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\nm,s\n1,2\n3,4\n")
    source = open_source(path)
    (block,) = source.blocks()
    assert source.feature_names == ["a", "b"]
    assert block.rows.tolist() == [[1, 2], [3, 4]]
    assert [bad.row for bad in block.bad] == [1]


def test_the_file_that_is_cut_short_is_named_among_several(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f"{i},{i * i % 7}.5\n" for i in range(200_000))
    for i in range(3):
        (tmp_path / f"{i}.csv.gz").write_bytes(gzip.compress(text.encode())[: -100 if i == 1 else None])
    with pytest.raises(SourceError, match=r"1\.csv\.gz, after row \d+: the data cannot be read \(Compressed file ended"):
        list(open_source(tmp_path).blocks())
