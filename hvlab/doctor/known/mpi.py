"""MPI in the ranks: its start, its parts, PMIx."""

from hvlab.doctor.cause import BREAKDOWN, FACT, SETTING, SYMPTOM, Cause

_LAUNCHING = "https://docs.open-mpi.org/en/v5.0.x/launching-apps/"

CAUSES = (
    Cause(
        id="mixed-open-mpi",
        title="the hosts have different Open MPI or hwloc",
        signs=(
            r"hwloc .{0,60}version mismatch",
            r"Data unpack would read past end of buffer(?! in file util/show_help\.c)",
            r"Data unpack had inadequate space",
            r"PMIX_ERR_UNPACK_READ_PAST_END_OF_BUFFER|UNPACK-PAST-END",
            r"Pack data mismatch",
            r"tcp_peer_recv_connect_ack: received different version",
            r"(?:orted|prted): .{0,20}unknown option",
            r"Symbol `(?:orte|opal|ompi|mca|pmix|prte)_?\w*' has different size in shared object",
            r"(?:PRTE|ORTE) detected a mismatch in versions between two processes",
            r"compressed message was received that could not be decompressed",
        ),
        why="What one daemon sends, the other cannot read: releases of Open MPI, PMIx or hwloc differ between hosts, "
        "or a distribution's hwloc got into one build.",
        remedy="Compare ompi_info -V and ldd $(which orted) | grep hwloc on all hosts; install one build everywhere, "
        "with its own hwloc (--with-hwloc=internal).",
        source="https://github.com/horovod/horovod/issues/133",
        weight=FACT,
    ),
    Cause(
        id="tcp-firewall",
        title="a firewall keeps ranks or daemons apart",
        signs=(
            r"A process or daemon was unable to complete a TCP connection",
            r"WARNING: Open MPI failed to TCP connect to a peer MPI process",
            r"mca_btl_tcp_endpoint_complete_connect\S* connect\(\) to \S+ failed: "
            r"(?:Connection (?:timed out|refused)|No route)",
            r"usually caused by a firewall",
            r"UCX +ERROR \S*connect\(.{0,120}\) failed: (?:Connection (?:timed out|refused)|No route)",
        ),
        why="Ranks and daemons talk over ports that are chosen as they start; a firewall between the hosts drops "
        "them, though port 22 is open.",
        remedy="Open all TCP ports between the hosts of the lab, or fix them: -mca btl_tcp_port_min_v4 and "
        "oob_tcp_static_ipv4_ports. If the address named belongs to a bridge, choose the interface instead "
        "(btl_tcp_if_include, oob_tcp_if_include).",
        source="https://github.com/horovod/horovod/issues/2043",
        weight=SETTING,
    ),
    Cause(
        id="wrong-interface",
        title="ranks try an interface on which they cannot meet",
        signs=(
            r"connect\(\) to (?:172\.17\.0\.\d+|172\.(?:1[89]|2\d)\.0\.1|192\.168\.122\.\d+|169\.254\.\d+\.\d+)(?::\d+)? failed",
            r"Open MPI accepted a TCP connection from what appears to be a another MPI process but cannot find a",
            r"(?:btl|oob)_tcp_if_(?:include|exclude)\S{0,3} .{0,120}? (?:invalid|did not match|not found)",
            r"An invalid value was supplied for btl_tcp_if",
            r"None of the (?:TCP networks|networks) specified to be (?:included|excluded)",
            r"WARNING: An invalid value was given for (?:btl|oob)_tcp_if_(?:include|exclude)",
            r"specified (?:interface|network) .{0,80}? (?:does not exist|could not be found)",
            r"no usable interfaces|no network interfaces were found for out-of-band communications",
            r"Match incoming connection from .{0,120} failed",
            r"no endpoint matches the netmask",
            r"received unexpected process identifier",
            r"detected an inbound MPI TCP connection request from a peer that appears to be part of this MPI job",
            r"dest_addr=(?:172\.17\.0\.\d+|192\.168\.122\.\d+|169\.254\.\d+\.\d+):\d+\) failed",
        ),
        why="Bridges of docker, libvirt or a VPN have the same address on every host, or an interface named on the "
        "command line is not there, so that the ranks knock at the wrong door.",
        remedy="-mca btl_tcp_if_include NET/BITS -mca oob_tcp_if_include NET/BITS with the subnet of the network that "
        "all hosts share, and NCCL_SOCKET_IFNAME, HOROVOD_GLOO_IFACE likewise.",
        source="https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html",
        weight=FACT,
    ),
    Cause(
        id="no-mca-component",
        title="Open MPI lacks a component that it is told to use",
        signs=(
            r"A requested component was not found, or was unable to be opened",
            r"No components were able to be opened in the \S+ framework",
            r"the \"sm\" BTL is no longer available in Open MPI",
        ),
        why="A parameter (-mca pml ucx, btl, MCA file, environment OMPI_MCA_) names what this Open MPI was not built "
        "with, or what a host has no hardware or library for.",
        remedy="ompi_info | grep COMPONENT on every host; drop the parameter, or build Open MPI with it.",
        source="https://docs.open-mpi.org/en/v5.0.x/mca.html",
        weight=SETTING,
        unless=(
            r"Framework: +psec",
            r"Framework: +psec",
        ),
    ),
    Cause(
        id="mpi-init-unreachable",
        title="ranks have no transport between them",
        signs=(
            r"At least one pair of MPI processes are unable to reach each other",
            r"PML add procs failed",
            r"BTLs attempted: ",
            r"PML \S+ cannot be selected",
            r"MPI_INIT has failed because at least one MPI process is unreachable from another",
        ),
        why="No transport that both ranks have leads from one to the other: btl names too few (tcp or self is missing), "
        "or hosts differ in hardware or build.",
        remedy="-mca pml ob1 -mca btl tcp,self,vader (sm from 5.0 on) with the interface that all hosts share.",
        source="https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/tcp.html",
        weight=BREAKDOWN,
    ),
    Cause(
        id="different-mpi",
        title="the launcher and the program have different MPIs",
        signs=(
            r"PMI_KVS_Get returned -?\d+",
            r"Missing ifname or invalid host/port description in business card",
            r"write_line error; fd=\d+ buf=:cmd=init|Unable to write to PMI_fd|invalid PMI1 init command",
            r"PMI version mismatch",
            r"[Uu]nrecogni[sz]ed argument (?:mca|allow-run-as-root|tag-output)",
            r"unrecognized argument \S+$",
            r"HYDU_parse_array|HYDU_sock_write[^\n]{0,60}Bad file descriptor|mpiexec_options_parse",
            r"token slots\S* not supported at this time",
            r"Usage: \S*mpiexec \[global opts\]",
            r"[Uu]nknown option: ?(?:--|-)?(?:allow-run-as-root|mca|tag-output)",
            r"OPAL ERROR: (?:Unreachable|Error) in file (?:ext\w+|pmix[3-9]x)_client\.c",
        ),
        why="The mpirun in PATH is not the one of the MPI that the program is linked with, often conda's MPICH or Intel MPI.",
        remedy="which -a mpirun; ldd on Horovod's mpi_lib: use one MPI, or uninstall the other (conda remove mpich).",
        source="https://github.com/horovod/horovod/issues/1646",
        weight=SETTING,
        unless=(
            r"tm_init\(\) failed",
            r"execvp error on file ",
            r"error while loading shared libraries",
            r"PMIX ERROR: \S+ in file (?:\S*/)?dstore_\w+\.c",
        ),
    ),
    Cause(
        id="hwloc-free-topology",
        title="TensorFlow's hwloc takes the place of Open MPI's",
        signs=(r"opal_hwloc_base_free_topology", r"opal_hwloc\w*_hwloc_topology_\w+.{0,40} segfault"),
        why="TensorFlow 1.14 and 1.15 export symbols of hwloc, and Open MPI calls those.",
        remedy="LD_PRELOAD the system's libhwloc, or another TensorFlow.",
        source="https://github.com/horovod/horovod/issues/1123",
    ),
    Cause(
        id="mpi-init-failed",
        title="MPI_Init failed",
        signs=(
            r"It looks like (?:MPI_INIT|MPI runtime init|MPI_Init|RTE) (?:init )?failed",
            r"(?:ompi_rte_init|ompi_mpi_init|PMIx_Init) failed",
            r"It looks like (?:orte|opal|MPI|pmix|prte)_init failed",
            r"It looks like \S+_init\(?\S* failed for some reason",
            r"Local abort before MPI_INIT completed",
            r"\*\*\* An error occurred in MPI_Init",
        ),
        why="The rank could not join the others; the lines before say what was missing.",
        remedy="Read the first lines of the same rank; try mpirun -np 2 hostname, then a program of three lines, then more hosts.",
        source=_LAUNCHING,
        weight=SYMPTOM,
    ),
    Cause(
        id="open-mpi-components",
        title="Open MPI cannot load its own components",
        signs=(
            r"(?:opal_shmem|orte_ess|orte_plm|opal_pmix)\w*_base_(?:select|open) failed",
            r"unable to open \S*mca_\w+: [^\n]{0,200}undefined symbol: (?:opal|orte|ompi|mca)_\w+[\s\S]{0,2000}?(?:opal|orte|ompi)_init failed",
        ),
        why="They are of another Open MPI than the library that was loaded (a second installation in LD_LIBRARY_PATH or OPAL_PREFIX, one left over by "
        "an update), or the library was loaded for one module only, so that its components do not see it (old mpi4py, ctypes).",
        remedy="which -a mpirun and ldd of the program on each host: one Open MPI; unset OPAL_PREFIX; install it anew; build the Python module with its mpicc.",
        source="https://github.com/open-mpi/ompi/issues/3698",
    ),
    Cause(
        id="pmi-library",
        title="the PMI library that the MPI is given is not served by this launcher",
        signs=(
            r"PMI2?_Init returned -?\d+",
            r"PMI2 init failed: \d|_pmi_init:_pmi_\w+_init returned -1",
        ),
        why="I_MPI_PMI_LIBRARY names a PMI of the scheduler. It answers only where srun offers that PMI; under mpirun, or with a libpmix of "
        "version 2 or later that Intel MPI of 2018 does not know, it fails.",
        remedy="unset I_MPI_PMI_LIBRARY under mpirun; under srun name Slurm's libpmi2.so there, with srun --mpi=pmi2.",
        source="https://github.com/openpmix/openpmix/issues/1115",
    ),
    Cause(
        id="openfoam-pstream",
        title="OpenFOAM is started with several ranks, and its MPI part sees one",
        signs=(
            r"The dummy Pstream library cannot be used in parallel mode",
            r"attempt to run parallel on 1 processor",
        ),
        why="Its library for MPI is the dummy one (no WM_MPLIB when it was started), or mpirun is of another MPI than the one that it was built with.",
        remedy="source OpenFOAM's etc/bashrc on all hosts; echo $WM_MPLIB $FOAM_MPI; which mpirun against ldd libPstream.so; mpirun -np N SOLVER -parallel.",
        source="https://www.openfoam.com/documentation/guides/latest/doc/guide-running-parallel.html",
        weight=FACT,
    ),
    Cause(
        id="pmix-shared-memory",
        title="PMIx cannot open its shared memory",
        signs=(
            r"PMIX ERROR: (?:PMIX_ERR_)?(?:FILE_OPEN_FAILURE|FILE-OPEN-FAILURE) in file \S*(?:shmem|dstore|pshmem)",
            r"PMIX ERROR: \S+ in file \S*gds_(?:shmem2?|dstore|ds12\w*|ds21\w*)\.c",
            r"PMIX ERROR: (?!(?:PMIX_ERR_)?OUT.OF)\S+ in file (?:\S*/)?dstore_\w+\.c",
        ),
        why="A rank finds the job's data in a file of the daemon on its host, and cannot open it: another /tmp (a container's, "
        "a job's own), a PMIx of another release than the daemon's, or a rank that looks before it is there.",
        remedy="PMIX_MCA_gds=hash in the environment of daemons and ranks; else one TMPDIR for both, and the same PMIx.",
        source="https://github.com/openpmix/openpmix/issues/3839",
        weight=BREAKDOWN,
    ),
    Cause(
        id="pmix-mismatch",
        title="two releases of PMIx do not understand each other",
        signs=(
            r"PMIx library being used to run this executable does not meet",
            r"UNPACK-PMIX-VALUE: UNSUPPORTED TYPE",
            r"PMIX ERROR: (?:PMIX_ERR_)?(?:UNPACK\S*|OUT.OF.RESOURCE|UNKNOWN.DATA.TYPE|PACK.MISMATCH|BAD.PARAM|NOT.SUPPORTED) "
            r"in file \S*(?:bfrop|gds_base_fns|unpack)",
            r"PMIX ERROR: (?:PMIX_ERR_)?NOT.SUPPORTED in file \S*ptl_tcp\w*\.c",
            r"(?:An unexpected version of PMIx was loaded|A version of PMIx was detected that is too old)",
            r"conflicting directives regarding the location of OPAL vs PMIx",
            r"^\s*(?:local rank|node rank|job size|local size|appnum|nodeid|locality)\s*\n\s*--> Returned \"?(?:Not found|Unreachable|Bad parameter|Error)",
        ),
        why="What a daemon packed a rank cannot unpack: mpirun, its daemons on the hosts and the program's libmpi come from different "
        "installations.",
        remedy="which -a mpirun and ompi_info on all hosts, ldd of the program: one Open MPI and one PMIx everywhere; PMIX_MCA_gds=hash "
        "may get round it.",
        source="https://github.com/openpmix/openpmix/issues/2948",
        weight=BREAKDOWN,
    ),
    Cause(
        id="rank-not-understood",
        title="a rank's Open MPI does not understand what started it",
        signs=(
            r"(?:ompi|orte)_rte_init failed\s+--> Returned \"\(null\)\" \(-43\)",
            r"Open MPI requires access to a local PMIx server to execute",
        ),
        why="mpirun is of another Open MPI than the library that the rank loads (in a container, a conda environment, another module), or "
        "srun starts it without PMIx.",
        remedy="mpirun --version against ldd on the program (or its libmpi.so), inside the container too: one Open MPI for both; "
        "srun --mpi=pmix under Slurm.",
        source="https://github.com/apptainer/singularity/issues/88",
        weight=FACT,
    ),
    Cause(
        id="pmix-error",
        title="PMIx or ORTE reports an error of its own",
        signs=(
            r"PMIX ERROR: \S+",
            r"(?:OPAL|PRTE|ORTE) ERROR: ",
            r"(?:ORTE|PRTE)_ERROR_LOG: ",
        ),
        why="Daemons and ranks did not understand or reach one another; the file and line it names tell where.",
        remedy="The same Open MPI and PMIx on all hosts and in the program; a clean TMPDIR; the first such line counts.",
        source="https://docs.open-mpi.org/en/v5.0.x/installing-open-mpi/required-support-libraries.html",
        weight=SYMPTOM,
    ),
    Cause(
        id="open-mpi-moved",
        title="Open MPI is not where it was built for",
        signs=(
            r"But I couldn't open the help file: ",
            r"unable to find an underlying prterun|could not execute the underlying prterun",
        ),
        why="Its files are looked for below the prefix that it was built with: the folder was moved, copied (conda, container) or belongs to "
        "another Open MPI.",
        remedy="OPAL_PREFIX=/its/present/folder on all hosts (mpirun -x OPAL_PREFIX), or build or install it for that place; which -a mpirun.",
        source="https://docs.open-mpi.org/en/v5.0.x/installing-open-mpi/installation-location.html",
    ),
    Cause(
        id="ofi-provider",
        title="MPI (or oneCCL) finds no network provider of libfabric that works",
        signs=(
            r"MPIDI_OFI_mpi_init_hook",
            r"OFI (?:addrinfo|get address vector|endpoint open|domain open)\S* failed|fi_getinfo\S* fail(?:ed|ure)",
            r"The Open MPI OFI MTL is aborting the MPI job|Error returned from fi_\w+: ",
            r"PSM3 can't open nic unit|Unable to initialize verbs NIC",
            r"can.t (?:find suitable|init) provider",
            r"can ?not open network providers",
            r"CCL_ERROR\W{1,3}atl_ofi\S*",
            r"Open MPI failed an OFI Libfabric library call",
            r"The OFI MTL was not able to find endpoint information",
            r"Initialization of PSM2? library failed",
            r"Open MPI failed to register your buffer|Scalable Endpoint feature is (?:enabled|required)",
            r"exceed the number of available OFI contexts|does not have enough free bits in its tag",
            r"OFI (?!poll)[\w ]{3,40} failed \(ofi_\w+\.\w:",
            r"oneCCL: atl_ofi\w*\.\w+:\d+ \w+: EXCEPTION",
            r"tmi fabric is not available|\w+ fabric is not available and fallback fabric is not enabled",
        ),
        why="libfabric offers nothing here that this MPI can use: the adapter named is not there (container, virtual machine), or the interface "
        "chosen is wrong.",
        remedy="fi_info shows what there is; FI_PROVIDER=tcp, FI_TCP_IFACE=NIC (I_MPI_OFI_PROVIDER=tcp); or start with the MPI that the host "
        "has been set up for.",
        source="https://github.com/open-mpi/ompi/issues/12786",
    ),
    Cause(
        id="pml-differs",
        title="ranks choose different ways to send",
        signs=(r"selected pml \w+, but peer \S+ (?:on \S+ )?selected pml \w+",),
        why="Each rank takes the best component that works where it runs, and on some hosts (or for some ranks) another one works: an adapter, a library or a limit differs.",
        remedy="Name one for all: -mca pml ucx, or -mca pml ob1 -mca btl tcp,self,vader; ucx_info -d and ulimit -l alike on every host.",
        source="https://github.com/openucx/ucx/issues/4224",
        weight=FACT,
    ),
    Cause(
        id="mpi-misused",
        title="the program begins or ends MPI twice, or calls it outside",
        signs=(
            r"attempted to initialize MPI \(via MPI_INIT or MPI_INIT_THREAD\) (?:more than once|after MPI_FINALIZE)",
            r"The function MPI_FINALIZE was invoked (?:multiple times|before MPI was initialized)",
            r"The MPI_\w+\(\) function was called (?:before MPI_INIT was invoked|after MPI_FINALIZE was invoked)",
            r"Attempting to use an MPI routine (?:\S+ )?(?:before initiali[sz]ing|after finaliz)",
            r"MPI has already been initialized without multi-threading support",
        ),
        why="Two libraries of one process (mpi4py and Horovod, a plugin) set up or end MPI without looking whether it is already so, or a destructor runs after MPI_Finalize.",
        remedy="Let one of them begin: mpi4py.rc(initialize=False, finalize=False) before `from mpi4py import MPI`, hvd.init() once; no MPI in what runs at exit.",
        source="https://mpi4py.readthedocs.io/en/stable/mpi4py.html#mpi4py.mpi4py.rc",
        weight=FACT,
    ),
    Cause(
        id="cray-gtl",
        title="MPICH of Cray is to take GPU memory, but its library for that is not linked",
        signs=(r"GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",),
        why="MPICH_GPU_SUPPORT_ENABLED=1 wants libmpi_gtl_cuda in the program.",
        remedy="Load craype-accel-... before building, or LD_PRELOAD libmpi_gtl_cuda.so; else MPICH_GPU_SUPPORT_ENABLED=0.",
        source="https://docs.nersc.gov/development/programming-models/mpi/cray-mpich/",
        weight=FACT,
    ),
)
