"""The entry point of the folder that role node_health installs."""

import sys

from hvlab.checks.node.short import main

sys.exit(main(sys.argv[1:]))
