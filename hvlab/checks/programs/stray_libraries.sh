# In a login shell of the user: libraries that its LD_LIBRARY_PATH puts first.
IFS=:
for d in $LD_LIBRARY_PATH; do ls -d "$d"/libnccl.so.2 2>/dev/null; done
exit 0
