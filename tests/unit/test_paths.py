"""Where things lie that nobody named."""

import os

import pytest

from hvlab.base import paths
from hvlab.base.errors import UsageError

DEFAULTS = [
    (paths.default_inventory, "inventory/lab", "ANSIBLE_INVENTORY"),
    (paths.results_dir, "results", "HVLAB_RESULTS"),
]


@pytest.mark.parametrize(("default", "name", "variable"), DEFAULTS)
def test_a_folder_that_others_may_write_names_nothing(tmp_path, monkeypatch, default, name, variable):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(variable, raising=False)
    assert default() == default()
    (tmp_path / name).mkdir(parents=True)
    default()
    tmp_path.chmod(0o1777)
    with pytest.raises(UsageError, match="may be written by every user") as caught:
        default()
    assert variable in str(caught.value.remedy)
    monkeypatch.setenv(variable, str(tmp_path / name))
    assert default() == tmp_path / name


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
@pytest.mark.parametrize(("default", "name", "variable"), DEFAULTS)
def test_what_belongs_to_another_user_is_not_used(tmp_path, monkeypatch, default, name, variable):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(variable, raising=False)
    (tmp_path / name).mkdir(parents=True)
    os.chown(tmp_path / name, 4321, 4321)
    with pytest.raises(UsageError, match="belongs to user 4321"):
        default()
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4321")
    default()
