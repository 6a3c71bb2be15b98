"""A folder of small messy files, as people have them, and what must come of each: the rows of the clean table, or one sentence."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from online_psp.engine.types import Floats

NAMES = ["depth", "speed", "heat", "load", "noise"]
N = 60


def clean() -> Floats:
    """The table that all of them hold, (60, 5)."""
    rng = np.random.default_rng(11)
    return np.round(rng.standard_normal((N, 5)) * [5, 3, 2, 1, 0.5] + [100, 0, -7, 3, 0.25], 6)


class Case(NamedTuple):
    """A messy file."""

    name: str
    write: Callable[[Path, Floats], Any]
    """Writes into a folder, and gives the source and what it is called."""
    options: dict[str, Any]
    said: str | None
    """A pattern of the one sentence that must come; None: the rows of the clean table must."""
    names: list[str] | None
    """Of the features."""
    notes: str
    """A pattern that some note or warning must match."""


CASES: list[Case] = []


def case(
    said: str | None = None, names: Sequence[str] | None = tuple(NAMES), notes: str = "", **options: Any
) -> Callable[[Callable[[Path, Floats], Any]], Callable[[Path, Floats], Any]]:
    """Register a writer."""

    def register(write: Callable[[Path, Floats], Any]) -> Callable[[Path, Floats], Any]:
        CASES.append(Case(write.__name__, write, options, said, None if names is None else list(names), notes))
        return write

    return register


def lines(X: Floats, delimiter: str = ",", names: Sequence[str] | None = tuple(NAMES), decimal: str = ".") -> list[str]:
    """The clean table as lines of text."""
    rows = [delimiter.join(repr(value).replace(".", decimal) for value in row) for row in X.tolist()]
    return [delimiter.join(names), *rows] if names else rows


def put(path: Path, text: str | list[str], encoding: str = "utf-8", end: str = "\n") -> Path:
    """Write lines, each with its end."""
    whole = text if isinstance(text, str) else end.join(text) + end
    path.write_bytes(whole.encode(encoding))
    return path


# Text that is right


@case(notes="header: yes, 5 columns: depth, speed")
def plain(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X))


@case(names=None, notes="header: no, 5 columns")
def without_names(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=None))


@case()
def without_last_newline(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "\n".join(lines(X)))


@case(notes="delimiter ';', decimal ','")
def european(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, ";", decimal=","))


@case(notes="delimiter 'tab', decimal ','")
def european_tabs_in_a_csv(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, "\t", decimal=","))


@case(notes=r"delimiter '\|'")
def bars(folder: Path, X: Floats) -> Any:
    return put(folder / "x.txt", lines(X, "|"))


@case(notes="delimiter 'whitespace'")
def aligned_by_spaces(folder: Path, X: Floats) -> Any:
    rows = ["  " + "   ".join(f"{cell:>14}" for cell in line.split(",")) + "  " for line in lines(X)]
    return put(folder / "x.txt", rows)


@case(names=None)
def savetxt(folder: Path, X: Floats) -> Any:
    np.savetxt(folder / "x.txt", X)
    return folder / "x.txt"


@case(notes="names taken from the comment")
def savetxt_with_a_header(folder: Path, X: Floats) -> Any:
    np.savetxt(folder / "x.txt", X, delimiter=",", header=",".join(NAMES))
    return folder / "x.txt"


@case(notes="lines that begin with '#' are comments")
def comments_in_between(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ["# made by an instrument", "# on a Tuesday", "", *text[:9], "# paused", *text[9:]])


@case(notes="3 lines before the table skipped")
def words_before_the_table(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["Export of station 7", "", "Operator: Doe", "All values in SI units", *lines(X)])


@case(skip_rows=2)
def lines_to_skip(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["1,2", "3,4", *lines(X)])


@case(skip_rows=2, names=None)
def lines_to_skip_without_names(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["1,2,3,4,5", "3,4,5,6,7", *lines(X, names=None)])


@case(notes="delimiter ';'")
def excel_sep_line(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["sep=;", *lines(X, ";")])


@case()
def windows(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X), "utf-8-sig", "\r\n")


@case()
def old_mac(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X), end="\r")


@case(notes="encoding utf-16")
def utf_16(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X), "utf-16")


@case(names=["Tiefe µ", "Größe", *NAMES[2:]], notes="encoding cp1252")
def windows_1252(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["Tiefe µ", "Größe", *NAMES[2:]]), "cp1252")


@case()
def blank_lines_everywhere(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["", *[part for line in lines(X) for part in (line, "", "   ")], ""])


@case()
def spaces_around_cells(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [line.replace(",", " , ") for line in lines(X)])


@case()
def quoted_numbers(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [",".join(f'"{cell}"' for cell in line.split(",")) for line in lines(X)])


@case(notes="decimal ','")
def quoted_decimal_commas(folder: Path, X: Floats) -> Any:
    rows = [",".join(f'"{str(cell).replace(".", ",")}"' for cell in row) for row in X.tolist()]
    return put(folder / "x.csv", [",".join(NAMES), *rows])


@case(names=["a, b", 'c "d"', *NAMES[2:]])
def names_with_commas_and_quotes(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ['"a, b","c ""d""",' + ",".join(NAMES[2:]), *lines(X)[1:]])


