"""Horovod's names for what goes wrong among ranks."""


class HorovodInternalError(RuntimeError):
    """An operation failed: its ranks disagree, or one is lost."""


class HostsUpdatedInterrupt(RuntimeError):
    """Never raised: nothing here is elastic."""

    def __init__(self, skip_sync: bool = False) -> None:
        self.skip_sync = skip_sync
