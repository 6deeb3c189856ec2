# try_configuration.sh NODE FOLDER CONTROLLER: fail where the daemons refuse the files in FOLDER, and say why.
# slurmd reads slurm.conf, gres.conf and cgroup.conf as at a start, then exits. Older ones may not know -G.
slurmd -G -N "$1" -f "$2/slurm.conf" || exit
# slurmctld has no trial of its own: it starts apart from the network, with neither state nor accounting.
[ "$3" ] && unshare --net --pid --fork true 2> /dev/null || exit 0
work=$(mktemp -d)
cp "$2"/*.conf "$work"
sed -Ei '/^(StateSaveLocation|Slurmctld(PidFile|LogFile|Debug)|AccountingStorage[A-Za-z]*)=/d' "$work/slurm.conf"
{ echo "StateSaveLocation=$work"; echo "SlurmctldPidFile=$work/pid"; } >> "$work/slurm.conf"
chown -R slurm "$work"
# Nothing outlives the first process of a namespace.
unshare --net --pid --fork sh -c '
  # Without an address glibc resolves none.
  ip link set lo up; ip address add 192.0.2.1/32 dev lo
  slurmctld -D -f "$0/slurm.conf" > "$0/said" 2>&1 &
  for _ in $(seq 50); do
    kill -0 $! 2> /dev/null || exit 1
    grep -q "Running as primary" "$0/said" && exit
    sleep 0.2
  done' "$work"
status=$?
[ $status = 0 ] || grep -E 'error|fatal' "$work/said" | tail -n 4 >&2
rm -rf "$work"
exit $status