@case(notes="an empty last column")
def a_delimiter_at_every_end(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [line + "," for line in lines(X)])


@case(names=["depth", "depth.1", *NAMES[2:]], notes=r"numbered: depth\.1")
def names_twice(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["depth", "depth", *NAMES[2:]]))


@case(names=["2019", "2020", "2021", "2022", "2023"], notes="counts up and was taken as names")
def years_as_names(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["2019", "2020", "2021", "2022", "2023"]))


@case(notes="unnamed first column 0, 1, 2, … was taken as row numbers and left out")
def pandas_index(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(notes="was taken as row numbers and left out")
def pandas_index_after_a_filter(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES, index=3 * np.arange(N) + 2).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(names=["0", "1", "2", "3", "4"], notes="counts up and was taken as names")
def pandas_without_names(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(notes="first column of text .* was taken as row labels")
def r_write_csv(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ['"",' + ",".join(f'"{name}"' for name in NAMES), *(f'"s{i}",{line}' for i, line in enumerate(text[1:]))])


@case(notes="left out")
def r_write_table(folder: Path, X: Floats) -> Any:
    text = lines(X, " ")
    return put(folder / "x.txt", [text[0], *(f"{i} {line}" for i, line in enumerate(text[1:], 1))])


@case(exclude="name")
def a_column_of_text_left_out(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ["name," + text[0], *(f'"Doe, J. {i}",{line}' for i, line in enumerate(text[1:]))])


@case(exclude="note")
def line_ends_inside_of_quotes(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0] + ",note", *(f'{line},"one\n\ntwo, three"' for line in text[1:])])


@case(columns=["depth", "2-4", "no*"], names=NAMES)
def columns_by_name_range_and_pattern(folder: Path, X: Floats) -> Any:
    text = [[*line.split(",")] for line in lines(X)]
    return put(folder / "x.csv", [",".join([row[0], "x" if i else "label", *row[1:]]) for i, row in enumerate(text)])


@case(na_values=["-999"], missing="keep")
def no_value_is_missing_after_all(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X))


@case(exclude="pipe")
def inches(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0] + ",pipe", *(f'{line},5" by {i}" and a "' for i, line in enumerate(text[1:]))])


@case(exclude="pipe")
def quoted_and_inches(folder: Path, X: Floats) -> Any:
    text = lines(X)
    words = ['"steel, 5"', '7" wide']
    return put(folder / "x.csv", [text[0] + ",pipe", *(f"{line},{words[i % 2]}" for i, line in enumerate(text[1:]))])


@case(notes="delimiter ';', decimal ',', thousands '\\.'", exclude="Größe", thousands=".")
def excel_in_german(folder: Path, X: Floats) -> Any:
    def written(value: float) -> str:
        return f"{value:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")

    rows = [f"{written(1e6 * i)};{line}" for i, line in enumerate(lines(X, ";", None, ","))]
    return put(folder / "x.csv", [";".join(["Größe", *NAMES]), *rows], "cp1252", "\r\n")


@case(notes="delimiter ',', decimal '\\.', thousands ','", exclude="big", thousands=",")
def thousands_in_quotes(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ["big," + text[0], *(f'"{1234.5 + i:,}",{line}' for i, line in enumerate(text[1:]))])


@case(notes="3 lines before the table skipped")
def title_lines_with_delimiters(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["Report of station 7;;;;", "Operator;9;;;", ";;;;", *lines(X, ";", decimal=",")], "utf-8-sig", "\r\n")


