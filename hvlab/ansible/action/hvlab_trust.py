"""Set up strict SSH within the lab for a host and its lab user: signed here, written there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ansible.errors import AnsibleActionFail

from hvlab.ansible.action.hvlab_files import bring
from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import HvlabError
from hvlab.remote.ssh_keys import public
from hvlab.remote.trust import Trust, ensure_lab_trust, lab_trust

SSHD_CONFIG = "etc/ssh/sshd_config.d/10-hvlab.conf.j2"
# Their sshd has no Include: the lines go to its only file, above what counts for some logins only.
WITHOUT_INCLUDE = {("Amazon", "2"), ("RedHat", "7"), ("RedHat", "8")}
MATCH = r"(?i)^\s*match[\s=]"
# An sshd that was updated from such a release may have kept its settings.
TRIED = """\
sed '/^[[:space:]]*match[[:space:]=]/I,$d' "$2" |
grep -Eiq '^[[:space:]]*include[[:space:]=].*sshd_config[.]d' || {
  echo "$2 reads no drop-ins for all logins: write 'Include /etc/ssh/sshd_config.d/*.conf' at its top"
  exit 1; }
/usr/sbin/sshd -t -f "$1"
"""
# sshd writes it when it starts, and when it is reloaded.
SSHD_PID = "/run/sshd.pid"
PLACES = (
    *("/etc/ssh/ssh_host_ed25519_key-cert.pub", "/etc/ssh/hvlab_user_ca.pub"),
    *("/etc/ssh/hvlab_revoked_keys", "/etc/ssh/ssh_known_hosts"),
)


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the result of hvlab_files for the host."""
        args, name, facts = self.args, self.host, self.vars["ansible_facts"]["hvlab"]
        if name not in args["hosts"]:
            raise AnsibleActionFail(f"{name}: its address is not known. Run playbooks/preflight.yml first.")
        if not facts["ssh_host_key"]:
            raise AnsibleActionFail(f"{name}: sshd has no Ed25519 host key. Run ssh-keygen -A on it.")
        try:
            trust = self._trust(args["lab"], args["user"])
            if trust is None:
                usual = "/" + SSHD_CONFIG.removesuffix(".j2")
                sshd = sshd_config(self.vars["ansible_facts"]).get("path", usual)
                paths = [*PLACES, sshd, f"{args['home']}/.ssh"]
                message = f"would make or renew the keys of lab {args['lab']}"
                return {"changed": True, "msg": message, "paths": paths}
            certificate = self._certificate(trust, name, facts)
            files = self._files(trust, certificate, self.vars["ansible_facts"])
        except HvlabError as error:
            remedy = f"\nWhat to do: {error.remedy}." if error.remedy else ""
            raise AnsibleActionFail(f"{name}: {error}.{remedy}") from None
        # Recorded first: a host whose connection then breaks has an unknown state, but can be revoked.
        if not self._task.check_mode:
            trust.keep_key(name, facts["ssh_host_key"])
        result = bring(self, files, self.vars)
        if not self._task.check_mode and not result.get("failed"):
            trust.keep_certificate(name, certificate)
        return result

    def _trust(self, lab: str, user: str) -> Trust | None:
        """Return the lab's keys, made or renewed if due; None in check mode if that is due."""
        if not self._task.check_mode:
            return ensure_lab_trust(lab, user=user, life=timedelta(days=self.args["user_days"]))
        trust = lab_trust(lab)
        return trust if trust and trust.user_certificate_good(user) else None

    def _certificate(self, trust: Trust, name: str, facts: Mapping[str, Any]) -> str:
        """Return the host's certificate, a new one if due; `signed` does not have it yet."""
        host = self.args["hosts"][name]
        return trust.sign_host(
            facts["ssh_host_key"],
            name=name,
            principals=[name, host["address"], *host["aliases"]],
            current=facts["ssh_host_cert"],
            life=timedelta(days=self.args["host_days"]),
            keep=False,
            others=self.args["hosts"],
        )

    def _files(self, trust: Trust, certificate: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        args = self.args
        hosts = {host: [data["address"], *data["aliases"]] for host, data in args["hosts"].items()}
        ports = {data["port"] for data in args["hosts"].values()}
        known_hosts = trust.known_hosts_text(hosts, ports=ports)
        if not self._task.check_mode:
            trust.write_known_hosts(known_hosts)
        home = {"owner": args["user"]}
        ssh = f"{args['home']}/.ssh"
        fact = {"lab": args["lab"], "user": args["user"], "hosts": list(hosts), "authority": trust.authority}
        host_certificate, user_authority, revoked, known = PLACES
        identity, certified = trust.identity.read_text("utf-8"), trust.certificate.read_text("utf-8")
        return [
            {"path": host_certificate, "content": certificate + "\n", "mode": "0644", "loaded": SSHD_PID},
            {"path": user_authority, "content": trust.user_authorities_text, "mode": "0644"},
            # Before sshd reads its path: with the file missing, it refuses everybody.
            {"path": revoked, "content": trust.revoked_text, "mode": "0644"},
            {"validate": ["/usr/sbin/sshd", "-t", "-f", "%s"], "loaded": SSHD_PID, **sshd_config(facts)},
            {"path": known, "block": known_hosts, "mode": "0644"},
            {"path": ssh, "state": "directory", "mode": "0700", **home},
            {"path": f"{ssh}/id_ed25519", "secret": identity, "mode": "0600", **home},
            {
                "path": f"{ssh}/id_ed25519.pub",
                "content": public(trust.identity) + "\n",
                "mode": "0644",
                **home,
            },
            {"path": f"{ssh}/id_ed25519-cert.pub", "content": certified, "mode": "0644", **home},
            {"path": f"{ssh}/config", "block_template": "home/hvlab/.ssh/config.j2", "mode": "0600", **home},
            {
                "path": "/etc/ansible/facts.d/hvlab_ssh_trust.fact",
                "content": json.dumps(fact, indent=4, sort_keys=True) + "\n",
                "mode": "0644",
            },
        ]


def sshd_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file of sshd's lines on a system: their own, or a block in the one of an old sshd."""
    systems = {(facts[name], facts["distribution_major_version"]) for name in ("distribution", "os_family")}
    if systems & WITHOUT_INCLUDE:
        return {"path": "/etc/ssh/sshd_config", "block_template": SSHD_CONFIG, "above": MATCH}
    tried = ["sh", "-c", TRIED, "sshd", "%s", "/etc/ssh/sshd_config"]
    return {"template": SSHD_CONFIG, "mode": "0644", "validate": tried}
