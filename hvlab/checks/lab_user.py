"""The lab user, who runs the ranks, exists and has no special rights."""

from __future__ import annotations

from hvlab.checks.provisioned import Question, Role, RoleHost, run


def asks(node: RoleHost) -> dict[str, Question]:
    return {
        "account": run(["getent", "passwd", node.user]),
        "identity": run(["id", "-u"], user=node.user),
        "groups": run(["id", "-nG", node.user]),
        "sudo": run(["sudo", "-n", "true"], user=node.user),
        "home": run(["stat", "--format=%U", "."], user=node.user),
    }


ROLE = Role("lab_user", asks)


@ROLE.check
def exists(node: RoleHost) -> None:
    node.expect(node["account"]["rc"] == 0, f"there is no user {node.user}")


@ROLE.check
def is_unprivileged(node: RoleHost) -> None:
    number = node.output("identity").strip()
    node.expect(number != "0", f"{node.user} is root", "set lab_user_name to a user of its own")
    if node.variables["lab_user_sudo"] == "none":
        node.expect(
            node["sudo"]["rc"] != 0, f"{node.user} can use sudo", "run role lab_user; look in /etc/sudoers.d"
        )
        strong = {"root", "sudo", "wheel", "docker", "disk"} - set(node.variables["lab_user_groups"]) & set(
            node["groups"]["out"].split()
        )
        if node.variables["container_runtime_user_in_group"]:
            strong.discard("docker")
        node.expect(
            not strong, f"{node.user} is in {', '.join(sorted(strong))}", f"`gpasswd -d {node.user} GROUP`"
        )


@ROLE.check
def owns_its_home(node: RoleHost) -> None:
    home = node.output("account").split(":")[5]
    owner = node.output("home", f"make {home}, or run role lab_user").strip()
    node.expect(owner == node.user, f"{home} belongs to {owner}", f"`chown -R {node.user}: {home}`")
