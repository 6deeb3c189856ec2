"""hvlab: from bare hosts to a measured, documented Horovod cluster."""

__version__ = "0.1.0"
