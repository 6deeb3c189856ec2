"""A shared library for x86_64 without a compiler: a name, and functions that give one number each."""

from __future__ import annotations

import struct

_HEADER, _PROGRAM, _SYMBOL, _PAGE = 64, 56, 24, 0x1000
_DYNAMIC_TAGS = {"hash": 4, "strings": 5, "symbols": 6, "string_size": 10, "symbol_size": 11, "soname": 14}


def library(soname: str, functions: dict[str, dict[str, str]]) -> bytes:
    """Return a library whose functions return a number, or store it where their argument points to."""
    strings, names = bytearray(b"\0"), {}
    for name in (soname, *functions):
        names[name] = len(strings)
        strings += name.encode() + b"\0"
    codes = {name: _code(what) for name, what in functions.items()}
    count = len(functions) + 1
    place = _HEADER + 3 * _PROGRAM
    offsets = {}
    for part, size in (
        ("symbols", count * _SYMBOL),
        ("hash", 4 * (2 + 1 + count)),
        ("strings", len(strings)),
        ("dynamic", 16 * (len(_DYNAMIC_TAGS) + 1)),
        ("code", sum(map(len, codes.values()))),
    ):
        place = (place + 15) // 16 * 16
        offsets[part], place = place, place + size
    image = bytearray(place)
    symbols, code = bytearray(_SYMBOL), bytearray()
    for name, machine in codes.items():
        symbols += struct.pack("<IBBHQQ", names[name], 0x12, 0, 1, offsets["code"] + len(code), len(machine))
        code += machine
    values = offsets | {"string_size": len(strings), "symbol_size": _SYMBOL, "soname": names[soname]}
    dynamic = b"".join(struct.pack("<QQ", tag, values[what]) for what, tag in _DYNAMIC_TAGS.items())
    chain = [*range(2, count), 0] if count > 1 else []
    table = struct.pack(f"<{3 + count}I", 1, count, 1 if count > 1 else 0, 0, *chain)
    for part, data in (
        ("symbols", symbols), ("hash", table), ("strings", strings), ("dynamic", dynamic), ("code", code),
    ):  # fmt: skip
        image[offsets[part] : offsets[part] + len(data)] = data
    image[:_HEADER] = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, 3, 0, 0, 0,
    )  # fmt: skip
    size = 16 * (len(_DYNAMIC_TAGS) + 1)
    for index, (kind, flags, start, length, align) in enumerate(
        [
            (1, 7, 0, len(image), _PAGE),
            (2, 6, offsets["dynamic"], size, 8),
            (0x6474E551, 6, 0, 0, 16),
        ]
    ):
        at = _HEADER + index * _PROGRAM
        image[at : at + _PROGRAM] = struct.pack(
            "<IIQQQQQQ", kind, flags, start, start, start, length, length, align
        )
    return bytes(image)


def _code(what: dict[str, str]) -> bytes:
    """Return x86_64 code: ``mov eax, N; ret``, or ``mov dword [rdi], N; xor eax, eax; ret``."""
    if "returns" in what:
        return b"\xb8" + struct.pack("<I", int(what["returns"])) + b"\xc3"
    return b"\xc7\x07" + struct.pack("<I", int(what["stores"])) + b"\x31\xc0\xc3"
