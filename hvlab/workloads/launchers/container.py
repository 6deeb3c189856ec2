"""Where ranks run inside containers: what `docker run` gets. Pure.

On each host one container of the run has an sshd on a port of its own as its main process. It has a
certificate for the host's names, and the lab user's home: to a launcher it is the host on another port, with
another root file system. The key belongs to the run: an image never gets the host's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hvlab.lab.inventory import Host, Lab

# As the role ssh_trust has them.
_USER_CA = "/etc/ssh/hvlab_user_ca.pub"
_REVOKED = "/etc/ssh/hvlab_revoked_keys"
_READ = (
    *(_USER_CA, _REVOKED, "/etc/ssh/ssh_known_hosts"),
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


def host_key(run_id: str) -> str:
    """Return the path of the private key of a run's sshd, on each host and in its container."""
    return f"/run/{name(run_id)}/ssh_host_key"


def host_certificate(run_id: str) -> str:
    """Return the path of the certificate of that key."""
    return f"{host_key(run_id)}-cert.pub"


def argv(
    host: Host, lab: Lab, run_id: str, *, image: str, port: int, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command that starts the container of a run on ``host``, with sshd on ``port``."""
    user = lab.text("lab_user_name", "hvlab")
    home = lab.text("lab_user_home", f"/home/{user}")
    read = (*_READ, host_key(run_id), host_certificate(run_id))
    return (
        *("docker", "run", "--detach", f"--name={name(run_id)}"),
        *(f"--label=hvlab.run={run_id}", f"--label=hvlab.lab={lab.name}"),
        *_NEEDED,
        *(["--gpus=all"] if host.gpu else []),
        # --volume would create a missing path as a folder on the host; for the revoked keys that would lock
        # everybody out.
        *(f"--mount=type=bind,source={path},target={path},readonly" for path in read),
        f"--volume={home}:{home}",
        *options,
        *("--entrypoint=/usr/sbin/sshd", image),
        *_sshd(user, port, run_id),
    )


def _sshd(user: str, port: int, run_id: str) -> list[str]:
    """Return sshd's arguments; the image's own configuration is ignored."""
    settings = {
        "Port": str(port),
        "HostKey": host_key(run_id),
        "HostCertificate": host_certificate(run_id),
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