@case(r"x\.csv, row 1 \(line 2\): it has the text 'm' in column 0 \('depth'\), right below the names \(--set skip_rows=1 if")
def units_below_the_names(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0], "m,m/s,,,dB", *text[1:]])


@case(notes="was taken as row labels and left out")
def pandas_with_two_indices(folder: Path, X: Floats) -> Any:
    index = pd.MultiIndex.from_product([["a", "b"], range(N // 2)])
    pd.DataFrame(X, columns=NAMES, index=index).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(notes="an unnamed second column 0, 1, 2, … was taken as row numbers and left out")
def pandas_written_and_read_and_written(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_csv(folder / "once.csv")
    pd.read_csv(folder / "once.csv").to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(notes="was taken as row numbers and left out")
def pandas_index_after_a_shuffle(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES, index=np.random.default_rng(0).permutation(N)).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case(names=["2023", "2022", "2021", "2020", "2019"], notes="counts down and was taken as names")
def years_that_fall(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["2023", "2022", "2021", "2020", "2019"]))


@case(names=["400.0", "400.5", "401.0", "401.5", "402.0"], notes="counts up and was taken as names")
def wavelengths_as_names(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["400.0", "400.5", "401.0", "401.5", "402.0"]))


@case(names=["2019", "2020", "2021", "2022", "2023"], notes="counts up and was taken as names", ids="Country")
def countries_and_years(folder: Path, X: Floats) -> Any:
    text = lines(X, names=["2019", "2020", "2021", "2022", "2023"])
    return put(folder / "x.csv", ["Country," + text[0], *(f"C{i},{line}" for i, line in enumerate(text[1:]))])


@case(exclude="note")
def quoted_cells_of_several_lines_first(folder: Path, X: Floats) -> Any:
    frame = pd.DataFrame(X, columns=NAMES)
    frame.insert(0, "note", [f'one\ntwo, {i}\n\n"three"' for i in range(N)])
    frame.to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


@case(notes="read as text, by its first bytes")
def text_without_an_ending(folder: Path, X: Floats) -> Any:
    return put(folder / "measurements", lines(X, "\t"))


@case(names=None, notes="read as text, by its first bytes")
def fixed_width_in_a_dat(folder: Path, X: Floats) -> Any:
    return put(folder / "x.dat", ["".join(f"{value:14.6f}" for value in row) for row in X.tolist()])


@case(exclude=5, names=None)
def iris_data(folder: Path, X: Floats) -> Any:
    return put(folder / "iris.data", [*(f"{line},Iris-setosa" for line in lines(X, names=None)), "", ""])


@case(names=["PAR1", "PAR2", *NAMES[2:]])
def names_that_look_like_parquet(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, names=["PAR1", "PAR2", *NAMES[2:]]))


# Compressed, packed, in pieces


@case(notes="compressed by gzip")
def gzipped(folder: Path, X: Floats) -> Any:
    (folder / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines(X)).encode()))
    return folder / "x.csv.gz"


@case(notes="compressed by gzip")
def gzipped_twice_appended_under_a_plain_name(folder: Path, X: Floats) -> Any:
    text = [line + "\n" for line in lines(X)]
    (folder / "x.csv").write_bytes(gzip.compress("".join(text[:20]).encode()) + gzip.compress("".join(text[20:]).encode()))
    return folder / "x.csv"


