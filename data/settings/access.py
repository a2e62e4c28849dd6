"""Settings of users' rights, and of the recipients of messages.

Lists are comma-separated; an entry is a name exactly as the sign-in gives it, or `group:NAME`.
"""

import hmac
import ipaddress
import re
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

from data.records.lifecycle import LifecycleEvent
from data.settings.fields import (
    Section,
    comes_unchanged,
    documented,
    documented_list,
    entries,
    require,
)
from data.settings.renamed import warn_once

MODES: tuple[str, ...] = ("local", "open", "proxy", "oidc")
ROLES: tuple[str, ...] = ("none", "viewer", "owner", "approver", "admin")
"""Each role may do what the one before may; an owner decides about jobs of their own only."""


_NETLOC = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?"
)
_SMTP = re.compile(
    r"smtp(\+starttls)?://([^@/:\s]+@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MIN_PREFIX = {4: 8, 6: 16}
"""Prefix length of the largest network that may be listed as one of proxies."""
EVENTS = (
    *LifecycleEvent, "urgent", "cycle", "record", "reported", "resumed", "stopped",
    "stop-asked", "resume-asked", "submitted", "writes-lost",
)  # fmt: skip
"""Words of the audit: another that is much like one of them is a slip."""
_LOCAL = ipaddress.IPv6Network("fc00::/7")


def names_and_groups(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of a list of people, and the groups, which its entries `group:NAME` name."""
    names, groups = set[str](), set[str]()
    for entry in entries(text):
        kind, colon, name = entry.partition(":")
        if colon and kind.lower() == "group":
            groups.add(name.strip())
        else:
            names.add(entry)
    return frozenset(names), frozenset(groups - {""})


def host_of(netloc: str) -> str:
    """Return the host of `host` or `host:port`, in small letters, '' for what is neither."""
    match = _NETLOC.fullmatch(netloc)
    return (match["address"] or match["name"]).lower() if match else ""


def _is_host_name(text: str) -> bool:
    """Return whether it is a host as a browser sends it: a name or an IP address, no port."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return host_of(text) == text.lower() != ""
    return True


def _origin_of(text: str) -> str:
    """Return scheme, host and port as a browser states them, '' for what is no web address."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    suffix = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{host}{suffix}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
"""Range of IPv6 for the addresses of IPv4."""


def _as_fourth(network: ipaddress.IPv6Network) -> ipaddress.IPv4Network:
    """Return the IPv4 part of an IPv6 network that overlaps `_MAPPED`."""
    inside = network if network.subnet_of(_MAPPED) else _MAPPED
    first = int(inside.network_address) & 0xFFFFFFFF
    return ipaddress.IPv4Network((first, inside.prefixlen - _MAPPED.prefixlen))


def _are_networks(text: str) -> bool:
    try:
        networks = [ipaddress.ip_network(entry) for entry in entries(text)]
    except ValueError:
        return False
    # A list of everyone would believe everyone's headers, in however many parts it is written.
    fourth = [entry for entry in networks if entry.version == 4]
    sixth = [entry for entry in networks if entry.version == 6]
    fourth += [_as_fourth(entry) for entry in sixth if entry.overlaps(_MAPPED)]
    parts = (ipaddress.collapse_addresses(fourth), ipaddress.collapse_addresses(sixth))
    return all(_is_narrow(network) for part in parts for network in part)


def _is_narrow(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Return whether a network may be one of proxies: not too large, or IPv6's local addresses."""
    local = isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_LOCAL)
    return local or network.prefixlen >= _MIN_PREFIX[network.version]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings(Section, name="access"):
    """Users who are let in, their identities, and their rights."""

    mode: str = documented(
        "local",
        "sign-in: local (the account that started it, on loopback), open (everybody who reaches it "
        "looks, nobody decides), proxy (trusted headers) or oidc",
        choices=MODES,
    )
    default_role: str = documented(
        "viewer",
        "role of people who sign in and are not listed",
        choices=ROLES,
    )
    public_url: str = documented(
        "", "address that browsers use, such as https://trimtab.example.org; empty: this machine's"
    )
    allowed_hosts: str = documented_list(
        "", "further host names that browsers may use, a list; * (behind a proxy): any"
    )
    viewers: str = documented_list("", "who may look, a comma-separated list")
    owners: str = documented_list("", "who may decide about their own jobs only, a list")
    approvers: str = documented_list("", "who may approve, apply and roll back, a list")
    admins: str = documented_list("", "who may also stop and resume applying, a list")
    mail_domains: str = documented_list(
        "",
        "domains whose mail names count by the part before @ as the scheduler's user, a list; "
        "empty: none",
    )
    four_eyes: bool = documented(False, "nobody approves a change of their own job")
    proxy_addresses: str = documented_list(
        "", "addresses or networks whose headers are believed, a list such as 10.0.0.5,10.1.0.0/16"
    )
    proxy_user_header: str = documented("X-Forwarded-User", "header that names the person")
    proxy_groups_header: str = documented(
        "X-Forwarded-Groups", "header with their groups, comma-separated"
    )
    oidc_metadata_url: str = documented("", "discovery document of the identity provider")
    oidc_client_id: str = documented("", "client id at the identity provider")
    oidc_client_secret: str = documented("", "its secret", secret=True)
    oidc_name_claim: str = documented("email", "claim that names the person")
    oidc_groups_claim: str = documented("groups", "claim with their groups")
    oidc_session_hours: float = documented(
        12.0,
        "time until the next sign-in, which reads name and groups again, h",
        above=0,
        maximum=720,
    )

    def public_origins(self) -> tuple[str, ...]:
        """Return the origins by which browsers are known to reach the dashboard."""
        origin = _origin_of(self.public_url)
        return (origin,) if origin else ()

    @property
    def oidc_redirect_uri(self) -> str:
        """The address to which the identity provider sends browsers back."""
        return f"{self.public_url.rstrip('/')}/oauth2callback"

    @property
    def oidc_cookie_secret(self) -> str:
        """The key of the cookie of a sign-in under way, the same in every web process."""
        secret = self.oidc_client_secret.encode()
        return hmac.new(secret, b"trimtab: cookie of a sign-in", "sha256").hexdigest()

    def names_hosts(self) -> bool:
        """Return whether any host beside this machine's own is answered."""
        return bool(self.public_origins() or entries(self.allowed_hosts))

    def _check(self) -> None:
        self.require(
            not self.four_eyes or self.mode in ("proxy", "oidc"),
            "four_eyes",
            f"off while mode is {self.mode}, where no two people are told apart",
        )
        self.require(
            self.public_url.rstrip("/").lower() in ("", _origin_of(self.public_url)),
            "public_url",
            "http:// or https://, a host and, where it is not the default, a port",
        )
        for host in entries(self.allowed_hosts):
            require(
                _is_host_name(host) or (host == "*" and self.mode != "local"),
                "access.allowed_hosts",
                host,
                "host names or addresses without port; * only where people sign in",
            )
        if self.mode == "proxy":
            self.require(
                bool(entries(self.proxy_addresses)) and _are_networks(self.proxy_addresses),
                "proxy_addresses",
                "a list of addresses or networks, none larger than a /8, of IPv6 a /16",
            )
            has_name = bool(self.proxy_user_header.strip())
            self.require(has_name, "proxy_user_header", "the name of a header")
        if self.mode == "oidc":
            for name in (
                "oidc_metadata_url",
                "oidc_client_id",
                "oidc_client_secret",
                "public_url",
            ):
                self.require(bool(getattr(self, name)), name, "set when mode is oidc")
            self.require(
                comes_unchanged(self.oidc_metadata_url),
                "oidc_metadata_url",
                "an https:// address (http:// for this machine alone)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings(Section, name="notify"):
    """Recipients of approvals, outcomes and rollbacks. They come from here only."""

    webhook_url: str = documented("", "webhook of a chat; empty: none", secret=True)
    webhook_kind: str = documented(
        "slack",
        "what it takes: slack (Mattermost too) or teams (adaptive cards)",
        choices=("slack", "teams"),
    )
    mail_to: str = documented_list("", "e-mail addresses, a list; empty: none")
    mail_from: str = documented("trimtab@localhost", "sender of e-mails")
    smtp_url: str = documented(
        "smtp://127.0.0.1:25",
        "mail server, such as smtp+starttls://USER@HOST:587; no user: no sign-in",
    )
    smtp_password: str = documented("", "password of that user", secret=True)
    events: str = documented_list(
        "approved,rejected,applied,applied-differently,failing,refused,unknown,fell-short,"
        "rolled-back,rollback-refused,undone-outside,changed-outside,stopped,resumed,urgent",
        "what is told, a list of words of the audit",
    )

    def _check(self) -> None:
        require(
            not self.webhook_url or bool(_origin_of(self.webhook_url)),
            "notify.webhook_url",
            "***",
            "an address that starts with https://",
        )
        if "digest" in entries(self.events):
            warn_once(
                "notify.events: the event digest was removed; the weekly report lists open findings"
            )
        for word in entries(self.events):
            valid = word in EVENTS or word.startswith("submission-")
            match = "" if valid else "".join(get_close_matches(word, EVENTS, n=1, cutoff=0.75))
            require(not match, "notify.events", word, f"a word of the audit, such as {match}")
        self.require(
            _SMTP.fullmatch(self.smtp_url) is not None,
            "smtp_url",
            "smtp:// or smtp+starttls://, a host and a port, such as smtp://127.0.0.1:25",
        )
        for address in (*entries(self.mail_to), self.mail_from):
            require(
                address.isprintable()
                and address.isascii()
                and " " not in address
                and address.count("@") == 1,
                "notify.mail_to or notify.mail_from",
                address,
                "plain addresses such as ops@site.example",
            )
