"""A test repository: NVIDIA's apt and dnf repositories with small packages of our own.

Names, versions and dependencies are the real ones, see packages.yml and drivers.yml. The content is a few
bytes each: an nvcc that tells its version, libraries that load and tell theirs, a kernel module that DKMS
can build, an nvidia-smi that says what the real one says without a driver. All of it is signed with a
throwaway key and served on the lab's own gateway address. Building it takes about ten seconds.

In a test::

    from tests.vlab.repository import Repository

    with Repository(tmp_path_factory.mktemp("repository"), "198.18.252.1") as repository:
        repository.variables          # nvidia_repository_url and _key_fingerprint, for the inventory
        repository.url                # http://198.18.252.1:PORT/compute/cuda/repos, below it <system>/x86_64
        repository.withdraw("libnccl2", "2.21.5-1+cuda12.4")   # the version vanishes from every system
        repository.sign(repository.other)                      # signed by another key than the published one
        repository.restore()          # as it was built
        repository.stop()             # nobody answers; start() goes on at the same address
        repository.site               # + /libnvidia-container/stable/{deb/amd64,rpm/x86_64}, key at
                                      #   /libnvidia-container/gpgkey; + /epel/9/Everything/x86_64 (dkms)

The lab has to be up first: its gateway address is the bridge's. By hand::

    python -m tests.vlab.repository --folder DIR --address 198.18.N.1 [--port 8088] [--systems debian12 rhel9]

Systems are debian12, ubuntu2204 and rhel9 unless told otherwise. Below each the key has the name NVIDIA
gives it (3bf863cc.pub, D42D0685.pub, ...), so only address and fingerprint have to be set. Programs it
needs, with their Debian packages: gpg (gnupg), rpmbuild and rpmsign (rpm), createrepo_c and modifyrepo_c
(createrepo-c).
"""

from tests.vlab.repository.repository import Repository

__all__ = ["Repository"]
