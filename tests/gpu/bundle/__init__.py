"""What `make test-gpu` needs, in one folder that can be carried to a machine without network.

A root folder of Debian is made here, `hvlab provision` runs in it, and it is packed in parts. There, `run`
checks and unpacks them, adds that machine's libraries of the driver, and runs tests/gpu inside.
`root.py` makes the folder, `parts.py` says what goes into which part, `manifest.py` what a bundle holds.
"""
