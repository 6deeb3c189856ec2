"""What `hvlab verify` asks hosts about Horovod, and what it makes of the answers."""

import itertools
import json
from types import SimpleNamespace

import pytest

from hvlab.checks import horovod as checks
from hvlab.checks import horovod_ranks as ranks
from hvlab.checks.provisioned import RoleHost, WrongNodeError
from hvlab.checks.round_trips import with_mute

VARIABLES = {
    "lab_interface": "eth0",
    "lab_network": "10.0.0.0/24",
    "horovod_prefix": "/opt/horovod",
    "openmpi_prefix": "/opt/openmpi",
    "workloads_dir": "/opt/workloads",
    "horovod_variants": {"cpu": {"frameworks": ["torch"], "mpi": True, "gloo": True}},
    "horovod_version": "0.28.1",
}


@pytest.mark.parametrize(
    ("backend", "program"),
    [("mpi", "/opt/openmpi/current/bin/mpirun"), ("gloo", "/opt/horovod/cpu/bin/horovodrun")],
)
def test_two_ranks_are_started_as_a_benchmark_is(backend: str, program: str) -> None:
    node = SimpleNamespace(variables=VARIABLES, user="hvlab", name="n1", alone=False)
    question = str(ranks.allreduce(node, "cpu", backend, hosts=("n1", "n2"), slots=1))
    assert program in question
    assert "/opt/horovod/cpu/bin/python" in question
    assert "mpi_yield_when_idle" not in question


def test_with_torch_in_horovods_place_torchrun_starts_the_ranks_of_hvlab_horovod() -> None:
    node = SimpleNamespace(
        variables=VARIABLES | {"horovod_version": ""}, user="hvlab", name="n1", alone=False
    )
    assert [ranks.having(node, name) for name in ranks.LAUNCHERS] == [[], [], ["torch"]]
    question = ranks.allreduce(node, "torch", "horovod-on-ddp-gloo", hosts=("n1", "n2"), slots=1)
    assert question["env"]["PYTHONPATH"] == "/opt/workloads/hvlab_horovod"
    assert question["env"]["MASTER_ADDR"] == "n1"
    assert "torch.distributed.run" in question["run"]


@pytest.mark.parametrize(
    ("connection", "peers", "hosts"),
    [
        ("local", {}, "localhost:2"),
        ("ansible.builtin.local", {}, "localhost:2"),
        ("local", {"n2": "10.0.0.2"}, "n1:2"),
        ("ssh", {}, "n1:2"),
    ],
)
def test_a_machine_alone_needs_no_name(connection: str, peers: dict[str, str], hosts: str) -> None:
    variables = VARIABLES | {"lab_user_name": "hvlab", "ansible_connection": connection}
    node = RoleHost("n1", SimpleNamespace(), variables, peers=peers)
    assert hosts in ranks.allreduce(node, "cpu", "mpi", hosts=("n1",), slots=2)["run"]


def test_ranks_of_virtual_hosts_leave_their_core_to_others_while_they_wait() -> None:
    variables = VARIABLES | {"group_names": ["virtual"]}
    node = SimpleNamespace(variables=variables, user="hvlab", name="n1", alone=False)
    assert "mpi_yield_when_idle" in str(ranks.allreduce(node, "cpu", "mpi", hosts=("n1", "n2"), slots=1))


def hosts_of(number, *, virtual=True, backends=("mpi",)):
    """Return the hosts of a lab that were provisioned, as far as the checks of Horovod look at them."""
    variant = {"frameworks": ["torch"], **dict.fromkeys(backends, True)}
    variables = VARIABLES | {
        "horovod_variants": {"cpu": variant},
        "horovod_version": "0.28.1",
        "lab_user_name": "hvlab",
        "group_names": ["virtual"] * virtual,
    }
    names = [f"n{index:02}" for index in range(number)]
    facts = {
        "/etc/ansible/facts.d/hvlab_common.fact": json.dumps({"stack": {"torch": "2.7.1"}}),
        "/etc/ansible/facts.d/hvlab_horovod.fact": json.dumps({"variants": {"cpu": {"operations": []}}}),
    }
    return {
        name: RoleHost(name, None, variables, dict.fromkeys(set(names) - {name}, ""), {"facts": facts})
        for name in names
    }


