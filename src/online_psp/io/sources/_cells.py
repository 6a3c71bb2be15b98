"""Parses lines of text into rows of numbers.

There are three ways, each tried if the one before fails: all cells of a batch at once, by pyarrow's parser (or NumPy's, if pyarrow is not
installed); cells as `csv` splits them, if there are quotation marks; and row by row, which finds which rows are bad, and why.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._columns import Choice, times_of
from online_psp.io.sources._lines import Batch
from online_psp.io.sources._numerals import FORTRAN, MINUS, NA, THOUSANDS, Signs, advice, grouping, is_number, number, unit_of
from online_psp.io.sources._sniff import COMMENTS, WHITESPACE, Dialect, split
from online_psp.io.sources._source import Chunk, SourceError
from online_psp.io.sources._suspects import is_total

try:
    from importlib.util import find_spec

    WITH_ARROW = find_spec("pyarrow") is not None
except (ImportError, ValueError):
    WITH_ARROW = False


_EXCEL_ERROR = re.compile(r"#[A-Z]")
_FEWEST_NAMES = 3  # fewest words in a line that are taken for names
_LONGEST_NA = 20  # characters; a longer text is a remark, not a sign for a missing value


class Table(NamedTuple):
    """How cells become rows."""

    dialect: Dialect
    choice: Choice
    names: list[str] | None
    """Names of the columns of the file."""
    name: str
    """Name of the source, for messages."""

    def column(self, at: int) -> str:
        """A column as messages name it: by its number from 0, as options do, and its name."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names and at < len(self.names) and self.names[at] else "")


def parse(batch: Batch, table: Table, quoted: bool) -> Chunk:
    """Parse the rows of a batch."""
    text = batch.text
    if table.dialect.delimiter == WHITESPACE:
        text = b"\n".join(b" ".join(line.split()) for line in text.split(b"\n"))
    if not (quoted and b'"' in text):
        cells = _flat_cells(text, table.dialect, batch.count) if WITH_ARROW else None
        chunk = _by_arrow(cells, table, batch.count) if cells is not None else None if WITH_ARROW else _by_numpy(text, table, batch.count)
        if chunk is not None:
            return chunk
    return _row_by_row(text, table, batch.count, quoted)


def _flat_cells(text: bytes, dialect: Dialect, rows: int) -> Any:
    """All cells, row after row, as an array of strings; None if a row has too few or too many."""
    import pyarrow as pa

    from online_psp.io.sources._compact import compact

    values = np.frombuffer(text, np.uint8)
    delimiter = dialect.delimiter.encode()
    if len(delimiter) != 1 or len(text) >= 1 << 31 or values[-1] != 10:
        return None
    cells, offsets = np.empty(len(values), dtype=np.uint8), np.zeros(rows * dialect.width + 1, dtype=np.int32)
    if compact(values, delimiter[0], dialect.width, cells, offsets) != rows:
        return None
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(cells))


def _by_arrow(cells: Any, table: Table, rows: int) -> Chunk | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    choice, width = table.choice, table.dialect.width
    wanted = cells if choice.features == list(range(width)) else cells.take(_indices(rows, width, choice.features))
    try:
        values = _numbers(wanted, table.dialect)
    except pa.ArrowException:
        return None
    ids = times = None
    try:
        if choice.ids:
            found = pc.utf8_trim_whitespace(cells.take(_indices(rows, width, choice.ids)))
            ids = np.array(found.to_pylist(), dtype=object).reshape(rows, -1)
        if choice.time is not None:
            times = times_of(pc.utf8_trim_whitespace(cells.take(_indices(rows, width, [choice.time]))).to_pylist(), table.name)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return Chunk(rows, values.reshape(rows, len(choice.features)), {}, ids, times)


def _indices(rows: int, width: int, columns: list[int]) -> Any:
    import pyarrow as pa

    return pa.array((np.arange(rows)[:, np.newaxis] * width + np.array(columns)).ravel())


