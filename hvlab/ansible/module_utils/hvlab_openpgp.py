# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Public keys of OpenPGP (RFC 4880, RFC 9580), as far as their fingerprints go. Pure, needs no GnuPG."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator

_ARMOR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)\r?\n-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
_PRIMARY_KEY = 6
_CRC_START, _CRC_POLYNOMIAL = 0xB704CE, 0x1864CFB


def keys(data: bytes) -> dict[str, bytes]:
    """Return ``{fingerprint: packets}`` of every primary key in a binary or armored file.

    Fingerprints are upper case hexadecimal. Raises ValueError when the data is no public key.
    """
    found: dict[str, bytes] = {}
    current = ""
    for tag, body, raw in _packets(dearmor(data)):
        if tag == _PRIMARY_KEY:
            current = fingerprint(body)
            found[current] = b""
        if current:
            found[current] += raw
    if not found:
        raise ValueError("it holds no public key")
    return found


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a public key packet of version 4, 5 or 6."""
    version = body[0] if body else 0
    if version == 4:
        # SHA-1 is what the format prescribes for version 4.
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324
    if version in (5, 6):
        head = b"\x9a" if version == 5 else b"\x9b"
        return hashlib.sha256(head + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError("its key has the unknown version {}".format(version))


def matches(fingerprint_: str, wanted: str) -> bool:
    """Return whether a fingerprint is the wanted one, which may be its last digits (a key id)."""
    return fingerprint_.endswith(re.sub(r"\s|^0x", "", wanted).upper())


def dearmor(data: bytes) -> bytes:
    """Return the packets of armored data; other data comes back as it is."""
    blocks = _ARMOR.findall(data)
    if not blocks:
        return data
    try:
        return b"".join(base64.b64decode(b"".join(_body(block)), validate=True) for block in blocks)
    except binascii.Error as error:
        raise ValueError("its armor is damaged: {}".format(error)) from None


def _body(block: bytes) -> list[bytes]:
    """Return the lines of base64: after the headers, before the checksum."""
    lines = [line.strip() for line in block.splitlines()]
    start = lines.index(b"") + 1 if b"" in lines else 0
    return [line for line in lines[start:] if line and not line.startswith(b"=")]


def armor(packets: bytes) -> bytes:
    """Return packets as ASCII armor, which is what rpm reads."""
    text = base64.b64encode(packets)
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    crc = base64.b64encode(_crc24(packets).to_bytes(3, "big"))
    head, tail = (b"-----" + word + b" PGP PUBLIC KEY BLOCK-----" for word in (b"BEGIN", b"END"))
    return b"\n".join([head, b"", *lines, b"=" + crc, tail, b""])


def _crc24(data: bytes) -> int:
    crc = _CRC_START
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= _CRC_POLYNOMIAL
    return crc & 0xFFFFFF


def _packets(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, body and the whole packet, in order."""
    at = 0
    while at < len(data):
        first = data[at]
        if not first & 0x80:
            raise ValueError("it is no OpenPGP data")
        tag, size = (first & 0x3F, 0) if first & 0x40 else (first >> 2 & 0x0F, first & 0x03)
        head, length = _new_length(data, at + 1) if first & 0x40 else _old_length(data, at + 1, size)
        end = at + 1 + head + length
        if end > len(data):
            raise ValueError("it is cut short")
        yield tag, data[at + 1 + head : end], data[at:end]
        at = end


def _old_length(data: bytes, at: int, size: int) -> tuple[int, int]:
    if size == 3:
        return 0, len(data) - at
    count = 1 << size
    return count, int.from_bytes(data[at : at + count], "big")


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at] if at < len(data) else 255
    if first < 192:
        return 1, first
    if first < 224:
        return 2, (first - 192 << 8) + int.from_bytes(data[at + 1 : at + 2], "big") + 192
    if first == 255:
        return 5, int.from_bytes(data[at + 1 : at + 5], "big")
    raise ValueError("it has a packet of unknown length")
