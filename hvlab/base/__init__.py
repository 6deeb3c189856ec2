"""What every room stands on: errors, files, processes, paths, and the reading of what others send."""