@case()
def plain_under_the_name_of_gzip(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv.gz", lines(X))


@case(notes="compressed by bzip2")
def bzip2(folder: Path, X: Floats) -> Any:
    (folder / "x.tsv.bz2").write_bytes(bz2.compress("\n".join(lines(X, "\t")).encode()))
    return folder / "x.tsv.bz2"


@case(notes="compressed by xz")
def xz(folder: Path, X: Floats) -> Any:
    (folder / "x.csv.xz").write_bytes(lzma.compress("\n".join(lines(X)).encode()))
    return folder / "x.csv.xz"


@case(notes="compressed by zstd")
def zstd(folder: Path, X: Floats) -> Any:
    with pa.output_stream(folder / "x.csv.zst", compression="zstd") as file:
        file.write("\n".join(lines(X)).encode())
    return folder / "x.csv.zst"


@case()
def in_a_zip(folder: Path, X: Floats) -> Any:
    with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.md", "what this is")
        archive.writestr("data/x.csv", "\n".join(lines(X)))
        archive.writestr("__MACOSX/data/._x.csv", "nothing")
    return folder / "x.zip"


@case()
def one_of_several_in_a_zip(folder: Path, X: Floats) -> Any:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("other.csv", "a,b\n1,2\n")
        archive.writestr("x.csv", "\n".join(lines(X)))
    return f"{folder / 'x.zip'}::x.csv"


@case(notes="3 files")
def a_folder_numbered_by_people(folder: Path, X: Floats) -> Any:
    text = lines(X)
    for name, part in (("part2", text[1:20]), ("part10", text[20:50]), ("part11", text[50:])):
        put(folder / f"{name}.csv", [text[0], *part])
    put(folder / "notes.txt", "not data\n")
    return folder


@case(notes="3 files")
def a_pattern_with_one_header(folder: Path, X: Floats) -> Any:
    text = lines(X)
    for i, part in enumerate((text[:20], text[20:21], text[21:])):
        (folder / f"{i}.csv.gz").write_bytes(gzip.compress("\n".join(part).encode()))
    return f"{folder}/*.csv.gz"


@case(notes="2 files")
def a_list_with_columns_in_another_order(folder: Path, X: Floats) -> Any:
    turned = [2, 0, 4, 1, 3]
    put(folder / "b.csv", lines(X[:31]))
    put(folder / "a.csv", lines(X[31:, turned], ";", [NAMES[i] for i in turned]))
    return [folder / "b.csv", folder / "a.csv"]


# Other formats


@case()
def json_lines(folder: Path, X: Floats) -> Any:
    return put(folder / "x.jsonl", [json.dumps(dict(zip(NAMES, row, strict=True))) for row in X.tolist()])


@case()
def json_lines_in_any_order(folder: Path, X: Floats) -> Any:
    rows = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    return put(folder / "x.ndjson", [json.dumps(dict(reversed(row.items())) if i % 2 else row) for i, row in enumerate(rows)])


@case(names=None)
def json_lists(folder: Path, X: Floats) -> Any:
    return put(folder / "x.jsonl", [json.dumps(row) for row in X.tolist()])


@case(names=[f"embedding.{i}" for i in range(5)], columns="embedding")
def json_embeddings(folder: Path, X: Floats) -> Any:
    return put(folder / "x.jsonl", [json.dumps({"id": f"r{i}", "embedding": row}) for i, row in enumerate(X.tolist())])


@case(notes="sheet 'Data' of 2")
def excel(folder: Path, X: Floats) -> Any:
    book = openpyxl.Workbook()
    book.active.title = "Data"
    for row in [NAMES, *X.tolist()]:
        book.active.append(row)
    book.create_sheet("Other").append(["nothing"])
    book.save(folder / "x.xlsx")
    return folder / "x.xlsx"


@case(notes="row index __index_level_0__ of pandas was left out")
def parquet_with_the_index_of_pandas(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES, index=[f"s{i}" for i in range(N)]).to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


@case()
def parquet_in_capitals(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "X.PARQUET")
    return folder / "X.PARQUET"


@case(names=[f"v.{i}" for i in range(5)])
def parquet_lists_of_one_length(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table({"v": pa.array(X.tolist(), pa.list_(pa.float64()))}), folder / "x.parquet", row_group_size=17)
    return folder / "x.parquet"


@case(names=None)
def npy_in_pieces(folder: Path, X: Floats) -> Any:
    for i, part in enumerate(np.array_split(X, 12)):
        np.save(folder / f"{i}.npy", part)
    return folder


@case(names=None)
def npy_gzipped(folder: Path, X: Floats) -> Any:
    np.save(folder / "x.npy", X)
    (folder / "x.npy.gz").write_bytes(gzip.compress((folder / "x.npy").read_bytes()))
    return folder / "x.npy.gz"


@case(notes="read as parquet, by its first bytes")
def parquet_under_the_name_of_text(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "x.csv")
    return folder / "x.csv"


@case(notes="the row index day of pandas was left out")
def parquet_with_a_named_index(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES, index=pd.Index(np.random.default_rng(0).permutation(N), name="day")).to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


@case()
def json_lines_named_json(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_json(folder / "x.json", orient="records", lines=True, double_precision=15)
    return folder / "x.json"


@case(names=["2019", "2020", "2021", "2022", "2023"], notes="counts up and was taken as names")
def excel_with_years(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=[2019, 2020, 2021, 2022, 2023]).to_excel(folder / "x.xlsx", index=False)
    return folder / "x.xlsx"


@case(r"x\.xlsx, row 1 \(sheet row 3\): it has the text 'm' in column 0 \('depth'\), right below the names")
def excel_with_a_title_and_units(folder: Path, X: Floats) -> Any:
    book = openpyxl.Workbook()
    for row in [["Report"], NAMES, ["m", "m/s", None, None, "dB"], *X.tolist()]:
        book.active.append(row)
    book.save(folder / "x.xlsx")
    return folder / "x.xlsx"


@case(names=[f"gene{i}" for i in range(5)], notes="genes are its rows, by the tables beside it")
def cell_ranger_folder(folder: Path, X: Floats) -> Any:
    entries = [f"{i + 1} {j + 1} {value!r}" for j, row in enumerate(X.tolist()) for i, value in enumerate(row)]
    text = ["%%MatrixMarket matrix coordinate real general", f"5 {N} {len(entries)}", *entries]
    (folder / "matrix.mtx.gz").write_bytes(gzip.compress("\n".join(text).encode()))
    (folder / "features.tsv.gz").write_bytes(gzip.compress("".join(f"ENS{i}\tgene{i}\tGene Expression\n" for i in range(5)).encode()))
    (folder / "barcodes.tsv.gz").write_bytes(gzip.compress("".join(f"AC{i}-1\n" for i in range(N)).encode()))
    return folder


@case(notes="1 line before the table skipped")
def groups_above_the_names(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", ["place,,weather,,", *lines(X)])


@case()
def a_delimiter_at_the_end_of_the_names_only(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0] + ",", *text[1:]])


@case(notes="2 empty last columns were left out")
def two_empty_columns_at_the_end(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [line + ",," for line in lines(X)])


@case(names=None)
def double_precision_of_fortran(folder: Path, X: Floats) -> Any:
    return put(folder / "x.txt", ["  ".join(f"{value:.15E}".replace("E", "D") for value in row) for row in X.tolist()])


@case(notes="no line end and was taken as whole")
def the_last_line_may_be_cut(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "\n".join(lines(X)))


@case(r"a\.csv has no column 'extra': it has 5 by name", exclude="extra")
def a_column_of_one_file_left_out(folder: Path, X: Floats) -> Any:
    text = lines(X)
    put(folder / "a.csv", text[:31])
    put(folder / "b.csv", [text[0] + ",extra", *(line + ",1" for line in text[31:])])
    return [folder / "a.csv", folder / "b.csv"]


@case(ids="load.1", columns="*")
def a_column_of_ids_among_the_columns(folder: Path, X: Floats) -> Any:
    rows = [line.split(",") for line in lines(X)]
    return put(folder / "x.csv", [",".join([*row[:3], "load.1" if i == 0 else f"r{i}", *row[3:]]) for i, row in enumerate(rows)])


@case(names=[f"at.{name}" for name in NAMES])
def json_objects_in_objects(folder: Path, X: Floats) -> Any:
    return put(folder / "x.jsonl", [json.dumps({"at": dict(zip(NAMES, row, strict=True))}) for row in X.tolist()])


@case(names=None, notes="goes on for 7 bytes after its array, which were not read")
def npy_that_goes_on(folder: Path, X: Floats) -> Any:
    np.save(folder / "x.npy", X)
    with (folder / "x.npy").open("ab") as file:
        file.write(b"and on.")
    return folder / "x.npy"


# What is wrong, and said


@case(r"x\.csv: column 0 \('name'\) is text \('Doe', …\): leave it out \(--exclude 0\), or pick the columns .*\(--columns\)")
def a_column_of_text(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ["name," + text[0], *("Doe," + line for line in text[1:])])


@case(r"x\.csv: column 3 \('day, month'\) is text \('2026-01-31', …\): leave it out \(--exclude 3\)")
def a_column_of_dates(folder: Path, X: Floats) -> Any:
    rows = [line.split(",") for line in lines(X)]
    return put(folder / "x.csv", [",".join([*row[:3], "2026-01-31" if i else '"day, month"', *row[3:]]) for i, row in enumerate(rows)])


@case(r"x\.csv, row 31 \(line 33\): it has the text 'broken' in column 2 \('heat'\)")
def a_word_in_the_middle(folder: Path, X: Floats) -> Any:
    text = lines(X)
    text[31] = ",".join([*text[31].split(",")[:2], "broken", *text[31].split(",")[3:]])
    return put(folder / "x.csv", [*text[:5], "", *text[5:]])


@case(r"x\.csv, row 60 \(line 61\): it has an empty or NaN value in column 4 \('noise'\)")
def a_missing_value_in_the_last_row(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:-1], text[-1].rpartition(",")[0] + ",NA"])


