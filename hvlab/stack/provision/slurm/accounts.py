"""The lab's accounts that slurmdbd lacks."""

from __future__ import annotations

from hvlab.stack.provision.slurm.host import SlurmRequest


def registrations(request: SlurmRequest, listed: str) -> list[list[str]]:
    """Return the sacctmgr commands that register the lab and its accounts with slurmdbd, in order.

    ``listed`` has its associations, as ``cluster|account|user|share``.
    """
    shares = listed.splitlines()
    there = {row.rpartition("|")[0] for row in shares}
    name, cluster = request.cluster.lower(), f"cluster={request.cluster}"
    # The lab user's account has its name, and slurm_accounts may name it; slurmdbd stores lower case.
    own = request.lab_user.lower()
    shared = {account["name"]: f"fairshare={account.get('shares', 1)}" for account in request.accounts}
    commands = {
        f"{name}|root|": ["add", "cluster", request.cluster],
        f"{name}|{own}|": ["add", "account", own, cluster, *([shared[own]] if own in shared else [])],
        f"{name}|{own}|{request.lab_user}": ["add", "user", request.lab_user, f"account={own}", cluster],
    }
    for account, share in shared.items():
        row = f"{name}|{account}|"
        if row not in there:
            commands.setdefault(row, ["add", "account", account, cluster, share])
        elif (shared_row := f"{row}|{share.partition('=')[2]}") not in shares:
            commands[shared_row] = ["modify", "account", f"name={account}", cluster, "set", share]
    for account in request.accounts:
        for user in account.get("users", ()):
            commands.setdefault(
                f"{name}|{account['name']}|{user}",
                ["add", "user", user, f"account={account['name']}", cluster],
            )
    return [words for row, words in commands.items() if row not in there]
