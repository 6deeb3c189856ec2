"""Where sshd's lines go."""

from hvlab.ansible.action.hvlab_trust import sshd_config


def test_a_file_of_its_own_where_sshd_reads_drop_ins():
    path = "/etc/ssh/sshd_config.d/10-hvlab.conf"
    wanted = sshd_config({"sshd_config_path": path, "sshd_config": "X\n"})
    assert wanted == {"path": path, "content": "X\n", "mode": "0644"}


def test_a_block_in_the_one_file_of_an_old_sshd():
    path = "/etc/ssh/sshd_config"
    wanted = sshd_config({"sshd_config_path": path, "sshd_config": "X\n"})
    assert wanted == {"path": path, "block": "X\n"}