@case(r"x\.csv, row 8 \(line 9\): it has an empty or NaN value in column 1", na_values="-999")
def a_number_that_stands_for_nothing(folder: Path, X: Floats) -> Any:
    text = lines(X)
    cells = text[8].split(",")
    return put(folder / "x.csv", [*text[:8], ",".join([cells[0], "-999", *cells[2:]]), *text[9:]])


@case(r"x\.csv, row 12 \(line 13\): it has 4 values where 5 are expected")
def a_row_cut_short(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], text[12].rpartition(",")[0], *text[13:]])


@case(r"x\.csv, row 12 \(line 13\): it has 6 values where 5 are expected")
def a_row_with_a_value_too_many(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], text[12] + ",1", *text[13:]])


@case(r"x\.csv, row 12 \(line 13\): it has the text '12 345' in column 0 \('depth'\) \(--set thousands=' ' if it is a number\)")
def a_number_with_a_space_in_it(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], "12 345," + text[12].partition(",")[2], *text[13:]])


@case(r"x\.tsv: '1,100' may be 1100 or 1\.100; say which: --set thousands=, or --set decimal=,")
def commas_that_may_be_either(folder: Path, X: Floats) -> Any:
    return put(folder / "x.tsv", ["\t".join(NAMES), *("\t".join(f"{1000 + abs(int(value)):,}" for value in row) for row in X.tolist())])


