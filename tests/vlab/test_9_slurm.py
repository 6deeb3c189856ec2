"""Slurm on three virtual hosts: ranks over PMIx, sick and drained nodes, keys, UIDs."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT

pytestmark = pytest.mark.slurm

PLAYBOOK = "playbooks/slurm.yml"
SUM = """
import horovod.torch as hvd, socket, torch
hvd.init()
total = int(hvd.allreduce(torch.tensor(hvd.rank() + 1), op=hvd.Sum))
print(hvd.rank(), hvd.size(), socket.gethostname(), total, hvd.mpi_enabled(), hvd.gloo_enabled())
"""
MEETING = """
import ctypes, glob, os, time
library = sorted(glob.glob("/opt/hvlab/openmpi/*/lib/libmpi.so"))[0]
mpi = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
time.sleep(4 if os.environ["SLURM_PROCID"] == "1" else 0)
begun = time.time()
mpi.MPI_Init(None, None)
print(begun, time.time())
mpi.MPI_Finalize()
"""
AROUND_A_CHANGE = """
- hosts: c2
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: drain}
    - ansible.builtin.command: {argv: [sinfo, --noheader, --nodes=c2, "--format=%T|%E"]}
      register: state
    - ansible.builtin.copy: {content: "{{ state.stdout }}", dest: /root/state-while-drained, mode: "0644"}
    - ansible.builtin.include_role: {name: slurm, tasks_from: resume}
"""


@pytest.fixture
def lab(slurm):
    return slurm


def as_user(lab, command, expect=0):
    return lab.on("c1", f"cd /home/hvlab && runuser -u hvlab -- {command}", expect)


def state(lab, host):
    # A star is of a slurmd that answers late, as on a busy machine.
    shown = lab.on("c1", f"sinfo --noheader --Node --nodes={host} '--format=%T|%E'")
    return shown.strip().replace("*|", "|")


def failed_checks(lab):
    rows = json.loads(lab.hvlab("verify", "--format", "json", expect=1).stdout)
    return {(row["host"], row["role"]) for row in rows if row["outcome"] == "failed"}


def test_ranks_on_all_hosts_sum_over_mpi(lab):
    assert sorted(as_user(lab, "srun --mpi=pmix -N 3 --ntasks-per-node=1 hostname").split()) == [
        "c1",
        "c2",
        "c3",
    ]
    for host in ("c1", "c2", "c3"):
        lab.on(host, f"cat > /home/hvlab/sum.py <<'END'\n{SUM}\nEND")
    printed = as_user(
        lab,
        "env HOROVOD_CPU_OPERATIONS=MPI HOROVOD_CONTROLLER=mpi "
        "srun -K -W 60 --mpi=pmix -N 3 --ntasks-per-node=2 /opt/hvlab/horovod/cpu/bin/python sum.py",
    )
    lines = sorted(line.split() for line in printed.splitlines())
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4", "5"]
    assert {tuple(line[3:]) for line in lines} == {("21", "True", "False")}
    assert [line[2] for line in lines] == ["c1", "c1", "c2", "c2", "c3", "c3"]


def test_no_rank_leaves_mpi_init_before_all_have_begun_it(lab):
    for host in ("c1", "c2", "c3"):
        lab.on(host, f"cat > /home/hvlab/meeting.py <<'END'\n{MEETING}\nEND")
    printed = as_user(lab, "srun -K -W 60 --mpi=pmix -N 3 --ntasks-per-node=2 python3 meeting.py")
    begun, left = zip(*(map(float, line.split()) for line in printed.splitlines()), strict=True)
    assert len(left) == 6
    assert min(left) > max(begun)


def test_a_second_run_changes_nothing(lab):
    assert lab.site() == {"c1": 0, "c2": 0, "c3": 0}
    assert lab.playbook(PLAYBOOK, "--check") == {"c1": 0, "c2": 0, "c3": 0}
    assert lab.playbook(PLAYBOOK, "--limit", "c2") == {"c2": 0}


@pytest.mark.parametrize(
    "setting",
    # slurmd accepts the last one.
    [
        {"SlurmdTimeOut": "soon"},
        {"NoSuchSetting": 1},
        {"SelectType": "select/none"},
        {"SchedulerType": "sched/none"},
    ],
)
def test_settings_that_a_daemon_refuses_stop_none(lab, setting):
    started = "systemctl show -p ActiveEnterTimestamp slurmctld slurmd"
    before = lab.on("c1", started)
    words = ["-i", str(lab.inventory), "-e", json.dumps({"slurm_settings": setting})]
    done = lab.run(["ansible-playbook", PLAYBOOK, *words], 2)
    assert "slurm.conf: refused by Slurm: " in done.stdout
    assert lab.on("c1", started) == before
    assert lab.playbook(PLAYBOOK) == {"c1": 0, "c2": 0, "c3": 0}


def test_hosts_check_right(lab):
    lab.hvlab("verify")


ACCOUNTS = """
slurm_accounting_enabled: true
slurm_rest_enabled: true
slurm_accounts: [{name: physics, shares: 3, users: [hvlab]}]
slurm_partitions:
  - {name: hvlab}
  - {name: short, hosts: [c1, c2], settings: {MaxTime: "10"}}
