"""More messy files, as spreadsheets of other countries, databases, instruments and crashes leave them; they join those of `messy_files`."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from online_psp.engine.types import Floats
from tests.messy_files import CASES, NAMES, N, case, lines, put

__all__ = ["CASES"]


def written(X: Floats, delimiter: str, cell: Callable[[float], str]) -> list[str]:
    """The table with each number written by `cell`."""
    return [delimiter.join(NAMES), *(delimiter.join(map(cell, row)) for row in X.tolist())]


def thousands(X: Floats, sign: str, decimal: str = ".") -> list[str]:
    """The table, after a column of large numbers."""
    large = f"{12345.5:,.1f}".replace(",", "_").replace(".", decimal).replace("_", sign)
    return ["big;" + ";".join(NAMES), *(f"{large};" + line.replace(".", decimal) for line in lines(X, ";", None))]


def lakhs(value: float) -> str:
    """1234567.5 as 12,34,567.5."""
    whole, _, fraction = f"{abs(value):.6f}".partition(".")
    groups = [whole[-3:]]
    while whole := whole[: -len(groups[0])] if len(groups) == 1 else whole[:-2]:
        groups.insert(0, whole[-2:])
    return ("-" if value < 0 else "") + ",".join(groups) + "." + fraction


# Read


@case(notes="thousands '’'", exclude="big", thousands="’")
def swiss_thousands(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", thousands(X, "\u2019"))


@case(notes="thousands", exclude="big", thousands="\u2009", decimal=",")
def thin_spaces_between_thousands(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", thousands(X, "\u2009", ","))


@case(notes="thousands ','", exclude="big", thousands=",")
def indian_thousands(folder: Path, X: Floats) -> Any:
    assert lakhs(1234567.5) == "12,34,567.500000"
    text = lines(X)
    return put(folder / "x.csv", ["big," + text[0], *(f'"{lakhs(1e6 + i)}",{line}' for i, line in enumerate(text[1:]))])


@case()
def minus_signs_of_unicode(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: repr(value).replace("-", "\u2212")))


@case(notes="decimal ','")
def dashes_for_minus_in_german(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ";", lambda value: repr(value).replace("-", "\u2013").replace(".", ",")))


@case(encoding="utf-16-le")
def utf_16_without_a_mark(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X), encoding="utf-16-le")


@case(r"x\.csv has zero bytes in it, .* its encoding must be named \(--set encoding=utf-16-le, …\)")
def utf_16_the_other_way_without_a_mark(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", lines(X), encoding="utf-16-be")


@case()
def two_byte_order_marks(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "\ufeff\ufeff" + "\n".join(lines(X)) + "\n")


@case()
def byte_order_marks_where_files_were_joined(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", ["\ufeff" + text[0], *text[1:31], "\ufeff" + text[31], *text[32:]])


@case(r"x\.txt, row 1 \(line 2\): it has 1 value where 5 are expected \('-----")
def a_line_drawn_below_the_names_by_postgres(folder: Path, X: Floats) -> Any:
    text = lines(X, " | ")
    return put(folder / "x.txt", [text[0], "+".join(["-" * 10] * 5), *text[1:]])


@case(r"x\.txt, row 1 \(line 3\): it has 1 value where 7 are expected")
def a_table_drawn_by_mysql(folder: Path, X: Floats) -> Any:
    rule = "+" + "+".join(["-" * 10] * 5) + "+"
    framed = [f"| {line} |" for line in lines(X, " | ")]
    return put(folder / "x.txt", [rule, framed[0], rule, *framed[1:]])


@case(r"x\.csv, row 1 \(line 2\): it has the text 'depth' .* right below the names \(--set skip_rows=1 if these are the names\)")
def names_of_groups_that_repeat(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=pd.MultiIndex.from_arrays([["a", "a", "b", "b", "b"], NAMES])).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


@case(skip_rows=1)
def names_of_groups_that_repeat_beside_an_index(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=pd.MultiIndex.from_arrays([["a", "a", "b", "b", "b"], NAMES])).to_csv(folder / "x.csv")
    return folder / "x.csv"


@case()
def json_lines_in_utf_16(folder: Path, X: Floats) -> Any:
    return put(folder / "x.jsonl", [json.dumps(dict(zip(NAMES, row, strict=True))) for row in X.tolist()], encoding="utf-16")


@case(decimal=",")
def excel_with_german_text(folder: Path, X: Floats) -> Any:
    book = openpyxl.Workbook()
    book.active.append(NAMES)
    for row in X.tolist():
        book.active.append([repr(value).replace(".", ",") for value in row])
    book.save(folder / "x.xlsx")
    return folder / "x.xlsx"


@case(names=None)
def hdf5_of_pandas(folder: Path, X: Floats) -> Any:
    return frame_of_pandas(folder, X, [slice(0, 5)])


def frame_of_pandas(folder: Path, X: Floats, blocks: list[slice]) -> Path:
    """As `DataFrame.to_hdf` lays it out in format fixed, a block for each type of column."""
    with h5py.File(folder / "x.h5", "w") as file:
        frame = file.create_group("df")
        frame.attrs["pandas_type"] = "frame"
        frame["axis1"] = np.arange(N)
        for i, block in enumerate(blocks):
            frame[f"block{i}_items"] = np.array([name.encode() for name in NAMES[block]])
            frame[f"block{i}_values"] = X[:, block]
    return folder / "x.h5"


@case()
def a_folder_with_a_lock_of_excel(folder: Path, X: Floats) -> Any:
    pd.DataFrame(X, columns=NAMES).to_excel(folder / "a.xlsx", index=False)
    (folder / "~$a.xlsx").write_bytes(b"somebody" * 20)
    return folder


# What is wrong, and said


@case(r"x\.csv: column 2 \('heat'\) is text \('\(\d+\.\d+\)', …\): leave it out")
def negative_numbers_in_parentheses(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: f"({-value!r})" if value < 0 else repr(value)))


@case(r"x\.csv, row \d+ \(line \d+\): it has the text '\d+\.\d+-' in column \d ", exclude="heat")
def negative_numbers_with_the_sign_at_the_end(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ";", lambda value: f"{-value!r}-" if value < 0 else repr(value)))


@case(r"x\.csv: columns 1, .* are text \(")
def numbers_with_letters_as_units(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: f"{value!r} kg"))


@case(r"x\.csv has no numbers in its first rows: columns .* are text \('0x\w+', …\)")
def hexadecimal_numbers(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: hex(abs(int(value)))))


@case(r"""x\.csv has no numbers in its first rows: .* are text \('="[\d.]+"', …\)""")
def numbers_that_excel_is_to_take_for_text(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: f'="{value!r}"'))


@case(r"x\.csv has no numbers in its first rows: .* are text")
def invisible_characters(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", written(X, ",", lambda value: f"{value!r}\u200b"))


@case(r"x\.txt: columns 1, 2, .* are text \('1:[\d.]+', …\): leave them out")
def svmlight(folder: Path, X: Floats) -> Any:
    return put(folder / "x.txt", ["1 " + " ".join(f"{i}:{value!r}" for i, value in enumerate(row, 1)) for row in X.tolist()])


@case(r"x\.txt: columns 0, 4 are text \('\[")
def lists_of_python(folder: Path, X: Floats) -> Any:
    return put(folder / "x.txt", [str(row) for row in X.tolist()])


@case(r"x\.csv, row 12 \(line 13\): it has the text '#DIV/0!' in column 0 .*\(--na-values '#DIV/0!' if it stands for a missing value\)")
def an_error_of_excel(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:12], "#DIV/0!," + text[12].partition(",")[2], *text[13:]])


@case(r"x\.csv, row 60 \(line 61\): it has the text 'Total' in column 0 \('depth'\)")
def a_line_of_sums(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:-1], "Total," + text[-1].partition(",")[2]])


@case(r"x\.csv, row 61 \(line 62\): it has 1 value where 5 are expected \('\(60 rows affected\)'\)")
def what_a_database_says_at_the_end(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [*lines(X), "(60 rows affected)"])


@case(r"x\.csv, row 61 \(line 62\): it has no values: all of them are empty or NaN")
def empty_rows_of_excel_below(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", [*lines(X), ",,,,", ",,,,"])


@case(r"x\.csv has zero bytes in it, from line 62 on: .* damaged, as by a crash")
def zero_bytes_after_a_crash(folder: Path, X: Floats) -> Any:
    return put(folder / "x.csv", "\n".join(lines(X)) + "\n" + "\0" * 500)


@case(r"x\.csv, line 33: another line of names comes in the middle \(p, q, r, …\)")
def another_table_below(folder: Path, X: Floats) -> Any:
    text = lines(X)
    return put(folder / "x.csv", [*text[:31], "", "p,q,r,s,t", *text[31:]])


@case(r"x\.tar is a tar archive: unpack it")
def tar_archive(folder: Path, X: Floats) -> Any:
    with tarfile.open(folder / "x.tar", "w") as archive:
        data = "\n".join(lines(X)).encode()
        entry = tarfile.TarInfo("x.csv")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return folder / "x.tar"


@case(r"x\.csv is a PDF file, which is not read here")
def a_pdf_under_the_name_of_text(folder: Path, X: Floats) -> Any:
    (folder / "x.csv").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n")
    return folder / "x.csv"


@case(r"x\.csv\.gz is compressed twice: decompress it once")
def gzipped_twice(folder: Path, X: Floats) -> Any:
    (folder / "x.csv.gz").write_bytes(gzip.compress(gzip.compress("\n".join(lines(X)).encode())))
    return folder / "x.csv.gz"


@case(r"x\.h5 has 2 tables \(df/block0_values .*; name the one to read")
def hdf5_of_pandas_with_columns_of_two_types(folder: Path, X: Floats) -> Any:
    return frame_of_pandas(folder, X, [slice(0, 3), slice(3, 5)])


@case(r"x\.h5::/t has records, not a table of numbers")
def hdf5_with_records(folder: Path, X: Floats) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file["t"] = pd.DataFrame(X, columns=NAMES).to_records(index=False)
    return folder / "x.h5"


@case(r"x\.npz is empty: it has no array")
def npz_without_arrays(folder: Path, X: Floats) -> Any:
    np.savez(folder / "x.npz")
    return folder / "x.npz"


@case(r"^\S+x\.npy holds records \(depth, speed, heat, load, noise\), not a table")
def npy_with_records(folder: Path, X: Floats) -> Any:
    np.save(folder / "x.npy", pd.DataFrame(X, columns=NAMES).to_records(index=False))
    return folder / "x.npy"


@case(r"x\.npy holds complex numbers \(complex128\), not real numbers: write it as float64")
def npy_with_complex_numbers(folder: Path, X: Floats) -> Any:
    np.save(folder / "x.npy", X + 1j)
    return folder / "x.npy"


@case(r"x\.feather is a Feather file of version 1, which is not read here")
def feather_of_version_1(folder: Path, X: Floats) -> Any:
    (folder / "x.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    return folder / "x.feather"


@case(r"f has no files of a kind that is known \(notes\.pdf\)")
def a_folder_without_data(folder: Path, X: Floats) -> Any:
    (folder / "f").mkdir()
    (folder / "f" / "notes.pdf").write_bytes(b"%PDF-1.7")
    return folder / "f"


@case(r"x\.parquet, row 1: it has no values: all of them are empty or NaN")
def parquet_of_nothing(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table({name: pa.array([None] * N, pa.float64()) for name in NAMES}), folder / "x.parquet")
    return folder / "x.parquet"
