"""How tests are dealt out to processes."""

from xdist.scheduler import LoadGroupScheduling


class ModuleScheduling(LoadGroupScheduling):
    """Keeps the tests of a module, or of an `xdist_group`, in one process, which makes their fixtures once.

    xdist by itself would deal out the tests of a module one by one.
    """

    def _split_scope(self, nodeid):
        return super()._split_scope(nodeid).partition("::")[0]
