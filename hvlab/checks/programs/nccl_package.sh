dpkg-query -W -f '${Package} ${Version}\n' libnccl2 2>/dev/null
rpm -q --qf '%{NAME} %{VERSION}-%{RELEASE}\n' libnccl 2>/dev/null
exit 0
