"""Keys, certificates and authorities that are gone or wrong."""

import shutil

from tests.faults.fault import fault
from tests.faults.provisioning import TRUST
from tests.faults.stores import TINY

STATUS = ("keys", "status")
LOGIN = "/home/hvlab/.ssh"


@fault(
    "keys", *STATUS, code=1, says=("has no keys on this machine", "hvlab keys init"), seconds=15, short=True
)
def authorities_that_are_lost(world):
    """The lab's authorities are gone from the controller."""
    with world.saved(world.trust) as folder:
        shutil.rmtree(folder)
        yield


@fault("keys", *STATUS, code=1, says=("damaged", "hvlab keys init"), seconds=15)
def authority_that_is_emptied(world):
    """The file of the hosts' authority has 0 bytes on the controller, as after a full disk."""
    with world.saved(world.trust / "host_ca") as file:
        file.write_bytes(b"")
        yield


@fault("keys", *TINY, code=0, seconds=60)
def keys_that_others_may_read(world):
    """The lab's private keys have mode 0644: they get mode 0600 again."""
    keys = [world.trust / name for name in ("host_ca", "user_ca", "id_ed25519")]
    for key in keys:
        key.chmod(0o644)
    yield
    assert [key.stat().st_mode & 0o777 for key in keys] == [0o600] * 3


@fault("keys", *TINY, code=1, says=("do not trust this machine yet", "hvlab provision"), seconds=30)
def bench_without_authorities(world):
    """The lab's authorities are gone when a bench begins."""
    with world.saved(world.trust) as folder:
        shutil.rmtree(folder)
        yield


@fault("keys", *TINY, code=0, seconds=60)
def certificate_that_is_no_certificate(world):
    """The lab user's certificate is damaged on the controller: it is made again."""
    with world.saved(world.trust / "id_ed25519-cert.pub") as file:
        file.write_text("nonsense\n")
        yield


@fault("keys", *TINY, code=1, says=("what to do",), seconds=60)
def login_key_that_is_gone_on_the_head(world):
    """The ranks' key is gone on the head: it cannot reach the second host."""
    head = world.hosts[0]
    world.on(head, f"mv {LOGIN}/id_ed25519 /root/")
    yield
    world.on(head, f"mv /root/id_ed25519 {LOGIN}/")


@fault("keys", *TINY, code=1, says=("~/.ssh", "hvlab provision"), seconds=60, then=TRUST)
def folder_of_keys_that_is_gone_on_the_head(world):
    """The ranks' ~/.ssh is gone on the head: provision brings it back."""
    world.on(world.hosts[0], f"rm -r {LOGIN}")
    yield


@fault("keys", "verify", code=1, says=("ssh_trust", "hvlab provision"), seconds=90, then=TRUST)
def authority_that_is_gone_on_a_host(world):
    """A host has lost the authority of its users; provision brings it back."""
    world.on(world.hosts[1], "rm /etc/ssh/hvlab_user_ca.pub")
    yield


@fault("keys", "keys", "revoke", "nobody", code=2, says=("nobody", "choose from"), seconds=15, then=STATUS)
def revocation_of_a_stranger(world):
    """A host is to be revoked that was never signed."""
    yield
