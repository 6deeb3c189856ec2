# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Files that name package sources: which entries lead to an address, and the text without them. Pure."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"^[a-z+]+://", re.IGNORECASE)
MARK = "# switched off by hvlab: "


def leads_to(text: str, addresses: list[str]) -> bool:
    """Return whether a line or stanza names one of the addresses, whatever the scheme."""
    return any(_SCHEME.sub("", address).rstrip("/") in text for address in addresses)


def switch_off(path: str, text: str, addresses: list[str]) -> str:
    """Return the text of a .list, .sources or .repo file with the entries that lead to an address disabled.

    It comes back unchanged when there is none, or when they are disabled already.
    """
    if path.endswith(".sources"):
        stanzas = re.split(r"(\n[ \t]*\n+)", text)
        return "".join(_stanza(part, addresses) for part in stanzas)
    if path.endswith(".repo"):
        return "".join(_section(part, addresses) for part in re.split(r"(?m)^(?=\[)", text))
    lines = text.splitlines(keepends=True)
    return "".join(
        MARK + line if re.match(r"\s*deb(-src)?\s", line) and leads_to(line, addresses) else line
        for line in lines
    )


def _stanza(text: str, addresses: list[str]) -> str:
    live = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    off = re.search(r"(?mi)^Enabled:\s*(no|false|0|off)\s*$", live)
    if off or not re.search(r"(?mi)^URIs:", live) or not leads_to(live, addresses):
        return text
    kept = re.sub(r"(?mi)^Enabled:.*\n?", "", text)
    return re.sub(r"(?mi)^(?=URIs:)", "Enabled: no\n", kept, count=1)


def _section(text: str, addresses: list[str]) -> str:
    live = "".join(line for line in text.splitlines(keepends=True) if not re.match(r"\s*[#;]", line))
    urls = "".join(re.findall(r"(?mi)^\s*(?:baseurl|mirrorlist|metalink)\s*=.*(?:\n[ \t]+\S.*)*", live))
    off = re.search(r"(?mi)^\s*enabled\s*=\s*(0|no|false|off)\s*$", live)
    if off or not text.startswith("[") or not leads_to(urls, addresses):
        return text
    kept = re.sub(r"(?mi)^\s*enabled\s*=.*\n?", "", text)
    head, _, rest = kept.partition("\n")
    return "{}\nenabled=0\n{}".format(head, rest)
