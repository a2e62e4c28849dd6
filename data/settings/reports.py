"""Settings of the weekly report: its week, and its recipients.

Recipients come from here only, never from a label: who is not listed gets nothing.
"""

from dataclasses import dataclass

from data.base.clock import find_zone
from data.settings.fields import Section, documented, documented_list, entries, fixed, require

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def named_addresses(text: str) -> dict[str, tuple[str, ...]]:
    """Return the addresses by name of `name=a@x b@x, other=c@x`; a part without `=` has no name."""
    by_name: dict[str, tuple[str, ...]] = {}
    for part in entries(text):
        name, _, listed = part.rpartition("=")
        by_name[name.strip()] = (*by_name.get(name.strip(), ()), *listed.split())
    return by_name


def is_address(text: str) -> bool:
    """Return whether text is one plain e-mail address: no list, no name, no line break."""
    local, _, domain = text.partition("@")
    plain = text.isprintable() and text.isascii() and not set(text) & set(' ,;<>()[]\\":')
    return plain and bool(local) and bool(domain) and "@" not in domain


def require_named_addresses(section: Section, name: str) -> None:
    """Refuse (SettingsError) a setting that is no list of name=address pairs."""
    for who, listed in named_addresses(getattr(section, name)).items():
        require(
            bool(who) and bool(listed) and all(map(is_address, listed)),
            f"{section.section}.{name}",
            f"{who}={' '.join(listed)}",
            "a list of name=address pairs",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings(Section, name="report"):
    """The end of the report's week, its time zone, and the recipients of each edition."""

    timezone: str = documented("UTC", "IANA zone of the report's days, such as Europe/Berlin")
    week_ends: str = fixed("monday")  # the day at whose beginning the reported week ends
    mail_to: str = documented_list("", "e-mail addresses that get the whole report, a list")
    webhook: bool = documented(False, "also post its summary to notify.webhook_url")
    teams: str = documented_list(
        "", "editions of single namespaces, such as search=a@site.example b@site.example, vision=…"
    )
    owners: str = documented_list(
        "", "owners who get a mail about their idle jobs, such as ada=ada@site.example"
    )

    def _check(self) -> None:
        zones = "an IANA zone such as UTC or Europe/Berlin"
        self.require(find_zone(self.timezone) is not None, "timezone", zones)
        for address in entries(self.mail_to):
            require(is_address(address), "report.mail_to", address, "a plain e-mail address")
        for name in ("teams", "owners"):
            require_named_addresses(self, name)
