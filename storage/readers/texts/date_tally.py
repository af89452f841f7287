"""Numbers of dates by the way in which they were read, which add over blocks of texts and over shards."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EXAMPLES = 3  # Most unreadable texts that are named
DAY_FIRST, MONTH_FIRST = "day", "month"  # Orders of day and month in numeric dates such as 03/04/2020


@dataclass(frozen=True)
class DateTally:
    """Numbers of documents by the way in which their dates were read."""

    # Documents without a date; with a date that cannot be read; whose day and month cannot be distinguished; with a
    # number that was read as a Unix time; and with a year of two digits
    missing: int = 0
    unreadable: int = 0
    ambiguous: int = 0
    unix: int = 0
    short_years: int = 0
    # Documents whose dates show the order of day and month
    day_first: int = 0
    month_first: int = 0
    examples: tuple[str, ...] = ()  # Some unreadable texts
    # A date whose day and month cannot be distinguished, and one of each order
    example: str = ""
    day_first_example: str = ""
    month_first_example: str = ""

    def __add__(self, other: DateTally) -> DateTally:
        """Return the numbers of both."""
        return DateTally(
            missing=self.missing + other.missing,
            unreadable=self.unreadable + other.unreadable,
            ambiguous=self.ambiguous + other.ambiguous,
            unix=self.unix + other.unix,
            short_years=self.short_years + other.short_years,
            day_first=self.day_first + other.day_first,
            month_first=self.month_first + other.month_first,
            examples=tuple(dict.fromkeys((*self.examples, *other.examples)))[:MAX_EXAMPLES],
            example=self.example or other.example,
            day_first_example=self.day_first_example or other.day_first_example,
            month_first_example=self.month_first_example or other.month_first_example,
        )

    @property
    def order(self) -> str:
        """The order of day and month in all dates that show one; empty if none does, or they differ."""
        if bool(self.day_first) == bool(self.month_first):
            return ""
        return DAY_FIRST if self.day_first else MONTH_FIRST
