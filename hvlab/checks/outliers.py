"""Devices that stand out among the equal ones of a lab: slower, or with other results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from hvlab.checks.node.limits import DEVICE_SLOWER
from hvlab.statistics.straggler import ALPHA, stragglers

# With fewer, nobody can say which one is wrong.
_MAJORITY = 3
_Device = tuple[str, str]


def outliers(readings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each burned host what its checks expect of the lab, from the readings by host.

    ``burn_slow`` lists (device, kind, times as slow, number of others), ``burn_differs`` (device, kind,
    number of others); ``burn_compared`` is present if an equal device exists. In labs in which all devices
    are equal, at most 1 % get a slow one.
    """
    groups: dict[str, dict[_Device, Mapping[str, Any]]] = defaultdict(dict)
    for host, values in readings.items():
        for name, own in values.get("burn", {}).get("devices", {}).items():
            groups[own["group"]][host, name] = own
    expected: dict[str, dict[str, Any]] = {}
    for devices in groups.values():
        others = len(devices) - 1
        for host, _ in devices if others else ():
            expected.setdefault(host, {"burn_compared": True, "burn_slow": [], "burn_differs": []})
        kinds = sorted({kind for own in devices.values() for kind in own["rates"]})
        for kind in kinds:
            for (host, name), ratio in _slow(devices, kind, ALPHA / len(kinds)).items():
                expected[host]["burn_slow"].append((name, kind, ratio, others))
            for host, name in _different(devices, kind):
                expected[host]["burn_differs"].append((name, kind, others))
    return expected


def _slow(devices: Mapping[_Device, Mapping[str, Any]], kind: str, alpha: float) -> dict[_Device, float]:
    times = {
        "\0".join(device): [1 / rate for rate in own["rates"][kind]]
        for device, own in devices.items()
        if kind in own["rates"] and all(rate > 0 for rate in own["rates"][kind])
    }
    if len(times) < 2:
        return {}
    rounds = [dict(zip(times, each, strict=True)) for each in zip(*times.values(), strict=False)]
    slow = stragglers([rounds], matters=DEVICE_SLOWER, alpha=alpha)
    return {(one.host.partition("\0")[0], one.host.partition("\0")[2]): one.slower.mid for one in slow}


def _different(devices: Mapping[_Device, Mapping[str, Any]], kind: str) -> list[_Device]:
    bits = {device: own["bits"][kind] for device, own in devices.items() if kind in own["bits"]}
    if len(bits) < _MAJORITY:
        return []
    usual, count = Counter(bits.values()).most_common(1)[0]
    return [device for device, value in bits.items() if value != usual] if 2 * count > len(bits) else []
