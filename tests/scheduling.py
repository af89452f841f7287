"""The distribution of tests to processes."""

from xdist.scheduler import LoadGroupScheduling


class ModuleScheduling(LoadGroupScheduling):
    """Keeps the tests of a module, or of an `xdist_group`, in one process, so that shared fixtures are built once.

    By default, xdist would distribute the tests of a module one by one.
    """

    def _split_scope(self, nodeid):
        return super()._split_scope(nodeid).partition("::")[0]