@case(r"x\.csv: '1\.00\d' may be 100\d or 1\.00\d; say which: --set thousands=\. or --set decimal=\.")
def points_that_may_be_either(folder: Path, X: Floats) -> Any:
    rows = [";".join(f"{899 + abs(int(value)):,}".replace(",", ".") for value in row) for row in X.tolist()]
    return put(folder / "x.csv", [";".join(NAMES), *rows])


@case(r"x\.csv, row 12 \(line 13\): it has the text '\?' in column 0 \('depth'\) \(--na-values '\?' if it stands for a missing value\)")
def a_question_mark(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], "?," + text[12].partition(",")[2], *text[13:]])


@case(r"x\.csv, row 12 \(line 13\): it has 1 value where 5 are expected \(--set comment='#' if it is a comment\)")
def a_comment_late(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], "# paused", *text[12:]])


@case(r"x\.csv, row 40 \(line 41\): it has the text '(\d|\.)+' in column 0")
def one_row_with_points_among_commas(folder: Path, X: Floats) -> Any:
    text = lines(X, ";", decimal=",")
    return put(folder / "x.csv", [*text[:40], text[40].replace(",", "."), *text[41:]])


@case(r"x\.csv, row 1 \(line 2\): it has the text 'bad' in column 0")
def a_bad_first_row_is_no_line_of_units(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0], "bad," + text[1].partition(",")[2], *text[2:]])


@case(r"x\.npy cannot be read as npy \(the magic string")
def text_under_the_name_of_numpy(folder: Path, X: Floats) -> Any:
    return put(folder / "x.npy", lines(X))