slurm_settings: {AccountingStorageEnforce: limits}
"""


@pytest.fixture
def account_of_jobs(lab):
    """Slurm's accounting and its REST daemon, and a second partition."""
    file = lab.inventory / "group_vars/all.yml"
    kept = file.read_text("utf-8")
    file.write_text(kept + ACCOUNTS, "utf-8")
    try:
        lab.playbook(PLAYBOOK)
        yield
    finally:
        file.write_text(kept, "utf-8")
        lab.playbook(PLAYBOOK)


@pytest.mark.usefixtures("account_of_jobs")
def test_a_bench_is_in_the_accounts_and_the_rest_daemon_answers(lab):
    assert lab.playbook(PLAYBOOK) == {"c1": 0, "c2": 0, "c3": 0}
    sizes = ("--restart", "--sizes", "1K", "--iterations", "6", "--hosts", "2", "--slots", "1")
    lab.hvlab("bench", *sizes, "--backend", "mpi")
    run = lab.results_of("list")[0]["run_id"]
    jobs = lab.on("c3", f"sacct -a -n -P -o Account,User,AllocNodes --name=hvlab-{run} -X").split()
    assert jobs == ["hvlab|hvlab|2"]
    lab.hvlab("verify")
    assert lab.on("c1", "sinfo --noheader --partition=short '--format=%l %D'").split() == ["10:00", "2"]
    shown = "format=Account,User,Share"
    physics = f"sacctmgr --noheader --parsable2 show associations account=physics {shown}"
    assert lab.on("c1", physics).split() == ["physics||3", "physics|hvlab|1"]
    # Less than the 15 minutes that one case may take.
    lab.on("c1", "sacctmgr --immediate modify qos normal set MaxWall=00:10:00")
    said = " ".join(lab.hvlab("bench", *sizes, "--backend", "mpi", expect=2).stderr.split())
    assert "would wait for ever: QOSMaxWallDurationPerJobLimit" in said
    assert "name a shorter --time in lab_slurm_options" in said
    assert lab.on("c1", "squeue --noheader") == ""
    assert lab.on("c1", "ss -Hltn 'sport = :3306'").split()[3] == "127.0.0.1:3306"
    assert lab.on("c1", "ps -C slurmrestd -o user:20=").strip() == "slurmrestd"
    # Its own user alone gets an answer.
    socket = "/run/slurmrestd/slurmrestd.socket"
    lab.on("c1", f"runuser -u hvlab -- test -w {socket}", expect=1)


def test_a_changed_setting_restarts_the_daemons(lab):
    before = lab.on("c3", "systemctl show --property=MainPID slurmd munge").split()
    changed = lab.playbook(PLAYBOOK, "-e", json.dumps({"slurm_settings": {"MessageTimeout": 21}}))
    assert all(changed.values())
    assert "MessageTimeout          = 21 sec" in lab.on("c3", "scontrol show config")
    after = lab.on("c3", "systemctl show --property=MainPID slurmd munge").split()
    assert before[0] != after[0]
    assert before[1] == after[1], "munge has no reason to restart"
    lab.playbook(PLAYBOOK)


def test_a_file_that_slurmd_never_read_restarts_it(lab):
    """As after a playbook that was killed between the file and its handler."""
    lab.on("c3", "touch /etc/slurm/cgroup.conf")
    before = lab.on("c3", "systemctl show --property=MainPID --value slurmd munge").split()
    assert lab.playbook(PLAYBOOK)["c3"] > 0
    after = lab.on("c3", "systemctl show --property=MainPID --value slurmd munge").split()
    assert before[0] != after[0]
    assert before[1] == after[1]
    assert lab.playbook(PLAYBOOK) == {"c1": 0, "c2": 0, "c3": 0}


def test_the_nodes_do_not_change_while_hosts_are_left_out(lab):
    program = str(Path(lab.argv("verify")[0]).parent / "ansible-playbook")
    words = ["-i", str(lab.inventory), "--limit", "c2", "-e", "lab_slots=5"]
    printed = lab.run([program, PLAYBOOK, *words], 2).stdout
    assert "slurm.conf names all nodes, would change, and c1, c3 are not in this run" in " ".join(
        printed.split()
    )