def printed(hosts, slots, *, built=("mpi",)):
    size = len(hosts) * slots
    total = size * (size + 1) / 2
    common = {"size": size, "version": "0.28.1", "built": built, "least": total, "most": total}
    lines = [json.dumps({"rank": rank, "host": hosts[rank // slots], **common}) for rank in range(size)]
    return {"rc": 0, "out": "\n".join(lines), "err": ""}


def answered(nodes, answer):
    """Ask until there is nothing more to ask; return the questions of each round by host."""
    rounds = []
    while asked := {name: set(checks.asks_after(node, nodes)) for name, node in nodes.items()}:
        asked = {name: questions for name, questions in asked.items() if questions}
        if not asked:
            break
        rounds.append(asked)
        for name, questions in asked.items():
            nodes[name].answers.update({question: answer(name, question) for question in questions})
    return rounds


@pytest.mark.parametrize(
    ("number", "sizes"),
    [(1, [1]), (2, [2]), (32, [32]), (33, [32, 2]), (63, [32, 32]), (100, [32, 32, 32, 7])],
)
def test_groups_reach_every_host_and_each_the_next(number, sizes):
    groups = ranks.groups([f"n{index:03}" for index in range(number)])
    assert [len(group) for group in groups] == sizes
    assert all(one[-1] == other[0] for one, other in itertools.pairwise(groups))
    assert len(set().union(*groups)) == number


@pytest.mark.parametrize(("virtual", "slots"), [(True, 1), (False, 2)])
def test_one_launch_is_enough_where_it_is_right(virtual, slots):
    nodes = hosts_of(40, virtual=virtual)
    groups = {group[0]: group for group in ranks.groups(nodes)}
    rounds = answered(nodes, lambda name, question: printed(groups[name], slots))
    assert rounds == [{"n00": {"cpu mpi together n31"}, "n31": {"cpu mpi together n39"}}]
    for node in nodes.values():
        checks.version_matches_the_inventory(node, nodes)
        checks.build_flags_match_the_inventory(node, nodes)
        checks.ranks_add_up_on_this_host(node, nodes, "mpi")
        checks.ranks_add_up_between_hosts(node, nodes, "mpi")
        checks.ranks_add_up_on_all_hosts(node, nodes, "mpi")


def test_a_launch_that_fails_is_followed_by_those_of_each_of_its_hosts():
    nodes = hosts_of(4)

    def answer(name, question):
        if "together" in question or (name == "n02" and "here" in question) or "build" in question:
            return {"rc": 1, "out": "", "err": "no such library"}
        if "here" in question:
            return printed((name,), 2)
        return printed((name, "other"), 1)

    rounds = answered(nodes, answer)
    assert rounds == [
        {"n00": {"cpu mpi together n03"}},
        {
            "n00": {"cpu mpi here", "cpu mpi pair"},
            "n01": {"cpu mpi here", "cpu mpi pair"},
            "n02": {"cpu mpi here", "cpu mpi pair"},
            "n03": {"cpu mpi here"},
        },
        {"n02": {"cpu build"}},
    ]
    for name in ("n00", "n01", "n03"):
        checks.ranks_add_up_on_this_host(nodes[name], nodes, "mpi")
        checks.version_matches_the_inventory(nodes[name], nodes)
    with pytest.raises(WrongNodeError, match="n02: cpu mpi here ended with code 1: no such library"):
        checks.ranks_add_up_on_this_host(nodes["n02"], nodes, "mpi")
    with pytest.raises(WrongNodeError, match="n00: cpu mpi together n03 ended with code 1"):
        checks.ranks_add_up_on_all_hosts(nodes["n00"], nodes, "mpi")


def test_a_wrong_sum_and_a_missing_rank_fail():
    right = printed(("n1", "n2"), 2)
    assert ranks.adds_up(right, hosts=2, slots=2)
    wrong = right | {"out": right["out"].replace('"least": 10.0', '"least": 9.0', 1)}
    assert not ranks.adds_up(wrong, hosts=2, slots=2)
    assert not ranks.adds_up(right | {"out": right["out"].rpartition("\n")[0]}, hosts=2, slots=2)
    assert not ranks.adds_up(right, hosts=1, slots=4)


def test_a_plane_that_was_not_built_is_named():
    nodes = hosts_of(3, backends=("mpi", "gloo"))
    answered(nodes, lambda name, question: printed(tuple(nodes), 1))
    with pytest.raises(WrongNodeError, match="n01: variant cpu was built without Controllers: gloo"):
        checks.build_flags_match_the_inventory(nodes["n01"], nodes)


def test_a_host_that_falls_silent_is_left_out_of_the_launches():
    nodes = hosts_of(4)
    nodes["n00"] = RoleHost("n00", None, nodes["n00"].variables, {}, {}, "no answer")
    rounds = answered(
        {name: node for name, node in nodes.items() if name != "n00"},
        lambda name, question: printed(("n01", "n02", "n03"), 1),
    )
    assert rounds == [{"n01": {"cpu mpi together n03"}}]


@pytest.mark.parametrize("login", [{"rc": 0, "out": "", "err": ""}, {"rc": 124, "out": "", "err": ""}])
def test_no_launch_waits_for_a_host_whose_logins_run_no_command(login):
    nodes = hosts_of(4)
    nodes["n00"].answers["ssh n01"] = login
    nodes["n01"].answers["ssh n02"] = {"rc": 0, "out": "welcome\nhvlab\n", "err": ""}
    nodes["n02"].answers["ssh n03"] = {"rc": 255, "out": "", "err": "Permission denied"}
    nodes = with_mute(nodes)

    def answer(name, question):
        return printed(
            ("n00", "n02", "n03") if "together" in question else (name,), 1 if "together" in question else 2
        )

    assert answered(nodes, answer) == [{"n00": {"cpu mpi together n03"}, "n01": {"cpu mpi here"}}]
    checks.ranks_add_up_on_this_host(nodes["n01"], nodes, "mpi")
    checks.ranks_add_up_on_all_hosts(nodes["n00"], nodes, "mpi")
    for name in ("n00", "n01"):
        with pytest.raises(WrongNodeError, match=f"{name}: a login to n01 does not run its command"):
            checks.ranks_add_up_between_hosts(nodes[name], nodes, "mpi")
    checks.ranks_add_up_between_hosts(nodes["n02"], nodes, "mpi")


def test_a_failed_launch_names_the_cause_that_doctor_knows():
    refused = "ssh: connect to host n03 port 22: Connection refused\nRuntimeError: Horovod detected that one"
    (node, *_) = hosts_of(1).values()
    node.answers["cpu gloo together n03"] = {"rc": 1, "out": "", "err": refused}
    with pytest.raises(WrongNodeError, match=r"ended with code 1: .*connect to host n03 port 22") as raised:
        node.output("cpu gloo together n03", "run `hvlab find-slow`")
    assert "sshd" in str(raised.value)
