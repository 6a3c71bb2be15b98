"""The options of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from online_psp.io.sources.columns import Wanted, listed
from online_psp.io.sources.numerals import POINT
from online_psp.io.sources.source import SourceError, default_max_memory, megabytes


class TextOptions(NamedTuple):
    """The user's options about text; those that are None are detected."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    na_values: Sequence[str] | None = None
    comment: str | None = None
    skip_rows: int | None = None
    encoding: str | None = None
    keep_index: bool | None = None
    thousands: str | None = None


@dataclass(frozen=True)
class Options:
    """All options of `open_source`, for the readers."""

    dtype: Any = None
    features: int | None = None
    wanted: Wanted = field(default_factory=Wanted)
    text: TextOptions = field(default_factory=TextOptions)
    member: str | None = None
    missing: str = "error"
    grey: bool = False
    time_axis: int | None = None
    max_memory: int = field(default_factory=default_max_memory)

    def check(self, needed: int, what: str, name: str) -> None:
        """Raise a SourceError if something would take more memory than is allowed; called before it is allocated."""
        if needed > self.max_memory:
            raise SourceError(
                f"{name}: {what} would take {megabytes(needed)}, and {megabytes(self.max_memory)} are allowed; "
                "allow more (--set max_memory=…) if the file is to be trusted."
            )

    def common(self, **schema: Any) -> dict[str, Any]:
        """Keyword arguments that every Source takes from the options; `schema` is what else must be the same in a resumed run."""
        given = self.text.na_values or ()
        said = {key: listed(getattr(self.wanted, key)) for key in ("columns", "exclude", "ids")}
        return {
            "missing": self.missing,
            "max_memory": self.max_memory,
            "na_numbers": tuple(value for value in map(POINT.number, given) if value is not None),
            "schema": {**said, "time_column": self.wanted.time_column, "time_axis": self.time_axis, "na_values": sorted(given), **schema},
        }
