"""Gloo: the rendezvous and the mesh of connections."""

from hvlab.doctor.cause import BREAKDOWN, ECHO, FACT, Cause

CAUSES = (
    Cause(
        id="gloo-address-family",
        title="Gloo has an IPv4 address on one host and an IPv6 address on another",
        signs=(r"ss1\.ss_family == ss2\.ss_family", r"gloo/transport/tcp/\S+ address family mismatch"),
        why="Each rank takes the first address that its host's name resolves to; where some names have IPv6 only, or first, the kinds differ.",
        remedy="GLOO_SOCKET_IFNAME=NIC on all hosts (HOROVOD_GLOO_IFACE), or each host's name with its IPv4 address in /etc/hosts; a newer torch.",
        source="https://github.com/pytorch/gloo/issues/399",
        weight=FACT,
    ),
    Cause(
        id="gloo-interface",
        title="an interface that Gloo is told to use is not on this host",
        signs=(
            r"Unable to find address for: \S+",
            r"interface or hostname can't be empty",
            r"makeDeviceForInterface\S* .{0,80}(?:not found|fail)",
            r"gloo .{0,80}(?:No such device|interface not found)",
            r"enforce fail at \S*gloo/transport/(?:tcp|uv)/device\.cc(?!\S* ss1\.)",
            r"Unable to find (?:interface for|address for) ?:? ",
        ),
        why="HOROVOD_GLOO_IFACE, GLOO_SOCKET_IFNAME or --network-interfaces names an interface that has no address here, or the host's "
        "own name does not resolve.",
        remedy="ip -br address on each host; name an interface that all have (several, comma apart); hostname in /etc/hosts "
        "(Windows: a name for the computer, Rename-Computer).",
        source="https://github.com/horovod/horovod/issues/2431",
        weight=FACT,
    ),
    Cause(
        id="gloo-no-device",
        title="this PyTorch has Gloo, but nothing that Gloo could send with",
        signs=(r"makeDeviceFor(?:Hostname|Interface)\(\): unsupported gloo device",),
        why="On Windows and macOS Gloo sends through libuv, and many packages of torch for Windows (2.7 and later, those for ROCm) were built without it.",
        remedy="Another release of torch (the reports begin with 2.7), or Linux, as WSL 2; on a single GPU no process group, if the program can do without.",
        source="https://github.com/IAHispano/Applio/issues/1019",
        weight=FACT,
    ),
    Cause(
        id="gloo-loopback",
        title="a host tells the others its loopback address",
        signs=(
            r"(?:connectFullMesh|connect)[^\n]{0,200}remote=\[?(?:127\.0\.\d+\.\d+|::1|localhost)\]?",
            r"(?<!rror.)\[127\.0\.[01]\.1\]:\d+[^\n]{0,120}(?:Connection refused|no error)",
            r"(?:Connection refused|timed out)[^\n]{0,60}remote=\[127\.0",
            r"tcp_peer_try_connect: 127\.\d+\.\d+\.\d+:\d+ retries exceeded",
            r"[Uu]nable to resolve hostname to a \(local\) address",
        ),
        # Ranks of one host meet at the loopback address, and torch warns all the same.
        needs=(
            r"connectFullMesh|remote=\[?(?:127\.0\.|::1|localhost)|\[127\.0\.[01]\.1\]:\d|tcp_peer_try_connect|[Gg]loo[^\n]{0,200}(?:refused|timed out|[Tt]imeout|no error)",
        ),
        why="Its own name resolves to 127.0.1.1 in /etc/hosts, or not at all, so the others look for it on themselves.",
        remedy="Its name to its true address in /etc/hosts; or GLOO_SOCKET_IFNAME (HOROVOD_GLOO_IFACE) with the interface between the hosts.",
        source="https://github.com/pytorch/gloo/issues/223",
        weight=FACT,
    ),
    Cause(
        id="gloo-mesh",
        title="Gloo's ranks do not all reach one another",
        signs=(
            r"pair\.cc:\d+\] connect \[(?!127\.0|::1)\S+\]:\d+: (?:Connection refused|No route to host|Connection timed out)",
            r"[Gg]loo connectFullMesh failed",
            r"connectFullMesh",
            r"gloo\S* .{0,120}(?:connect (?:timeout|failed)|Connect timeout)",
            r"[Cc]onnection (?:timed out|timeout) \[\S+\]:\d+",
            r"\[\S*gloo/transport/uv/\S+:\d+\] (?:uv_\w+: |Error (?:connecting to|on listener))",
        ),
        why="Every rank connects to every other: a firewall, a wrong interface, a rank that is slow or gone, or too short a time.",
        remedy="The same interface for all (GLOO_SOCKET_IFNAME, HOROVOD_GLOO_IFACE); open the ports; --gloo-timeout-seconds 120; look for "
        "a rank that ended.",
        source="https://github.com/horovod/horovod/issues/2015",
        weight=BREAKDOWN,
    ),
    Cause(
        id="gloo-rendezvous",
        title="Gloo's rendezvous does not answer",
        signs=(
            r"HTTP request failed, too many retries|what\(\): +HTTP request failed|\[GLOO\] HTTP request failed",
            r"gloo/http_store\.cc:\d+.{0,80}(?:EnforceNotMet|fail|timeout)",
            r"[Tt]imed out (?:after \S+ )?waiting for (?:key|clients|response from \S+ store)",
            r"Wait timeout after \d+ ?ms",
            r"RendezvousServer .{0,80}(?:refused|timed out)",
            r"Error in rendezvous|rendezvous .{0,60}(?:timed out|timeout|failed)",
            r"gloo::\w*EnforceNotMet",
            r"^RuntimeError: Wait timeout$",
            r"HTTP GET request failed too many times",
        ),
        why="Ranks meet over a small server on the host that starts; they do not reach it, or not all of them came in time.",
        remedy="The launcher's address and port must be reachable from every host; --gloo-timeout-seconds 120 (the variable alone is "
        "overwritten); start as many ranks as the world has.",
        source="https://github.com/horovod/horovod/issues/2419",
        weight=BREAKDOWN,
    ),
    Cause(
        id="gloo-peer-gone",
        title="Gloo lost a rank",
        signs=(
            r"\[\S*gloo/transport/tcp/\S+:\d+\] (?:Connection (?:closed|reset) by peer|Read error|writev|Socket closed|no error)",
            r"gloo/transport/tcp/(?:pair|unbound_buffer|buffer)\.cc:\d+",
            r"Connection closed by peer \[\S+\]:\d+",
            r"Read error \[\S+\]:\d+: Connection reset by peer",
            r"Timed out waiting \d+ms for (?:recv|send) operation",
            r"Socket unexpectedly closed|Application timeout caused pair closure|typically caused by a remote worker",
        ),
        why="The rank at the other end ended, or did not send in time.",
        remedy="Read the lines of the rank that ended first; then the network between the two.",
        source="https://github.com/horovod/horovod/issues/1364",
        weight=ECHO,
    ),
)