def _numbers(cells: Any, dialect: Dialect) -> Array:
    """Convert strings to numbers: all at once if possible, otherwise after missing values are replaced."""
    import pyarrow as pa
    import pyarrow.compute as pc

    signs = dialect.signs
    if signs == (".", None) and not any(is_number(text) for text in dialect.na - NA):
        try:
            return np.asarray(pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowException:
            pass
    trimmed = pc.utf8_trim_whitespace(cells)
    for sign in MINUS:
        if pc.any(pc.match_substring(trimmed, sign)).as_py():
            trimmed = pc.replace_substring(trimmed, sign, "-")
    if signs.thousands is not None:
        grouped = pc.match_substring_regex(trimmed, grouping(signs))
        trimmed = pc.if_else(grouped, pc.replace_substring(trimmed, signs.thousands, ""), trimmed)
        if pc.any(pc.match_substring(trimmed, signs.thousands)).as_py():
            raise pa.ArrowInvalid("the thousands are not in groups of three")
    if signs.decimal == ",":
        if pc.any(pc.match_substring(trimmed, ".")).as_py():
            raise pa.ArrowInvalid("a point in place of a comma")
        trimmed = pc.replace_substring(trimmed, ",", ".")
    elif pc.any(pc.match_substring(trimmed, "d", ignore_case=True)).as_py():
        trimmed = pc.replace_substring_regex(trimmed, FORTRAN, r"\1e\2")
    known = pc.is_in(trimmed, value_set=pa.array(sorted(dialect.na), pa.string()))
    clean = pc.if_else(known, pa.scalar(None, pa.string()), trimmed)
    return np.asarray(pc.cast(clean, pa.float64()).to_numpy(zero_copy_only=False))


def _by_numpy(text: bytes, table: Table, rows: int) -> Chunk | None:
    """Parse plain numbers, without pyarrow."""
    dialect, choice = table.dialect, table.choice
    if choice.ids or choice.time is not None or dialect.signs != (".", None) or dialect.na - frozenset(("", "nan", "NaN")) != _PLAIN:
        return None
    lines = text.decode("utf-8", "replace").splitlines()
    if any(line.count(dialect.delimiter) != dialect.width - 1 for line in lines):
        return None
    try:
        values = np.loadtxt(lines, delimiter=dialect.delimiter, ndmin=2, comments=None, usecols=choice.features)
    except ValueError:
        return None
    return Chunk(rows, values, {}) if len(values) == rows else None


_PLAIN = Dialect(",").na - frozenset(("", "nan", "NaN"))


def _split_rows(text: bytes, table: Table, rows: int, quoted: bool) -> list[list[str]]:
    """The cells of every row."""
    delimiter = table.dialect.delimiter
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        if table.choice.ids:  # numbers are ASCII, but ids must be right
            raise SourceError(f"{table.name} is not UTF-8 all through; name its encoding (--set encoding=latin-1, cp1252, …).") from None
        decoded = text.decode("utf-8", "replace")
    if quoted and '"' in decoded:
        reader = csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter, skipinitialspace=True)
        found = [[cell.strip() for cell in row] for row in reader]
        if len(found) == rows:
            return found
    found = [split(line, delimiter) for line in decoded.split("\n")[:-1]]
    if len(found) != rows:
        raise SourceError(f"{table.name}: its quotation marks do not match, so that rows cannot be told from each other.")
    return found


