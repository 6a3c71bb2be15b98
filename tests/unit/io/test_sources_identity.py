"""A source that is not what it was is told from one that has only grown; reading goes on from a position, not from the beginning."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from online_psp.io.sources import DifferentSourceError, Position, Source, different, identity, open_source
from tests.messy_files import NAMES, clean, lines, put


def known(source: Source) -> dict[str, Any]:
    """An identity as a checkpoint gives it back."""
    return dict(json.loads(json.dumps(identity(source))))


def reached(source: Source, rows: int) -> Position:
    """The position after some rows, as a checkpoint gives it back."""
    for block in source.blocks(10):
        if block.start + block.length == rows:
            assert block.position is not None
            found = Position.of(json.loads(json.dumps(block.position.to_json())))
            assert found is not None
            return found
    raise AssertionError("the source is too short")


def rest_of(source: Source, position: Position) -> Any:
    parts = [block.rows for block in source.blocks(7, position)]
    return np.concatenate([part.toarray() if sparse.issparse(part) else part for part in parts])


def csv(folder: Path, X: Any) -> Path:
    return put(folder / "x.csv", lines(X))


def csv_gz(folder: Path, X: Any) -> Path:
    (folder / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines(X)).encode() + b"\n"))
    return folder / "x.csv.gz"


def csv_utf_16(folder: Path, X: Any) -> Path:
    return put(folder / "wide.csv", lines(X), encoding="utf-16")


def npy(folder: Path, X: Any) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def npz(folder: Path, X: Any) -> Path:
    np.savez_compressed(folder / "x.npz", X=X)
    return folder / "x.npz"


def parquet(folder: Path, X: Any) -> Path:
    pq.write_table(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "x.parquet", row_group_size=16)
    return folder / "x.parquet"


def json_bz2(folder: Path, X: Any) -> Path:
    (folder / "x.jsonl.bz2").write_bytes(bz2.compress("".join(json.dumps(row) + "\n" for row in X.tolist()).encode()))
    return folder / "x.jsonl.bz2"


def several(folder: Path, X: Any) -> Path:
    (folder / "many").mkdir(exist_ok=True)
    for i in range(3):
        put(folder / "many" / f"{i}.csv", lines(X[20 * i : 20 * i + 20]))
    return folder / "many"


def sparse_npz(folder: Path, X: Any) -> Path:
    sparse.save_npz(folder / "s.npz", sparse.csr_array(X))
    return folder / "s.npz"


MAKERS = [csv, csv_gz, csv_utf_16, npy, npz, parquet, json_bz2, several, sparse_npz]


@pytest.mark.parametrize("rows", [10, 30, 60])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_reading_goes_on_from_a_position_and_a_change_before_it_is_found(tmp_path: Path, maker: Any, rows: int) -> None:
    X = clean()
    path = maker(tmp_path, X)
    position = reached(open_source(path), rows)
    assert position.row == rows
    if rows < 60:
        np.testing.assert_array_equal(rest_of(open_source(path), position), X[rows:])
    else:
        assert list(open_source(path).blocks(7, position)) == []
    changed = X.copy()
    changed[rows - 1, 2] += 1
    maker(tmp_path, changed)
    with pytest.raises(DifferentSourceError, match=f"has changed before row {rows}"):
        list(open_source(path).blocks(7, position))
    if maker is not several:
        maker(tmp_path, X[: rows - 5])
        with pytest.raises(DifferentSourceError, match=r"ended after|has changed before"):
            list(open_source(path).blocks(7, position))


def test_a_csv_is_read_on_from_its_byte_and_opened_at_most_four_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.tile(clean(), (3000, 1))
    path = put(tmp_path / "x.csv", lines(X))
    position = reached(open_source(path), 179_000)
    opened, read = [0], [0]
    real = Path.open

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(-1 if size is None else size) or b""
            read[0] += len(data)
            return data

    def counting(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if self.name != "x.csv" or mode != "rb":
            return real(self, mode, *args, **options)
        opened[0] += 1
        return Counted(self)

    monkeypatch.setattr(Path, "open", counting)
    source = open_source(path)
    np.testing.assert_array_equal(rest_of(source, position), X[179_000:])
    assert different(identity(source), source, 180_000) is None
    assert opened[0] <= 4 + 1, "the last time is for the comparison above"
    assert read[0] < path.stat().st_size / 5, "rows before the position were read again"


def test_a_file_that_has_grown_is_the_same(tmp_path: Path) -> None:
    X = clean()
    for maker in (csv, npy, parquet):
        path = maker(tmp_path, X[:40])
        old, position = known(open_source(path)), reached(open_source(path), 40)
        maker(tmp_path, X)  # the header of .npy is another
        assert different(old, open_source(path), 40) is None
        np.testing.assert_array_equal(rest_of(open_source(path), position), X[40:])


def test_other_rows_and_sizes_are_named(tmp_path: Path) -> None:
    X = clean()
    old = known(open_source(csv(tmp_path, X)))
    changed = X.copy()
    changed[2, 1] += 1000
    assert "x.csv begins differently" in str(different(old, open_source(csv(tmp_path, changed)), 30))
    assert "x.csv has shrunk: it had" in str(different(old, open_source(csv(tmp_path, X[:-1])), 30))
    other = put(tmp_path / "other.csv", lines(X[::-1]))
    assert "is another file: it was x.csv, and is now other.csv" in str(different(old, open_source(other), 30))
    csv(tmp_path, X)
    put(tmp_path / "moved.csv", lines(X))
    assert different(old, open_source(tmp_path / "moved.csv"), 30) is None
    old = known(open_source(npy(tmp_path, X)))
    assert "shrunk" in str(different(old, open_source(npy(tmp_path, X[:20])), 30))


def test_other_columns_and_options_are_named(tmp_path: Path) -> None:
    X = clean()
    path = csv(tmp_path, X)
    old = known(open_source(path))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"columns": ["1", "0", "2-4"]}, "in another order: column 0 was 'depth', and is now 'speed'"),
        ({"columns": "0-3"}, "not what they were ('noise' missing): depth, speed, heat, load, noise; now depth, speed, heat, load."),
        ({"dtype": "float32"}, "dtype: float64, and now with dtype: float32"),
        ({"header": False, "skip_rows": 1}, "read with"),
        ({"missing": "keep"}, "missing: error, and now with missing: keep"),
        ({"na_values": ["7"]}, "na values: none, and now with na values: 7"),
        ({"keep_index": True}, "keep index: False, and now with keep index: True"),
    ]
    for options, message in cases:
        assert message in str(different(old, open_source(path, **options), 30)), options
    turned = [1, 0, 2, 3, 4]
    put(path, lines(X[:, turned], names=[NAMES[i] for i in turned]))
    assert "in another order" in str(different(old, open_source(path), 30))
    put(path, lines(X, ";"))
    assert "delimiter: ',', and now with delimiter: ';'" in str(different(old, open_source(path), 30))
    assert "The source was text (x.csv), and is now npy (x.npy)." in str(different(old, open_source(npy(tmp_path, X)), 30))
    np.save(tmp_path / "y.npy", X[:, :4])
    assert "had 5 features, and now has 4" in str(different(known(open_source(tmp_path / "x.npy")), open_source(tmp_path / "y.npy"), 30))


def test_a_last_line_that_was_being_written(tmp_path: Path) -> None:
    text = "\n".join(lines(clean()))
    path = put(tmp_path / "x.csv", text[:-3])  # cut inside of a number
    position = reached(open_source(path), 60)
    put(path, text + "\n")
    with pytest.raises(DifferentSourceError, match="has changed before row 60"):
        list(open_source(path).blocks(7, position))
    put(path, text[:-3] + "\n1,2,3,4,5\n")  # the line was whole, and only its end was missing
    assert rest_of(open_source(path), position).tolist() == [[1, 2, 3, 4, 5]]


def test_a_last_line_of_a_file_that_changes_is_held_back(tmp_path: Path) -> None:
    text = "\n".join(lines(np.tile(clean(), (2000, 1))))
    path = put(tmp_path / "x.csv", text[:-3])
    source = open_source(path)
    blocks = source.blocks(500)
    rows = next(blocks).length
    with path.open("a") as file:
        file.write(text[-3:])
    assert rows + sum(block.length for block in blocks) == 2000 * 60 - 1
    assert "held back" in source.warnings[0]


def test_several_files(tmp_path: Path) -> None:
    X = clean()
    for i in (1, 2, 10):
        put(tmp_path / f"{i}.csv", lines(X + i))
    old = known(open_source(tmp_path))
    assert old["names"] == ["1.csv", "2.csv", "10.csv"]
    put(tmp_path / "11.csv", lines(X))
    assert different(old, open_source(tmp_path), 180) is None
    put(tmp_path / "10.csv", lines(np.concatenate([X + 10, X])))
    assert different(old, open_source(tmp_path), 180) is None
    put(tmp_path / "3.csv", lines(X))
    assert "number 3 was 10.csv, and is now 3.csv" in str(different(old, open_source(tmp_path), 180))
    (tmp_path / "3.csv").unlink()
    (tmp_path / "11.csv").unlink()
    for rows, said in ((X[:30], "2.csv has shrunk"), (np.concatenate([X, X]), "2.csv has grown")):
        put(tmp_path / "2.csv", lines(rows))
        assert said in str(different(old, open_source(tmp_path), 180))
    (tmp_path / "2.csv").unlink()
    assert "had 3 files" in str(different(old, open_source(tmp_path), 180))


def test_a_pipe_is_known_by_its_first_rows_and_those_before_the_position(monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(text: str) -> Source:
        monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO(text.encode())}))
        return open_source("-")

    text = "\n".join(lines(clean())) + "\n"
    source = piped(text)
    position = reached(source, 30)
    old = known(source)
    assert old["head"] is not None
    for new in (text, text + "1,2,3,4,5\n"):
        source = piped(new)
        np.testing.assert_array_equal(rest_of(source, position)[:30], clean()[30:])
        assert different(old, source, 30) is None
    with pytest.raises(DifferentSourceError, match="has changed before row 30"):
        list(piped(text.replace("7", "8")).blocks(7, position))
    with pytest.raises(DifferentSourceError, match="ended after 20 rows, and the run had come to row 30"):
        list(piped("\n".join(lines(clean()[:20]))).blocks(7, position))


def test_objects() -> None:
    X = clean()
    old = known(open_source(X))
    assert different(old, open_source(X.copy()), 30) is None
    assert different(old, open_source(np.concatenate([X, X])), 30) is None
    assert "begins differently" in str(different(old, open_source(X + 1), 30))
    assert different(known(open_source(iter(X))), open_source(iter(X)), 30) is None
