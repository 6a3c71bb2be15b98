"""``psp transform``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from online_psp.cli._common import (
    USAGE,
    AsJson,
    BlockRows,
    Columns,
    Features,
    Header,
    OnBadRow,
    Precision,
    check_output,
    columns_of,
    fail,
    one_sentence,
    print_json,
)


def transform(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    source: Annotated[str, typer.Argument(help="Rows to project; with --inverse, scores.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Scores: .npy, .csv or .parquet.")],
    inverse: Annotated[bool, typer.Option("--inverse", help="From scores back to rows.")] = False,
    block: BlockRows = None,
    dtype: Precision = None,
    features: Features = None,
    columns: Columns = None,
    header: Header = None,
    on_bad_row: OnBadRow = "stop",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Project rows on the components of a model, or back."""
    if output.suffix not in WRITERS:
        raise fail(f"The output must end in {', '.join(WRITERS)}; got {output}.", USAGE)
    if on_bad_row not in ("stop", "skip"):
        raise fail(f"--on-bad-row must be stop or skip; got {on_bad_row}.", USAGE)
    check_output(output, force)
    with one_sentence():
        from online_psp.io.model_file import replacing
        from online_psp.io.sources import open_source
        from online_psp.pca import files as pca_state

        fitted, run = pca_state.load(model)
        rows = open_source(source, dtype=dtype, features=features, columns=columns_of(columns), header=header)
        _check(fitted, rows, inverse, model)
        names = (run.get("source") or {}).get("feature_names") if inverse else [f"pc{i + 1}" for i in range(fitted.n_components_)]
        counts = {"rows": 0, "skipped": 0}
        blocks = _converted(fitted, rows, inverse, block, on_bad_row, counts)
        width = fitted.n_features_in_ if inverse else fitted.n_components_
        try:
            with replacing(output) as file:
                WRITERS[output.suffix](file, blocks, int(width), names)
        except OSError as error:
            error.filename = error.filename or str(output)
            raise
    if as_json:
        print_json({"output": str(output), **counts, "columns": int(width)})
    elif not quiet:
        skipped = f", {counts['skipped']} bad rows skipped" if counts["skipped"] else ""
        typer.echo(f"{output}: {counts['rows']} rows of {width}{skipped}")


def _check(model: Any, source: Any, inverse: bool, path: Path) -> None:
    from online_psp.io.sources import SourceError

    if not hasattr(model, "_stream"):
        raise SourceError(f"{path} has learned nothing yet.")
    wanted = model.n_components_ if inverse else model.n_features_in_
    if source.features != wanted:
        what = "components" if inverse else "features"
        raise SourceError(f"{source.name} has {source.features} columns, and the model {wanted} {what}.")


def _converted(model: Any, source: Any, inverse: bool, size: int | None, on_bad_row: str, counts: dict[str, int]) -> Iterator[Any]:
    from online_psp.io.sources import SourceError

    for block in source.blocks(size):
        if block.bad and on_bad_row == "stop":
            raise SourceError(f"{source.where(block.bad[0].row)}: it {block.bad[0].problem}.")
        counts["rows"] += block.rows.shape[0]
        counts["skipped"] += len(block.bad)
        if block.rows.shape[0]:
            yield model.inverse_transform(_scores(block.rows)) if inverse else model.transform(block.rows)


def _scores(rows: Any) -> Any:
    """Scores are few numbers a row: here, what is sparse may become dense."""
    return rows.toarray() if hasattr(rows, "toarray") else rows


def _write_npy(file: BinaryIO, blocks: Iterator[Any], width: int, names: list[str] | None) -> None:
    """The header comes last, when the number of rows is known, into the room left for it."""
    import numpy as np

    room, rows, kind = 128, 0, np.dtype(np.float64)
    file.write(b"\0" * room)
    for block in blocks:
        kind = block.dtype
        file.write(np.ascontiguousarray(block).data)
        rows += len(block)
    text = f"{{'descr': '{kind.str}', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
    file.seek(0)
    file.write(b"\x93NUMPY\x01\x00" + (room - 10).to_bytes(2, "little") + text.ljust(room - 11).encode() + b"\n")


def _write_csv(file: BinaryIO, blocks: Iterator[Any], width: int, names: list[str] | None) -> None:
    import csv
    import io

    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow(names or [f"x{i + 1}" for i in range(width)])
    file.write(head.getvalue().encode())
    for block in blocks:
        file.write("".join(",".join(map(repr, row)) + "\n" for row in block.tolist()).encode())


def _write_parquet(file: BinaryIO, blocks: Iterator[Any], width: int, names: list[str] | None) -> None:
    from online_psp.io.sources import MissingExtraError

    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("Writing Parquet needs pyarrow: pip install 'online-psp[arrow]'.") from None
    columns = names or [f"x{i + 1}" for i in range(width)]
    writer: Any = None
    for block in blocks:
        table = pa.table({name: block[:, i] for i, name in enumerate(columns)})
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is None:
        pq.write_table(pa.table({name: pa.array([], pa.float64()) for name in columns}), file)
    else:
        writer.close()


#: How scores are written, by the end of the file's name.
WRITERS: dict[str, Callable[[BinaryIO, Iterator[Any], int, list[str] | None], None]] = {
    ".npy": _write_npy,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
