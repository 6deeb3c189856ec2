"""Hosts that are not reached, or do not let one in."""

from hvlab.doctor.cause import BREAKDOWN, FACT, SETTING, SYMPTOM, Cause

_MPI_SSH = "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html"

CAUSES = (
    Cause(
        id="host-key-changed",
        title="the host key is not the one that is known",
        signs=(
            r"REMOTE HOST IDENTIFICATION HAS CHANGED",
            r"Host key for \S+ has changed and you have requested strict checking",
            r"Offending \S+ key in \S*known_hosts",
        ),
        why="The host was installed anew, its address belongs to another host now, or someone stands between.",
        remedy="Compare the fingerprint on the host's console; then ssh-keygen -R HOST and record the new key.",
        source="https://man.openbsd.org/ssh#VERIFYING_HOST_KEYS",
        weight=FACT,
    ),
    Cause(
        id="host-certificate-name",
        title="another host answers under that name, or its certificate does not have the name",
        signs=(r"Certificate invalid: name is not a listed principal",),
        why="ssh trusts a host's certificate for the names in it only. Mostly the name leads to another host's "
        "address: a wrong line in /etc/hosts or DNS on the host that starts.",
        remedy="On the host that starts, getent hosts NAME has to give NAME's own address: correct /etc/hosts or "
        "DNS. Where it does, sign the host's key again with that name.",
        source="https://man.openbsd.org/ssh-keygen#CERTIFICATES",
        weight=FACT,
    ),
    Cause(
        id="host-certificate-time",
        title="a host's certificate is not valid at this time",
        signs=(r"Certificate invalid: (?:expired|not yet valid)",),
        why="ssh compares a certificate's times with the clock of the machine that logs in: either that clock is wrong, "
        "or the certificate is over.",
        remedy="Run date on the machine that logs in and on the host; set a clock that is wrong (timedatectl; chrony or "
        "systemd-timesyncd). Where both are right, sign the host's key again (in a lab of hvlab: `hvlab keys issue`).",
        source="https://man.openbsd.org/ssh-keygen#CERTIFICATES",
        weight=FACT,
    ),
    Cause(
        id="host-key",
        title="the host key is unknown, so ssh refuses the host",
        signs=(
            r"Host key verification failed",
            r"No \S+ host key is known for \S+ and you have requested strict checking",
            r"authenticity of host .{1,200}? can't be established(?![\s\S]{0,600}(?:Permanently added|Permission denied|'s password:))",
            r"Using a SSH password instead of a key is not possible because Host Key checking",
        ),
        why="A launcher has no terminal to ask on, so a host whose key is not in known_hosts is refused.",
        remedy="Record every host's key on every host that starts ranks (ssh-keyscan, compare, known_hosts), "
        "or trust a host CA (in a lab of hvlab: `hvlab keys issue`); each host must reach the others, not only the first.",
        source="https://github.com/horovod/horovod/blob/master/docs/docker.rst",
        weight=FACT,
        unless=(
            r"REMOTE HOST IDENTIFICATION HAS CHANGED",
            r"Certificate invalid: (?:name is not|expired|not yet)",
        ),
    ),
    Cause(
        id="ssh-key-modes",
        title="ssh ignores a key or folder because others may write or read it",
        signs=(
            r"UNPROTECTED PRIVATE KEY FILE",
            r"Permissions \d+ for '\S+' are too open",
            r"Authentication refused: bad ownership or modes",
            r"Bad owner or permissions on \S*\.ssh",
            r"Load key \"\S+\": (?:Permission denied|bad permissions)",
        ),
        why="sshd and ssh refuse keys, .ssh and home folders that belong to someone else or are open to others.",
        remedy="chmod 700 ~/.ssh, 600 on keys and authorized_keys, 755 or less on the home; the owner is the user "
        "who logs in. In a pod, mount the secret with defaultMode 0600 or copy it.",
        source="https://github.com/kubeflow/mpi-operator/issues/424",
        weight=FACT,
    ),
    Cause(
        id="ssh-denied",
        title="the host refuses the login",
        signs=(
            r"Permission denied \((?:publickey|password|gssapi|keyboard|hostbased)",
            r"Permission denied, please try again",
            r"Too many authentication failures",
            r"Received disconnect from \S+.{0,40} Authentication",
            r"[Aa]uthentication failed\.?$",
            r"Invalid/incorrect password",
            r"signing failed: agent refused operation",
            r"This account is currently not available",
            r"Your account has expired|account \S+ has expired",
            r"Access denied by pam_slurm_adopt|pam_slurm_adopt\S* Access denied|has no active jobs on this node",
            r"Unprivileged users are not permitted to log in yet",
            r'agent refused operation|Load key "[^"\n]+": (?:invalid format|error in libcrypto|incorrect passphrase)|ssh-copy-id: ERROR: No identities found',
            r"not allowed because (?:account is locked|(?:not )?listed in|none of user's groups)|Access denied for user \S+ by PAM|[Yy]our password has expired|Password change required but no TTY",
            r"pam_access\(\w+:account\): access denied|Account locked due to \d+",
            r"Failed (?:publickey|hostbased) for (?!invalid user)\S+ from",
            r"error: maximum authentication attempts exceeded for (?!invalid user)",
            r"pam_\w+\(sshd:\w+\): (?:[Aa]ccess denied|account \S+ has expired|[Cc]ould not identify user)",
            r"Could not open a connection to your authentication agent",
            r"paramiko\S* [^\n]{0,120}Private key file is encrypted|PasswordRequiredException: ",
            r"SSHException: (?:No authentication methods available|not a valid \S+ private key file)|BadAuthenticationType: |not a valid (?:RSA|DSA|EC|OPENSSH) private key file",
            r"JSchException: (?:Auth fail|USERAUTH fail)",
        ),
        why="Neither key nor password of this user is accepted there: the key is not in authorized_keys, "
        "the wrong user or key is used, or sshd does not allow it.",
        remedy="ssh -v -o BatchMode=yes USER@HOST true shows what is offered; put the public key into "
        "authorized_keys of that user there.",
        source=_MPI_SSH,
        weight=SETTING,
    ),
    Cause(
        id="ssh-name-with-slots",
        title="the launcher takes HOST:SLOTS as a host name",
        signs=(r"Could not resolve hostname [\w.-]+:\d+",),
        why="This mpirun is another or an older one than the command is written for: it does not know HOST:SLOTS.",
        remedy="which -a mpirun: use the Open MPI that Horovod was built with (3 or later), by PATH or in full.",
        source="https://github.com/horovod/horovod/issues/1032",
        weight=FACT,
    ),
    Cause(
        id="name-not-resolved",
        title="a host's name cannot be resolved",
        signs=(
            r"(?:could not|unable to|failed to) resolve (?:at least one )?hostname",
            r"Could not resolve hostname (?![\w.-]+:\d)\S+",
            r"(?:Temporary failure in name resolution|Name or service not known|No address associated with hostname)",
            r"nodename nor servname provided",
            r"Unable to resolve \"\S+\": ",
            r"getaddrinfo\S{0,20} (?:error|failed)",
            r"lookup \S+ on \S+: no such host",
            r"unknown host\b",
            r"server can't find \S+: (?:NXDOMAIN|SERVFAIL)",
            r"error: Node \S+ not resolvable",
            r"can't find address for host \S+, check slurm\.conf",
            r"slurm_auth_get_host: Lookup failed",
            r"[Uu]nable to (?:get host entry for|resolve host address) \S+",
            r"(?:RPC:\w+ ?|[Tt]ask launch for [^\n]{1,80}): Can't find an address, check slurm\.conf",
            r"\[ch3:soc?k?\] (?:hostname lookup failed|invalid host description)|gethostbyname(?:_ex)? (?:failed|error on)",
            r"MPL_get_sockaddr failed",
        ),
        why="Neither /etc/hosts nor DNS knows the name, on the host that starts or on one that joins. "
        "In Kubernetes a worker's name is known only after its pod and the headless service are there.",
        remedy="getent hosts NAME on every host; write the names into /etc/hosts or DNS, or use addresses. "
        "In Kubernetes check the pods and the service, and let the launcher wait until the names resolve.",
        source="https://github.com/kubeflow/mpi-operator/issues/481",
        weight=FACT,
    ),
    Cause(
        id="ssh-refused",
        title="no sshd answers on that port",
        signs=(
            r"ssh: connect to host \S+ port \d+: Connection refused",
            r"connect to address \S+ port \d+: Connection refused",
            r"Missing privilege separation directory",
        ),
        why="The host is up but nothing listens on that port: sshd is not running, listens on another port, "
        "or the container has none.",
        remedy="Start sshd there (in a container: /usr/sbin/sshd -p PORT, after mkdir -p /run/sshd), and give the "
        'same port to the launcher: horovodrun -p PORT, or -mca plm_rsh_args "-p PORT".',
        source="https://github.com/horovod/horovod/issues/504",
        weight=FACT,
    ),
    Cause(
        id="host-unreachable",
        title="a host does not answer: down, or cut off",
        signs=(
            r"ssh: connect to host \S+ port \d+: (?:Connection timed out|No route to host|Network is unreachable"
            r"|Operation timed out)",
            r"Connection timed out during banner exchange",
            r"connect to host \S+ port \d+: (?:Connection timed out|No route to host)",
            r"Timeout, server \S+ not responding",
            r"Unable to connect to port \d+ on ",
            r"'msg': 'FAILED: timed out'|Vagrant was unable to communicate with the guest machine",
            r"connect to host \S+ port \d+: Host is (?:unreachable|down)",
        ),
        why="No packet comes back: the host is off, the address is wrong, or a firewall drops port 22.",
        remedy="ping HOST and nc -vz HOST 22 from the host that starts; then the host's power, address, routes and "
        "firewall.",
        source=_MPI_SSH,
        weight=FACT,
    ),
    Cause(
        id="ssh-stalled",
        title="ssh connects, and then nothing more comes from the host",
        signs=(r"^\W*(?:\S+: )?Connection to \S+ port \d+ timed out",),
        why="Small packets pass, and the larger ones of the key exchange do not: the MTU of a switch, tunnel or VLAN "
        "between is smaller than the hosts'. Or the host is too busy to answer.",
        remedy="`hvlab doctor` compares the MTUs; ping -M do -s 1472 HOST (8972 for jumbo frames) from the host that starts: "
        "where only small ones come back, lower the MTU on the hosts or raise it on the way; else look at the load of HOST.",
        source="https://www.rfc-editor.org/rfc/rfc2923",
        weight=SETTING,
        unless=(r"during banner exchange",),
    ),
    Cause(
        id="ssh-closed",
        title="the host closes ssh connections as they come",
        signs=(
            r"(?<!error:\s)kex_exchange_identification: ",
            r"ssh_exchange_identification: ",
            r"Connection (?:closed|reset) by (?!authenticating|invalid)\S+ port (?:\d{1,4}\b|[xX*]{2,})",
            r"Session open refused by peer|Too many open sessions",
            r"Connection closed by UNKNOWN port 65535",
            r"JSchException: (?:connection is closed by foreign host|Session is down)",
            r"Error reading SSH protocol banner",
        ),
        why="sshd takes only so many logins at once (MaxStartups 10), or a wrapper such as fail2ban or hosts.deny "
        "refuses the address.",
        remedy="Raise MaxStartups in sshd_config, or start fewer at once (-mca plm_rsh_num_concurrent 8); look at "
        "the host's sshd log.",
        source="https://man.openbsd.org/sshd_config#MaxStartups",
        weight=BREAKDOWN,
    ),
    Cause(
        id="ssh-missing",
        title="there is no ssh client on the host that starts the ranks",
        signs=(
            r"MCA parameter \"plm_ssh_agent\" was set to a path that could not",
            r"The value of the MCA parameter \"plm_rsh_agent\" was set to a path that could not be found",
            r"(?:bash|sh|line \d+): ssh: (?:command )?not found",
            r"exec: \"ssh\": executable file not found",
            r"No such file or directory: 'ssh'",
            r"No available launching agents were found",
            r'orte_plm_base_select failed\s+--> Returned (?:value )?"?Not found',
        ),
        why="mpirun and horovodrun start remote ranks by ssh; the image or host has none.",
        remedy="Install openssh-client there, and openssh-server on every other host or image.",
        source="https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html",
        weight=FACT,
    ),
    Cause(
        id="horovodrun-ssh",
        title="the launcher (horovodrun, deepspeed) cannot log in to a host",
        signs=(
            r"was not reachable via ssh",
            r"Command 'ssh [^\n]{0,200}' returned non-zero exit status 255",
            r"ssh not successful for host",
            r"could not connect to some hosts via ssh",
            r"SSH was not successful",
            r"pdsh@\S+: \S+: ssh exited with exit code 255|Charmrun> Error 255 returned from remote shell",
        ),
        why="Before anything else it runs a command on each host by ssh, and that failed.",
        remedy="ssh -o BatchMode=yes -p PORT HOST true has to work without a question from the host that starts; "
        "a port other than 22 is given with -p.",
        source="https://github.com/horovod/horovod/issues/2117",
        weight=SYMPTOM,
    ),
    Cause(
        id="ssh-algorithms",
        title="the two ssh have no algorithm in common",
        signs=(
            r"no matching (?:host key type|key exchange method|cipher|MAC) found",
            r"Their offer: (?:ssh-rsa|ssh-dss|diffie-hellman)",
            r"no mutual signature (?:algorithm|supported)",
            r"fatal: No supported (?:key exchange|cipher|mac) algorithms|no matching (?:key exchange|cipher|mac|MAC|host key)",
            r"Incompatible (?:ssh|SSH) (?:peer|server) \(no (?:acceptable|matching) ",
            r"key type \S+ not in Pubkey\w+",
        ),
        why="One end is old and offers only what the newer one no longer takes.",
        remedy="Bring the older one up to date; until then HostKeyAlgorithms=+ssh-rsa and PubkeyAcceptedAlgorithms=+ssh-rsa for that host alone in ~/.ssh/config.",
        source="https://www.openssh.com/legacy.html",
        weight=FACT,
    ),
    Cause(
        id="ssh-config",
        title="the configuration of ssh has an error",
        signs=(
            r"Bad configuration option: \S+",
            r"terminating, \d+ bad configuration options",
            r"Directive '\w+' is not allowed within a Match block|sshd_config(?:: | )line \d+: ",
        ),
        why="ssh_config, ~/.ssh/config or sshd_config has an option that this release does not know; the program then does not start at all.",
        remedy="ssh -G HOST or sshd -t names file and line; remove it, or put IgnoreUnknown OPTION before it.",
        source="https://man.openbsd.org/ssh_config",
        weight=FACT,
    ),
    Cause(
        id="ssh-control-path",
        title="the path of the shared ssh connection cannot be used",
        signs=(
            r"unix_listener: path \S+ too long for Unix domain socket",
            r"muxserver_listen bind\(\): No such file or directory",
            r"muxclient: master hello exchange failed|mux_client_hello_exchange: ",
        ),
        why="ControlPath is longer than about 100 characters, or its folder is missing.",
        remedy="ControlPath ~/.ssh/%C with the folder made; in ansible.cfg control_path_dir = /tmp/cp.",
        source="https://docs.ansible.com/ansible/latest/collections/ansible/builtin/ssh_connection.html",
        weight=FACT,
    ),
    Cause(
        id="ssh-dropped",
        title="an ssh connection that was open broke off",
        signs=(
            r"client_loop: send disconnect|packet_write_wait: |Write failed: Broken pipe|Timeout, server \S+ not responding",
            r"^Connection to \S+ closed by remote host",
            r"rsync: connection unexpectedly closed",
            r"Corrupted MAC on input|Bad packet length \d+|message authentication code incorrect|ssh_dispatch_run_fatal: ",
            r"mux_client_request_session: read from (?:master|controller) failed",
        ),
        why="The host restarted or ran out of memory, its sshd or the session was ended, a firewall forgot an idle connection, or a network card delivers wrong bits (MAC, packet length).",
        remedy="uptime, last -x and dmesg on the host; ServerAliveInterval 30 in ~/.ssh/config against idle firewalls; with wrong bits ethtool -K IFACE tso off gso off rx off, and another cable.",
        source="https://man.openbsd.org/ssh_config#ServerAliveInterval",
        weight=SYMPTOM,
    ),
)
