"""Write a folder of simulated hosts: an inventory of them, and what each answers.

The answers are those of one virtual host, recorded after site.yml had run on it (recorded-host.json), with
each host's own name, address and SSH host key, and with the hosts of the whole lab where the recorded host
listed those. ``connection/simulated.py`` gives them to Ansible; ``bin`` has what stands in for ssh elsewhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hvlab.checks import horovod_ranks as ranks
from hvlab.checks.own_programs import PROGRAMS
from hvlab.checks.ssh import targets

_HERE = Path(__file__).parent
_RECORD = _HERE / "recorded-host.json"
_PYTHON = "/usr/bin/python3.11"
_LASTS = "2026-01-01T00:00:00 to 2126-01-01T00:00:00"
# Of real hosts, each starts two.
_SLOTS = 2
_INVENTORY = """\
all:
  hosts:
    {pattern}:
  vars:
    lab_name: {lab}
    lab_network: 198.18.0.0/16
    lab_interface: host0
    lab_slots: 2
    ansible_user: root
    ansible_host: >-
      198.18.{{{{ inventory_hostname[1:] | int // 250 }}}}.{{{{ inventory_hostname[1:] | int % 250 + 1 }}}}
"""
LAB = "simulated"


@dataclass(frozen=True)
class SimulatedLab:
    """A folder of simulated hosts: ``hosts`` is name -> address, ``keys`` name -> public SSH host key."""

    folder: Path
    hosts: Mapping[str, str]
    keys: Mapping[str, str]

    @property
    def inventory(self) -> Path:
        """Return the inventory, which a user could have for real hosts."""
        return self.folder / "inventory" / "hosts.yml"

    @property
    def listing(self) -> str:
        """Return the hosts as `hvlab init --hosts` takes them."""
        return ",".join(f"{name}={address}" for name, address in self.hosts.items())

    def environment(self) -> dict[str, str]:
        """Return what sends hvlab and Ansible to the simulated hosts, and keeps their files apart."""
        return {
            "SIMULATED_HOSTS": str(self.folder / "hosts"),
            "ANSIBLE_CONNECTION_PLUGINS": str(_HERE / "connection"),
            "ANSIBLE_TRANSPORT": "simulated",
            "ANSIBLE_PIPELINING": "1",
            "HVLAB_DATA": str(self.folder / "data"),
            "HVLAB_RESULTS": str(self.folder / "results"),
        }


def write(folder: Path, count: int) -> SimulatedLab:
    """Write ``count`` hosts, h0001 and on, below ``folder``."""
    hosts = {f"h{i:04}": f"198.18.{i // 250}.{i % 250 + 1}" for i in range(1, count + 1)}
    keys = {name: _host_key() for name in hosts}
    lab = SimulatedLab(folder, hosts, keys)
    lab.inventory.parent.mkdir(parents=True)
    lab.inventory.write_text(_INVENTORY.format(pattern=f"h[0001:{count:04}]", lab=LAB), "utf-8")
    record = json.loads(_RECORD.read_text("utf-8"))
    common = _common(record, lab)
    names = list(hosts)
    for place, (name, address) in enumerate(hosts.items()):
        own = folder / "hosts" / address
        own.mkdir(parents=True)
        ring = {peer: hosts[peer] for peer in names[place + 1 :] + names[:place]}
        marks = {"@NAME@": name, "@ADDRESS@": address, "@KEY@": keys[name], "@OTHER@": names[place - 1]}
        checks = _checks(common["checks"], ring, _launches(name, names, record))
        for file, text in (common | {"checks": checks}).items():
            (own / file).write_text(_filled(text, marks), "utf-8")
        (own / "scan").write_text(f"{address} {keys[name]}\n", "utf-8")
    (folder / "hosts" / "pythons").write_text(f"PLATFORM\nLinux\nFOUND\n{_PYTHON}\nENDFOUND\n", "utf-8")
    return lab


def _common(record: Mapping[str, Any], lab: SimulatedLab) -> dict[str, str]:
    """Return the texts of what a host answers, where only what is its own is missing."""
    listed = {name: {"address": address, "aliases": [], "port": 22} for name, address in lab.hosts.items()}
    resolved = {name: [address] for name, address in lab.hosts.items()}
    whole = {
        "@HOSTS@": listed,
        "@NAMES@": list(lab.hosts),
        "@RESOLVES@": json.dumps(resolved),
        "@COMMAND@": [],
    }
    checks = dict(record["checks"])
    # The host has the programs of this clone, whenever it was recorded.
    sums = "".join(f"{digest}  /opt/hvlab/workloads/{name}\n" for name, digest in PROGRAMS.items())
    checks["programs"] = {"rc": 0, "out": sums, "err": ""}
    # Asked since it was recorded.
    checks["packs"] = {"rc": 0, "out": json.dumps({"/opt/hvlab/openmpi/current": []}), "err": ""}
    checks["host certificate"] = {"rc": 0, "out": f"        Valid: from {_LASTS}\n", "err": ""}
    recorded = _with(checks.pop("facts"), whole)
    # The roles write their records as to_nice_json does.
    facts = {path: json.dumps(fact, indent=4, sort_keys=True) + "\n" for path, fact in recorded.items()}
    resolved_names = {"rc": 0, "out": json.dumps(resolved), "err": ""}
    health = record["health"] | {"stdout": json.dumps(record["health"]["stdout"])}
    return {
        "facts": json.dumps(_with(record["facts"], whole)),
        "health": json.dumps(_with(health, whole)),
        "recorded": json.dumps({"facts": facts}),
        "checks": json.dumps({"facts": facts, "names": resolved_names, **checks}),
        "login": f"hvlab clock @CLOCK@\nhvlab python {_PYTHON} 3.11.2\nhvlab sudo yes\n",
    }


def _launches(name: str, names: Sequence[str], record: Mapping[str, Any]) -> dict[str, str]:
    """Return what the launches over many hosts printed that begin on this host, by question."""
    recorded = record["checks"]["facts"]["/etc/ansible/facts.d/hvlab_horovod.fact"]
    printed: dict[str, str] = {}
    for group in ranks.groups(names):
        if name == group[0] and len(group) > 1:
            size = len(group) * _SLOTS
            total = size * (size + 1) / 2
            own = {"size": size, "built": [*ranks.LAUNCHERS, "ccl"], "version": recorded["version"]}
            lines = (
                json.dumps(
                    {"rank": rank, "host": group[rank // _SLOTS], **own, "least": total, "most": total}
                )
                for rank in range(size)
            )
            text = "".join(f"{line}\n" for line in lines)
            printed |= {ranks.name("cpu", backend, "together", group): text for backend in ranks.LAUNCHERS}
    return printed


def _checks(common: str, ring: Mapping[str, str], printed: Mapping[str, str]) -> str:
    """Return the answers to the checks' questions with those of the logins and launches of this host."""
    tried = targets(ring)
    answer = {"rc": 0, "out": "hvlab\n", "err": ""}
    logins = {f"ssh {target}": answer for target in (*tried, *tried.values())}
    logins |= {name: answer | {"out": text} for name, text in printed.items()}
    return (
        common[:-1]
        + "".join(f", {json.dumps(name)}: {json.dumps(said)}" for name, said in logins.items())
        + "}"
    )


def _with(value: Any, whole: Mapping[str, Any]) -> Any:
    """Return what was recorded with each mark that is a value of its own replaced."""
    if isinstance(value, dict):
        return {key: _with(each, whole) for key, each in value.items()}
    if isinstance(value, list):
        return [_with(each, whole) for each in value]
    return whole.get(value, value) if isinstance(value, str) else value


def _filled(text: str, marks: Mapping[str, str]) -> str:
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def _host_key() -> str:
    """Return a new public Ed25519 key, as sshd has it in its file."""
    raw = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    kind = b"ssh-ed25519"
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, raw))
    return f"{kind.decode()} {base64.b64encode(blob).decode()}"
