"""The foundation: errors, files, processes, paths, and validation of received data."""
