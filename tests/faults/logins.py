"""Logins of the ranks' user that fail for its account, its shell or what they set, with right keys."""

from tests.faults.fault import LIST, fault
from tests.faults.stores import TINY

BASHRC = "/home/hvlab/.bashrc"
RELOGIN = "pkill -x -u hvlab sshd"
# What root did on the second host, what undoes it, and the words to be said.
SPOILT = {
    "password_that_has_expired": (
        "The password of the ranks' user has to be changed on the second host.",
        "chage -d 0 hvlab",
        "chage -d 2026-01-01 hvlab",
        ("refuses the account", "chage"),
    ),
    "host_under_maintenance": (
        "The second host lets nobody but root in (/etc/nologin).",
        "echo maintenance until 8 > /etc/nologin",
        "rm /etc/nologin",
        ("closes incoming ssh connections", "/etc/nologin"),
    ),
    "python_home_of_another_python": (
        "~/.bashrc on the second host sets PYTHONHOME for another Python.",
        f"sed -i '1i export PYTHONHOME=/opt/conda' {BASHRC}",
        f"sed -i 1d {BASHRC}",
        ("Python does not find its own library", "PYTHONHOME"),
    ),
    "tmp_that_only_root_may_write": (
        "/tmp of the second host has mode 0755.",
        "chmod 0755 /tmp",
        "chmod 1777 /tmp",
        ("session folder", "mode 1777"),
    ),
}


def spoilt(name, what, break_, mend, says):
    def put_in(world):
        # An open connection keeps what held when it was made.
        world.on(world.hosts[1], f"{break_}; {RELOGIN}")
        yield
        world.on(world.hosts[1], f"{mend}; {RELOGIN}")

    put_in.__name__, put_in.__doc__ = name, what
    # Without a connection, the host is not reached.
    code = 3 if name == "host_under_maintenance" else 1
    fault("logins", *TINY, code=code, says=says, then=LIST)(put_in)


for _name, _words in SPOILT.items():
    spoilt(_name, *_words)