@case(r"x\.json is one JSON array or object with all rows in it; write JSON lines")
def json_array(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_json(folder / "x.json", orient="records")
    return folder / "x.json"


@case(r"x\.xls cannot be read as excel")
def old_excel(folder: Path, X: Floats) -> Any:
    (folder / "x.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    return folder / "x.xls"


@case(r"x\.pkl is a pickle, which is not read here: write its table as \.csv or \.parquet")
def a_pickle(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X).to_pickle(folder / "x.pkl")
    return folder / "x.pkl"


@case(r"measurments\.csv does not exist \(is .*measurements\.csv meant\?\)")
def a_file_misspelt(folder: Path, X: Floats) -> Any:
    put(folder / "measurements.csv", lines(X))
    return folder / "measurments.csv"


@case(r"x\.xlsx::Info has no numbers in its first rows: .* This is the first sheet; .*x\.xlsx::NAME reads another \(Data\)")
def excel_with_words_in_the_first_sheet(folder: Path, X: Floats) -> Any:
    with pd.ExcelWriter(folder / "x.xlsx") as book:
        pd.DataFrame({"made by": ["a machine"]}).to_excel(book, sheet_name="Info", index=False)
        pd.DataFrame(X, columns=NAMES).to_excel(book, sheet_name="Data", index=False)
    return folder / "x.xlsx"


@case(r"x\.npy, row 5: it has an empty or NaN value in column 2", na_values="-999")
def a_number_that_stands_for_nothing_in_numpy(folder: Path, X: Floats) -> Any:
    holed = X.copy()
    holed[4, 2] = -999
    np.save(folder / "x.npy", holed)
    return folder / "x.npy"


@case(r"x\.csv, row 5 \(line 6\): it has an empty or NaN value in column 2", na_values="-9999")
def a_number_that_stands_for_nothing_written_otherwise(folder: Path, X: Floats) -> Any:
    holed = X.copy()
    holed[4, 2] = -9999.0
    return put(folder / "x.csv", lines(holed))


@case(r"x\.csv\.gz cannot be read \(EOFError: Compressed file ended before")
def gzip_cut_short(folder: Path, X: Floats) -> Any:
    (folder / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines(X)).encode())[:-200])
    return folder / "x.csv.gz"


@case(r"x\.csv is empty\.")
def empty(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "")


@case(r"x\.csv has zero bytes in it, from line 1 on: it is not text")
def something_binary(folder: Path, X: Floats) -> Any:
    (folder / "x.csv").write_bytes(X.astype(np.uint8).tobytes() + b"\0" * 100)
    return folder / "x.csv"


@case(r"columns of .*1\.csv are not those of .*0\.csv: 'heat' is missing, and 'warmth' is unknown")
def files_with_other_columns(folder: Path, X: Floats) -> Any:
    put(folder / "0.csv", lines(X))
    put(folder / "1.csv", lines(X, names=["depth", "speed", "warmth", "load", "noise"]))
    return folder


@case(r"1\.csv begins with names \(depth, speed, heat, …\), and .*0\.csv does not")
def names_in_the_second_file_only(folder: Path, X: Floats) -> Any:
    put(folder / "0.csv", lines(X, names=None))
    put(folder / "1.csv", lines(X))
    return folder


@case(r"x\.csv has no column 'spede' \(is 'speed' meant\?\): it has 5 by name", columns=["depth", "spede"])
def a_name_misspelt(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X))


@case(r"x\.jsonl, row 3 \(line 3\): it is not JSON")
def json_cut_short(folder: Path, X: Floats) -> Any:
    text = [json.dumps(row) for row in X.tolist()]
    return put(folder / "x.jsonl", [*text[:2], text[2][:10], *text[3:]])


@case(r"x\.parquet, row 3: it has a list of 4 values where one of 5 is expected in column 0 \('v'\)")
def parquet_lists_of_two_lengths(folder: Path, X: Floats) -> Any:
    rows = X.tolist()
    rows[2] = rows[2][:4]
    pq.write_table(pa.table({"v": pa.array(rows, pa.list_(pa.float64()))}), folder / "x.parquet")
    return folder / "x.parquet"


@case(r"x\.parquet: column 1 \('name'\) is of (large_)?string, not numbers: leave it out \(--exclude 1\)")
def parquet_with_text(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table({"a": X[:, 0], "name": ["x"] * N}), folder / "x.parquet")
    return folder / "x.parquet"


@case(r"x\.csv, row 31 \(line 32\): it has the names of the columns again, as where files were joined")
def files_joined_with_their_names(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:31], text[0], *text[31:]])


@case(r"x\.csv, line 33: another line of names comes in the middle \(heat, depth, noise, …\), and it is not that of the first line")
def files_joined_with_names_in_another_order(folder: Path, X: Floats) -> Any:
    turned = [2, 0, 4, 1, 3]
    return put(folder / "x.csv", [*lines(X[:31]), *lines(X[31:, turned], names=[NAMES[i] for i in turned])])


@case(r"x\.csv: column 4 \('noise'\) is text \('0\.101015 %', …\): leave it out")
def numbers_with_a_unit(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0], *(line + " %" for line in text[1:])])


@case(r"x\.csv is HTML or XML, not a table")
def a_page_in_place_of_a_table(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "<!DOCTYPE html>\n<html><body>404, not found</body></html>\n")