def _row_by_row(text: bytes, table: Table, rows: int, quoted: bool) -> Chunk:
    choice, dialect = table.choice, table.dialect
    split_rows = _split_rows(text, table, rows, quoted)
    if WITH_ARROW and b'"' in text and all(len(cells) == dialect.width for cells in split_rows):
        import pyarrow as pa

        chunk = _by_arrow(pa.array([cell for cells in split_rows for cell in cells], pa.string()), table, rows)
        if chunk is not None:
            return chunk
    good: list[list[float]] = []
    bad: dict[int, str] = {}
    ids = np.full((rows, len(choice.ids)), "", dtype=object) if choice.ids else None
    times = [""] * rows
    for at, cells in enumerate(split_rows):
        if ids is not None:
            ids[at] = [cells[i] if i < len(cells) else "" for i in choice.ids]
        if choice.time is not None and choice.time < len(cells):
            times[at] = cells[choice.time]
        problem, values = _row(cells, table)
        if problem is None:
            good.append(values)
        else:
            bad[at] = problem
    found = np.array(good, dtype=np.float64).reshape(len(good), len(choice.features))
    return Chunk(rows, found, bad, ids, times_of(times, table.name) if choice.time is not None else None)


def _row(cells: list[str], table: Table) -> tuple[str | None, list[float]]:
    """What is wrong with a row, or None, and its numbers."""
    dialect = table.dialect
    if dialect.header and dialect.names and (again := _names_again(cells, dialect.names, table)):
        return again, []
    if len(cells) != dialect.width:
        return f"has {len(cells)} value{'s' if len(cells) != 1 else ''} where {dialect.width} are expected{_shown(cells)}", []
    values = []
    for at in table.choice.features:
        cell = cells[at]
        if cell in dialect.na:
            values.append(np.nan)
        elif is_number(cell, dialect.signs):
            values.append(number(cell, dialect.signs))
        else:
            return f"has the text {cell[:40]!r} in {table.column(at)}{_hint(cell, dialect)}", []
    return None, values


def _shown(cells: list[str]) -> str:
    """What a message shows of a line that is not a row, if that helps."""
    if cells[0][:1] and cells[0][:1] in COMMENTS:
        return f" (--set comment='{cells[0][:1]}' if it is a comment)"
    return f" ({cells[0][:40]!r})" if len(cells) == 1 else ""


def _names_again(cells: list[str], names: list[str], table: Table) -> str | None:
    """What to say about a line of names in the middle of a table; None if the line is something else.

    If the names differ from those at the top, the rows below belong to another table. Then reading stops, even if bad rows are skipped.
    """
    if cells == names:
        return "has the names of the columns again, as where files were joined"
    known = cells[0] in names and 2 * len(set(cells) & set(names)) > len(names)
    if known or _are_names(cells, table.dialect):
        raise SourceError(
            f"{table.name}: another line of names comes in the middle ({', '.join(cell[:20] for cell in cells[:3])}, …), and it is not "
            "that of the first line: files of different columns were joined."
        )
    return None


def _are_names(cells: list[str], dialect: Dialect) -> bool:
    """Whether a line has a different word in every cell."""
    if len(cells) < _FEWEST_NAMES or len(cells) != dialect.width or len(set(cells)) < len(cells):
        return False
    return all(cell.isidentifier() and cell not in dialect.na and not is_number(cell, dialect.signs) for cell in cells)


def _hint(cell: str, dialect: Dialect) -> str:
    """A hint on what to do about a text, if that can be guessed."""
    for sign in THOUSANDS:
        if sign in cell and dialect.signs.thousands is None and is_number(cell, Signs(dialect.signs.decimal, sign)):
            return f" (--set thousands='{sign}' if it is a number)"
    do = advice(cell) or ("write them without the unit" if unit_of(cell) else None)
    if do is not None:
        return f" (a number written like this is not read: {do})"
    if is_total(cell):
        return " (a line of sums or means, by its name)"
    if (
        len(cell) <= _LONGEST_NA
        and cell.isprintable()
        and "\ufffd" not in cell
        and (_EXCEL_ERROR.match(cell) or not any(map(str.isdigit, cell)))
    ):
        return f" (--na-values {_quoted(cell)} if it stands for a missing value)"
    return ""


def _quoted(cell: str) -> str:
    """A text as it is typed on the command line, as an element of a list."""
    inner = f'"{cell}"' if "," in cell else cell
    return f'"{inner}"' if "'" in inner else f"'{inner}'"
