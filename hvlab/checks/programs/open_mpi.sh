# As a user finds it after a login. ldd of mpirun shows what of its own libraries the loader finds.
echo "asked yes"
p=$(command -v mpirun) || exit 0
r=$(readlink -f "$p"); d=$(dirname "$r")
echo "path $p"; echo "real $r"
echo "version $("$p" --version 2>&1 | head -n 1)"
for f in orted prted; do [ -x "$d/$f" ] && echo "daemon $d/$f"; done
for f in "$d"/../lib/libmpi.so*; do
  [ -e "$f" ] && echo "libmpi $(readlink -f "$f")" && break
done
# A program linked with it: what LD_LIBRARY_PATH puts before its own library.
f=$(ldd "$d/ompi_info" 2>/dev/null | sed -n "s/.*libmpi\.so[^ ]* => \(\/[^ ]*\).*/\1/p" | head -n 1)
[ "$f" ] && echo "loaded $(readlink -f "$f")"
ldd "$r" 2>&1 | grep "not found" | head -n 1 | sed "s/^[[:space:]]*/missing /"
l=$(for f in "$d"/orted "$d"/prted "$d"/../lib/libopen-pal.so* "$d"/../lib/libmpi.so*; do
  [ -e "$f" ] && ldd "$f" 2>&1
done)
h=$(echo "$l" | grep -o "=> .*hwloc[^ ]*" | sort -u | head -n 1)
# Where ldd does not work, nobody knows.
case $l in *"=>"*) echo "hwloc ${h:-its own}" | sed "s/=> //";; esac
exit 0
