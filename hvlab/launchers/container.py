"""Where ranks run inside containers: what `docker run` gets. Pure.

On each host one container of the run has an sshd on a port of its own as its main process. With the host's
own key and certificate and the lab user's home, logging in there is logging in to the host, but for the
port and the root file system; so the launchers need no more than that port.
"""

from __future__ import annotations

from collections.abc import Sequence

from hvlab.lab.inventory import Host, Lab

# As the role ssh_trust has them.
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_HOST_CERTIFICATE = f"{_HOST_KEY}-cert.pub"
_USER_CA = "/etc/ssh/hvlab_user_ca.pub"
_REVOKED = "/etc/ssh/hvlab_revoked_keys"
_READ = (
    *(_HOST_KEY, _HOST_CERTIFICATE, _USER_CA, _REVOKED, "/etc/ssh/ssh_known_hosts"),
    *("/etc/passwd", "/etc/group", "/etc/ansible/facts.d", "/opt/hvlab"),
)
_NEEDED = (
    "--network=host",
    # Shared memory of full size, and no limit on locked memory: what ranks of one host, NCCL and RDMA need.
    "--ipc=host",
    "--ulimit=memlock=-1",
    # Open MPI copies straight from the memory of another rank.
    "--cap-add=SYS_PTRACE",
    # SELinux would bar the container from the home directory.
    "--security-opt=label=disable",
    "--tmpfs=/run/sshd:mode=0755",
)


def name(run_id: str) -> str:
    """Return the name of a run's container, the same on every host."""
    return f"hvlab-{run_id}"


def argv(
    host: Host, lab: Lab, run_id: str, *, image: str, port: int, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command that starts the container of a run on ``host``, with sshd on ``port``."""
    user = lab.text("lab_user_name", "hvlab")
    home = lab.text("lab_user_home", f"/home/{user}")
    return (
        *("docker", "run", "--detach", f"--name={name(run_id)}"),
        *(f"--label=hvlab.run={run_id}", f"--label=hvlab.lab={lab.name}"),
        *_NEEDED,
        *(["--gpus=all"] if host.gpu else []),
        # Where a path is missing, --volume would make a folder of it on the host: of the revoked keys, one that
        # shuts everybody out.
        *(f"--mount=type=bind,source={path},target={path},readonly" for path in _READ),
        f"--volume={home}:{home}",
        *options,
        *("--entrypoint=/usr/sbin/sshd", image),
        *_sshd(user, port),
    )


def _sshd(user: str, port: int) -> list[str]:
    """Return sshd's arguments; its configuration in the image plays no part."""
    settings = {
        "Port": str(port),
        "HostKey": _HOST_KEY,
        "HostCertificate": _HOST_CERTIFICATE,
        "TrustedUserCAKeys": _USER_CA,
        "RevokedKeys": _REVOKED,
        "AuthorizedKeysFile": "none",
        "AllowUsers": user,
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        # The image's PAM does not know the host's users.
        "UsePAM": "no",
        "PidFile": "none",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return ["-D", "-e", "-f", "/dev/null", *options]