def test_a_host_that_is_down_keeps_no_other_from_a_change(lab):
    program = str(Path(lab.argv("verify")[0]).parent / "ansible-playbook")
    words = ["-i", str(lab.inventory), "-e", json.dumps({"slurm_settings": {"MessageTimeout": 22}})]
    # Ansible's connections of before would outlive the daemon.
    stop = "systemctl stop slurmd ssh.socket ssh.service; sleep 1; pkill -KILL sshd"
    lab.on("c3", f"systemd-run --quiet --collect sh -c '{stop}'")
    try:
        printed = " ".join(lab.run([program, PLAYBOOK, *words], 4).stdout.split())
        assert "c3: could not be reached" in printed
        assert "or leave it out: --limit 'all:!c3'" in printed
        gone = 'for i in $(seq 90); do sinfo -hNn c3 -o %T | grep -q "*" && exit; sleep 1; done; exit 1'
        lab.on("c1", gone)
        warned = " ".join(lab.run([program, PLAYBOOK, *words, "--limit", "all:!c3"], 0).stderr.split())
    finally:
        lab.hvlab("lab up")
    assert "slurm.conf changes without c3: down, or failed in this run" in warned
    assert "MessageTimeout          = 22 sec" in lab.on("c2", "scontrol show config")
    assert "NodeName=c3 " in lab.on("c1", "cat /etc/slurm/slurm.conf")
    changed = lab.playbook(PLAYBOOK, *words[2:])
    assert (changed["c2"], changed["c3"] > 0) == (0, True)
    lab.playbook(PLAYBOOK)


def test_a_wrong_key_is_named_and_replaced(lab):
    key = "/etc/munge/munge.key"
    lab.on("c3", f"head -c 128 /dev/urandom > {key} && systemctl restart munge")
    assert ("c3", "slurm") in failed_checks(lab)
    assert lab.playbook(PLAYBOOK)["c3"] > 0
    # Credentials are refused for a while: slurmctld looks again at a node that did not answer.
    lab.on("c1", "for i in $(seq 60); do [ $(sinfo -hNn c3 -o %T) = idle ] && exit; sleep 1; done; exit 1")
    lab.hvlab("verify")
    key_file = lab.data / "trust/vslurm/munge.key"
    assert key_file.stat().st_mode & 0o777 == 0o600


def test_a_sick_node_is_drained_with_the_reason(lab):
    types = "/opt/hvlab/health/machine-types.json"
    lab.on("c3", f'cp {types} /root/ && sed -i \'s/"host0"/"ib9"/\' {types}')
    try:
        print(as_user(lab, "sh -c 'timeout 20 srun -w c3 -N 1 hostname 2>&1; echo status $?; squeue'"))
        assert "drained|hvlab health: " in state(lab, "c3")
        assert "ib9" in state(lab, "c3")
    finally:
        lab.on("c3", f"mv /root/machine-types.json {types}")
        lab.on("c1", "scancel --user=hvlab; scontrol update NodeName=c3 State=RESUME")
    assert as_user(lab, "timeout 60 srun -w c3 -N 1 hostname").strip() == "c3"


def test_a_batch_job_that_comes_upon_a_sick_node_starts_on_another_one(lab):
    types = "/opt/hvlab/health/machine-types.json"
    lab.on("c3", f'cp {types} /root/ && sed -i \'s/"host0"/"ib9"/\' {types}')
    alone = "sbatch --parsable --exclusive --output=/dev/null --chdir=/tmp"
    try:
        for host in ("c1", "c2"):
            as_user(lab, f"{alone} --nodelist={host} --wrap='sleep 20'")
        job = as_user(lab, f"{alone} --nodes=1 --wait --wrap=true").strip()
        shown = as_user(lab, f"scontrol show job {job}")
        assert "JobState=COMPLETED" in shown
        assert "Restarts=1" in shown
        assert " NodeList=c3" not in shown
        assert "drained|hvlab health: " in state(lab, "c3")
    finally:
        lab.on("c3", f"mv /root/machine-types.json {types}")
        lab.on("c1", "scancel --user=hvlab; scontrol update NodeName=c3 State=RESUME")


def test_a_change_waits_for_the_jobs_of_its_node(lab, tmp_path):
    (tmp_path / "change.yml").write_text(AROUND_A_CHANGE, "utf-8")
    (tmp_path / "group_vars").symlink_to(PROJECT / "group_vars")
    job = subprocess.Popen(
        lab.argv("lab ssh", "c1", "--", "runuser -u hvlab -- srun -w c2 -N 1 -D / sleep 15"),
        env=lab.environment,
        stdin=subprocess.DEVNULL,
    )
    lab.on("c1", "for i in $(seq 30); do squeue -h -w c2 -t R | grep -q . && exit; sleep 1; done; exit 1")
    lab.playbook(str(tmp_path / "change.yml"))
    assert job.wait(timeout=60) == 0, "the job was to end on its own"
    assert lab.on("c2", "cat /root/state-while-drained").strip() == "drained|hvlab: the GPU stack is changed"
    assert state(lab, "c2") == "idle|none"


def test_a_lab_user_with_another_uid_is_refused(lab):
    uid = lab.on("c3", "id -u hvlab").strip()
    lab.on("c3", "usermod -u 4242 hvlab")
    program = str(Path(lab.argv("verify")[0]).parent / "ansible-playbook")
    try:
        printed = lab.run([program, PLAYBOOK, "-i", str(lab.inventory)], 2).stdout
    finally:
        lab.on("c3", f"usermod -u {uid} hvlab")
    observed = (
        f"hvlab has UID {uid} on c1, UID {uid} on c2, UID 4242 on c3, and Slurm knows users by their UID"
    )
    assert observed in " ".join(printed.split())
