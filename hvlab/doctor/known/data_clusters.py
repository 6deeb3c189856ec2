"""Spark, Hadoop and Ray, where they start the workers of Horovod or torch."""

from hvlab.doctor.cause import BREAKDOWN, END, FACT, Cause

CAUSES = (
    Cause(
        id="java-memory",
        title="the memory that Spark gives its driver or executors is used up",
        signs=(
            r"java\.lang\.OutOfMemoryError: (?:Java heap|GC overhead|Metaspace|Requested array|Direct buffer|Required array)",
            r"is bigger than spark\.driver\.maxResultSize",
            r"Required (?:executor|AM) memory[^\n]{0,160} is above the max threshold",
            r"Not enough memory to build and broadcast the table",
        ),
        why="Java's heap has a fixed size, whatever memory the host has left; results and broadcasts gather in the driver.",
        remedy="spark.driver.memory and spark.executor.memory (and memoryOverhead for the Python workers), spark.driver.maxResultSize, more and smaller partitions; no collect() of what is large.",
        source="https://spark.apache.org/docs/latest/configuration.html#application-properties",
        weight=FACT,
    ),
    Cause(
        id="spark-resources",
        title="Spark has not the slots that the job asks for",
        signs=(
            r"Initial job has not accepted any resources",
            r"requires more slots than the total number of slots",
        ),
        why="All workers of a training have to run at the same time; the cluster has fewer free cores or GPUs, or no executor is registered.",
        remedy="num_proc no greater than executors * cores / spark.task.cpus; spark.executor.instances, or dynamic allocation off; the list of executors in Spark's UI.",
        source="https://horovod.readthedocs.io/en/stable/spark_include.html",
        weight=FACT,
    ),
    Cause(
        id="spark-python",
        title="Spark's driver and executors have different Pythons",
        signs=(
            r"Python in worker has different version|\[PYTHON_VERSION_MISMATCH\]",
            r"environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set",
        ),
        why="Functions are pickled by one Python and read by the other, so that major and minor release have to be the same.",
        remedy="PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON with one Python that is there on all hosts (conda-pack, or the same image).",
        source="https://spark.apache.org/docs/latest/api/python/tutorial/python_packaging.html",
        weight=FACT,
    ),
    Cause(
        id="java-missing",
        title="there is no Java that Spark or Hadoop takes",
        signs=(
            r"Java gateway process exited before sending its port number",
            r"^(?:Error: )?JAVA_HOME is (?:not set|incorrect)|JAVA_HOME is not set(?: and could not be found)?\.?$",
            r"Unsupported class file major version \d+|UnsupportedClassVersionError: ",
            r"Unable to (?:load|locate) libjvm|\[JAVA_GATEWAY_EXITED\]",
        ),
        why="Java is not installed where the program runs, JAVA_HOME leads elsewhere, or its release is older or newer than this Spark was made for.",
        remedy="java -version and echo $JAVA_HOME on each host; Java 8, 11 or 17 for Spark 3, 17 or later for Spark 4; unset PYSPARK_SUBMIT_ARGS if it does not end with pyspark-shell.",
        source="https://spark.apache.org/docs/latest/#downloading",
        weight=FACT,
    ),
    Cause(
        id="hdfs",
        title="HDFS, or another file system of Hadoop's kind, cannot be used from here",
        signs=(
            r"No FileSystem for scheme\b|UnsupportedFileSystemException: ",
            r"HDFS connection failed|Unable to load libhdfs",
            r"(?:hdfsConnect|hdfsBuilderConnect|loadFileSystems|getJNIEnv)[^\n]{0,80}(?:error|failed)",
            r"Call From \S+ to \S+ failed on (?:connection|socket timeout) exception",
            r"Name node is in safe mode",
            r"AccessControlException: (?:Permission denied|SIMPLE authentication is not enabled|Client cannot authenticate)",
        ),
        why="The client's library, its CLASSPATH or the file system's jar is missing, the name node does not answer, or this user may not write there.",
        remedy="hdfs dfs -ls / as the same user on each host; CLASSPATH=$(hadoop classpath --glob), ARROW_LIBHDFS_DIR, LD_LIBRARY_PATH with libjvm.so; the jar of the scheme among Spark's; kinit.",
        source="https://arrow.apache.org/docs/python/filesystems.html",
        weight=FACT,
    ),
    Cause(
        id="dask-connect",
        title="a client or worker of Dask does not reach the scheduler or another worker",
        signs=(
            r"Timed out (?:trying to connect to|during handshake while connecting to) '?(?:tcp|tls|ucx)://(?!127\.)",
            r"OSError: Timed out trying to connect to (?:the )?(?:remote )?scheduler",
        ),
        why="The address is of an interface that others do not reach (a login node's, a container's), a firewall is between, or the worker is "
        "too busy to answer, or was ended (for memory).",
        remedy="--interface ib0 (or eth0) for scheduler and workers; a longer distributed.comm.timeouts.connect; look for a worker that the "
        "nanny or the job system killed.",
        source="https://github.com/dask/distributed/issues/3142",
        weight=BREAKDOWN,
    ),
    Cause(
        id="ray-cluster",
        title="a process does not reach the Ray cluster, or is of another release",
        signs=(
            r"Could not find any running Ray instance|Unable to connect to GCS|Failed to connect to GCS",
            r"Failed to get cluster ID from GCS|Timed out while waiting for GCS",
            r"ray client connection timeout|Unable to connect to Redis at|The address \S+ is not (?:reachable|accessible)[^\n]{0,40}[Rr]ay",
            r"The cluster was started with:[\s\S]{0,80}?Ray: \S+",
            r"This node has an IP address of \S+,? (?:while|and) (?:we|Ray) can ?not (?:find|locate) the matched Raylet",
            r"The current node timed out during startup",
        ),
        why="The head (its GCS) was not started, has ended, listens at another address or behind a firewall; or the two have different releases of Ray or Python.",
        remedy="ray status on the head; ray start --head --node-ip-address IP --port 6379 and ray start --address IP:6379 with the same Ray and Python on all hosts; open the ports; ray stop for what is left of an earlier run.",
        source="https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html",
        weight=BREAKDOWN,
    ),
    Cause(
        id="ray-node-dead",
        title="Ray lost a node of its cluster",
        signs=(
            r"marked dead because the \w+ has missed too many heartbeats|mistakenly been marked dead|This node has bee[mn] marked as dead",
            r"because its (?:owner's )?node (?:has )?died|Owner's node has crashed|NodeDiedError|LocalRayletDiedError",
            r"Raylet is terminated|The node running the \w+ (?:was|has) (?:terminated|died|failed)",
        ),
        why="The node was ended or preempted, has no memory or processor time left to answer, or the network to the head broke.",
        remedy="dmesg and /tmp/ray/session_latest/logs/raylet.out on that node; fewer actors or threads (num_cpus) on it; the state of its job or instance; RAY_health_check_timeout_ms where it is only slow.",
        source="https://docs.ray.io/en/latest/ray-core/fault_tolerance/nodes.html",
        weight=BREAKDOWN,
    ),
    Cause(
        id="ray-runtime-env",
        title="Ray cannot set up the environment of the workers",
        signs=(
            r"RuntimeEnvSetupError|Failed to (?:set up|create) runtime[ _]env(?:ironment)?",
            r"The runtime_env failed to be set up",
        ),
        why="working_dir, pip or conda of runtime_env is fetched and installed on each node before a worker starts: no network, a package that does not build, a folder that is too large.",
        remedy="/tmp/ray/session_latest/logs/runtime_env_setup-*.log on the node; install the packages on the nodes (or in the image) instead; excludes for large folders.",
        source="https://docs.ray.io/en/latest/ray-core/handling-dependencies.html",
        weight=BREAKDOWN,
    ),
    Cause(
        id="ray-train-failed",
        title="a worker failed, and Ray ended the training",
        signs=(
            r"The Ray Train run failed\. Please inspect the previous error|Training failed due to (?:worker|controller) error",
            r"TuneError: \(?'?Trials did not complete|Trial \S+ errored after \d+ iterations",
        ),
        why="Ray tells in its last lines only that the run is over; the worker's own exception stands above, or in its file.",
        remedy="error.txt in the folder of the trial (~/ray_results), and there the first traceback; /tmp/ray/session_latest/logs/worker-*.err on the node.",
        source="https://docs.ray.io/en/latest/train/user-guides/fault-tolerance.html",
        weight=END,
    ),
)
