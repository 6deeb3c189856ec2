# Printed as a table; nothing is written. Not every host has ``findmnt``, so options come from the kernel.
echo "mode $(stat -Lc %a /tmp)"; [ -w /tmp ] && [ -x /tmp ] && echo "writable yes"
t=${TMPDIR:-/tmp}; echo "tmpdir $t"; [ -d "$t" ] && [ -w "$t" ] && echo "tmpdir_writable yes"
for d in / /tmp '~/.hvlab' /dev/shm; do
  path=${d/#\~/$HOME}
  echo "space$d $(df -Pk "$path" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2,4)"
  echo "inodes$d $(df -Pi "$path" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2,4)"
done
echo "options $(grep ' /tmp ' /proc/self/mounts | tail -n 1 | cut -d ' ' -f 4)"
