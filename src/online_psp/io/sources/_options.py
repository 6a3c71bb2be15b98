"""The options of a source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from online_psp.io.sources._columns import Wanted, listed
from online_psp.io.sources._numerals import is_number, number
from online_psp.io.sources._sniff import TextOptions
from online_psp.io.sources._source import SourceError, default_max_memory, megabytes


@dataclass(frozen=True)
class Options:
    """All options of `open_source`, for the readers."""

    dtype: Any = None
    features: int | None = None
    wanted: Wanted = field(default_factory=Wanted)
    text: TextOptions = field(default_factory=TextOptions)
    member: str | None = None
    missing: str = "error"
    final: bool | None = None
    grey: bool = False
    max_memory: int = field(default_factory=default_max_memory)

    def check(self, needed: int, what: str, name: str) -> None:
        """Raise a SourceError if something would take more memory than is allowed; called before it is allocated."""
        if needed > self.max_memory:
            raise SourceError(
                f"{name}: {what} would take {megabytes(needed)}, and {megabytes(self.max_memory)} are allowed; "
                "allow more (--set max_memory=…) if the file is to be trusted."
            )

    def schema(self) -> dict[str, Any]:
        """The options that must be the same in a resumed run."""
        wanted = {key: listed(value) for key, value in self.wanted._asdict().items()}
        said = {"columns": wanted["columns"], "exclude": wanted["exclude"], "ids": wanted["ids"], "time_column": self.wanted.time_column}
        return {**said, "na_values": sorted(self.text.na_values or ())}

    def common(self) -> dict[str, Any]:
        """Keyword arguments that every Source takes from the options."""
        given = self.text.na_values or ()
        return {
            "missing": self.missing,
            "max_memory": self.max_memory,
            "na_numbers": tuple(number(text) for text in given if is_number(text)),
        }
