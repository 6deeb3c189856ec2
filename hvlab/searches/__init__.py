"""What starts many benches to find one thing: the best settings, a slow host, or the change to blame."""