@case(r"x\.npy is a pointer of Git LFS, not the data: fetch it with git lfs pull")
def a_pointer_of_git_lfs(folder: Path, X: Floats) -> Any:
    return put(folder / "x.npy", ["version https://git-lfs.github.com/spec/v1", f"oid sha256:{'0' * 64}", "size 12345"])


@case(r"has both .*x\.csv and .*x\.csv\.gz: the rows would count twice")
def a_file_beside_its_compressed_copy(folder: Path, X: Floats) -> Any:
    put(folder / "x.csv", lines(X))
    (folder / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines(X)).encode()))
    return folder


@case(r"has both .*x\.csv and .*x\.csv\.gz: the rows would count twice")
def a_file_and_its_compressed_copy_by_name(folder: Path, X: Floats) -> Any:
    a_file_beside_its_compressed_copy(folder, X)
    return [folder / "x.csv", folder / "x.csv.gz"]


@case(r"has .*x\.csv twice: the rows would count twice")
def a_file_given_twice(folder: Path, X: Floats) -> Any:
    return [put(folder / "x.csv", lines(X))] * 2


@case(r"has .*a\.csv twice: the rows would count twice")
def a_folder_and_a_file_in_it(folder: Path, X: Floats) -> Any:
    put(folder / "a.csv", lines(X[:31]))
    put(folder / "b.csv", lines(X[31:]))
    return [folder, folder / "a.csv"]


@case(r"a\.csv has no column 'exrta': it has 5 by name", exclude="exrta")
def a_column_of_no_file_left_out(folder: Path, X: Floats) -> Any:
    put(folder / "a.csv", lines(X[:31]))
    put(folder / "b.csv", lines(X[31:]))
    return folder


@case(r"x\.csv is not raw binary, by its name: leave out features", features=5)
def text_as_raw_binary(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X))


@case(r"x\.json is one JSON array or object with all rows in it; write JSON lines")
def json_columns(folder: Path, X: Floats) -> Any:
    return put(folder / "x.json", json.dumps(dict(zip(NAMES, X.T.tolist(), strict=True))))


@case(r"x\.json is one JSON array or object with all rows in it; write JSON lines")
def json_as_pandas_writes_it(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_json(folder / "x.json")
    return folder / "x.json"


@case(r"x\.jsonl, row 1 \(line 1\): it has an empty or NaN value in column 2 \('heat'\)")
def json_without_a_key_in_the_first_row(folder: Path, X: Floats) -> Any:
    rows = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    del rows[0]["heat"]
    return put(folder / "x.jsonl", [json.dumps(row) for row in rows])


@case(r"matrix\.mtx is 5 × 60, and the tables beside it name 5 genes and 59 cells: they do not belong together")
def cell_ranger_folder_with_a_cell_less(folder: Path, X: Floats) -> Any:
    cell_ranger_folder(folder, X)
    put(folder / "barcodes.tsv", [f"AC{i}-1" for i in range(N - 1)])
    (folder / "barcodes.tsv.gz").unlink()
    (folder / "matrix.mtx").write_bytes(gzip.decompress((folder / "matrix.mtx.gz").read_bytes()))
    (folder / "matrix.mtx.gz").unlink()
    return folder


@case(r"matrix\.mtx\.gz has barcodes\.tsv beside it, but no features\.tsv")
def cell_ranger_folder_without_genes(folder: Path, X: Floats) -> Any:
    cell_ranger_folder(folder, X)
    (folder / "features.tsv.gz").unlink()
    return folder


@case(r"x\.csv, line 27: a quotation mark begins a cell there, and nothing closes it")
def a_quotation_mark_that_nothing_closes(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:26], '"' + text[26], *text[27:]])


@case(r"x\.csv, line 1: there are 5 names above rows of 10 values; are its commas decimal signs as well as delimiters\?")
def commas_between_values_and_in_them(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [text[0], *(line.replace(".", ",") for line in text[1:])])


@case(r"x\.csv has no numbers in its first rows \('.*', …\), read as one column; name its delimiter")
def a_delimiter_that_is_not_tried(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X, "~"))


@case()
def an_arrow_stream(folder: Path, X: Floats) -> Any:
    table = pa.table(dict(zip(NAMES, X.T, strict=True)))
    with pa.OSFile(str(folder / "x.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    return folder / "x.arrow"
