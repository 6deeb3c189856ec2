"""Which versions belong on a host, why, and what it takes to install them."""
