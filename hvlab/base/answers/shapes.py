"""The parts of answers, as types that pydantic checks without conversions.

``"1"`` is no number, ``true`` neither, and every number is finite.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# No second, byte or rate that a computer measures comes near it, and sums of them stay finite.
MOST = 1e18


class HostAnswer(BaseModel):
    """An object with fields of known shapes; a newer program may send others, which hold anything."""

    model_config = ConfigDict(strict=True, extra="allow")


Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**62)]
Scalar = str | int | float | bool | None


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _cidr(text: str) -> str:
    return str(ipaddress.ip_interface(text))


Address = Annotated[str, AfterValidator(_address)]
# An address with the length of its network: 10.0.0.11/24.
Cidr = Annotated[str, AfterValidator(_cidr)]
HostKey = Annotated[str, Field(pattern=r"^ssh-ed25519 [A-Za-z0-9+/]+={0,3}$")]
Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
