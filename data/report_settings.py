"""Settings of the weekly report."""

from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from data.setting_fields import documented, require

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _known_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """When the week of the report ends, and in whose time."""

    timezone: str = documented("UTC", "IANA zone of the report's days, such as Europe/Berlin")
    week_ends: str = documented("monday", "day at whose beginning the reported week ends")

    def __post_init__(self) -> None:
        require(
            _known_zone(self.timezone),
            "report.timezone",
            self.timezone,
            "an IANA zone such as UTC or Europe/Berlin",
        )
        require(
            self.week_ends in WEEKDAYS, "report.week_ends", self.week_ends, " or ".join(WEEKDAYS)
        )
