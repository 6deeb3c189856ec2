"""Signing keys that live as long as the folder they are in."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Key:
    """A key without passphrase in a GnuPG home of its own."""

    home: Path

    @classmethod
    def ensure(cls, home: Path) -> Key:
        """Return the key in this folder; it is made where there is none."""
        key = cls(home)
        if not (home / "pubring.kbx").exists():
            home.mkdir(mode=0o700, parents=True)
            words = [
                "--quick-generate-key",
                f"{home.name} <{home.name}@example.org>",
                "rsa2048",
                "sign",
                "never",
            ]
            key.gpg("--passphrase", "", *words)
            key.close()
        return key

    @property
    def fingerprint(self) -> str:
        lines = self.gpg("--with-colons", "--list-keys").decode().splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))

    @property
    def public(self) -> bytes:
        """The public key, armored."""
        return self.gpg("--armor", "--export")

    def sign(self, path: Path, signature: Path, *, clear: bool = False) -> None:
        """Write a detached signature of a file, or with ``clear`` the file and its signature in one."""
        how = ["--clearsign"] if clear else ["--armor", "--detach-sign"]
        self.gpg("--yes", "--output", str(signature), *how, str(path))

    def sign_rpms(self, paths: list[Path]) -> None:
        defines = {"_gpg_name": self.fingerprint, "_gpg_path": self.home, "__gpg": shutil.which("gpg")}
        options = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        self._run(["rpmsign", *options, "--addsign", *map(str, paths)])
        self.close()

    def gpg(self, *words: str) -> bytes:
        return self._run(["gpg", "--batch", "--homedir", str(self.home), *words])

    def close(self) -> None:
        """End the agent that GnuPG left running for this home."""
        self._run(["gpgconf", "--homedir", str(self.home), "--kill", "all"])

    def _run(self, argv: list[str]) -> bytes:
        done = subprocess.run(argv, capture_output=True, check=False)
        assert done.returncode == 0, f"{argv[0]} ended with {done.returncode}: {done.stderr.decode()}"
        return done.stdout
