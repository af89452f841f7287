"""Simulated hosts of one machine: network namespaces on a switch in user space, each with a name, an address and a
share of a processor.

A host represents a machine: its processes see a separate network and host name, and together have at most the host's
share of processor time. The switch (`wire.c`) shapes the links and counts bytes. This needs root.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

PREFIX = "clxbench-"
"""Prefix of the names of namespaces and control groups, by which the leftovers of an interrupted bench are found."""
SWITCH = f"{PREFIX}switch"
SUBNET = "10.77.0"
DOMAIN = "example.org"
PERIOD = 100_000
"""Microseconds in which a host may use its share of a processor."""
CGROUPS = Path("/sys/fs/cgroup")
NEIGHBOURS = [Path(f"/proc/sys/net/ipv4/neigh/default/gc_thresh{number}") for number in (1, 2, 3)]
"""Limits of the table of neighbours, which all namespaces share: each host has an entry for every other."""
TOOLS = {"gcc": "gcc", "ip": "iproute2", "unshare": "util-linux", "openssl": "openssl"}
"""Commands that the bench calls, and the packages that have them."""
ENTER = 'for procs in $1; do echo $$ > $procs/cgroup.procs; done; shift; exec "$@"'
NAMED = 'hostname "$0"; exec "$@"'
ENDING = 5.0
"""Seconds that processes of a host may take to end once they are killed."""
ANSWERS = 10.0
"""Seconds that the switch may take to answer."""
POLLED = 0.005
"""Seconds between two looks for its answer."""


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


def cpu_groups():
    """Return the folder of control groups that limits processors, of version 1 or else 2, or None."""
    if (CGROUPS / "cpu/cpu.shares").exists():
        return CGROUPS / "cpu"
    controllers = CGROUPS / "cgroup.controllers"
    return CGROUPS if controllers.exists() and "cpu" in controllers.read_text().split() else None


def missing():
    """Return why this machine cannot simulate hosts; empty if it can."""
    if sys.platform != "linux":
        return f"hosts are network namespaces of Linux, and this is {sys.platform}"
    if os.geteuid():
        return "network namespaces and control groups need root"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"the command '{tool}' is missing (package {package})"
    if cpu_groups() is None:
        return f"no control groups for processors in {CGROUPS}"
    probe = f"{PREFIX}probe"
    try:
        limit_group(probe, 0.5)
        ip("netns", "add", probe)
        ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made: {error.stderr.strip()}"
    except OSError as error:
        return f"no control group can be made: {error}"
    finally:
        with contextlib.suppress(OSError):
            (cpu_groups() / probe).rmdir()
    return ""


def limit_group(name, share):
    """Make a control group with a share of a processor, None for no limit."""
    groups = cpu_groups()
    folder, quota = groups / name, None if share is None else int(share * PERIOD)
    if groups == CGROUPS:
        (groups / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir(exist_ok=True)
        (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD}")
    else:
        folder.mkdir(exist_ok=True)
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        (folder / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))


def remove_all():
    """Remove all hosts and their processes, and what an interrupted benchmark left."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)]
    for name in names:
        pids = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True).stdout
        processes = []
        for pid in map(int, pids.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(pid))
                processes[-1].kill()
        psutil.wait_procs(processes, timeout=ENDING)
        ip("netns", "del", name)
        shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
    for folder in cpu_groups().glob(f"{PREFIX}*"):
        folder.rmdir()


class Network:
    """Hosts with their processes, as a context manager that removes them all at its end."""

    def __init__(self, folder, names):
        """Prepare hosts, whose logs and control files are in a folder."""
        self.folder, self.names = folder, list(names)
        self._processes, self._limits = [], {}
        self._control, self._stats = folder / "control", folder / "stats"

    def __enter__(self):
        remove_all()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._make_hosts()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error):
        remove_all()
        for process in self._processes:
            process.wait()
        for limit, text in self._limits.items():
            limit.write_text(text)

    def _make_hosts(self):
        wire = self.folder / "wire"
        subprocess.run(["gcc", "-O2", "-o", wire, Path(__file__).with_name("wire.c")], check=True)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{SUBNET}.{number} {name} {address(name)}" for number, name in enumerate(self.names, 1)]
        for limit in NEIGHBOURS:
            if int(limit.read_text()) < 2 * len(self.names) ** 2:
                self._limits.setdefault(limit, limit.read_text())
                limit.write_text(str(2 * len(self.names) ** 2))
        ip("netns", "add", SWITCH)
        ip("-n", SWITCH, "link", "set", "lo", "up")
        for number, name in enumerate(self.names, 1):
            namespace, port = f"{PREFIX}{name}", f"p-{name}"
            ip("netns", "add", namespace)
            etc = Path("/etc/netns") / namespace
            etc.mkdir(parents=True, exist_ok=True)
            (etc / "hosts").write_text("\n".join([*lines, ""]))
            ip("link", "add", port, "netns", SWITCH, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", namespace, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", SWITCH, "link", "set", port, "up")
            limit_group(namespace, None)
        os.mkfifo(self._control)
        ports = [f"p-{name}" for name in self.names]
        command = ["ip", "netns", "exec", SWITCH, wire, self._control, self._stats, *ports]
        self._start(command, "wire")
        self.traffic()  # waits until the switch exists

    def _start(self, command, log):
        with (self.folder / f"{log}.log").open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._processes.append(process)
        return process

    def start(self, host, command, log, environment=None):
        """Start a command on a host, with its output in a log; return the process of the command itself."""
        namespace = f"{PREFIX}{host}"
        # The group is joined first: `ip netns exec` mounts a /sys of its own.
        enter = ["bash", "-c", ENTER, "-", cpu_groups() / namespace, "ip", "netns", "exec", namespace]
        named = ["unshare", "--uts", "bash", "-c", NAMED, host]
        variables = [f"{name}={value}" for name, value in (environment or {}).items()]
        return self._start([*enter, *named, "env", *variables, *command], log)

    def log(self, name):
        """Return what was written to a log."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def limit(self, host, share):
        """Give a host a share of a processor."""
        limit_group(f"{PREFIX}{host}", share)

    def shape(self, megabits, milliseconds):
        """Set the rate of all links, and the time from one host to another and back."""
        self._say(f"rate all {megabits}")
        self._say(f"delay all {milliseconds / 2}")

    def lose(self, host):
        """Cut a host off, as if its machine lost power, and end its processes."""
        self._say(f"cut {host}")
        pids = subprocess.run(["ip", "netns", "pids", f"{PREFIX}{host}"], check=True, capture_output=True, text=True)
        for pid in map(int, pids.stdout.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    def _say(self, line):
        deadline = time.monotonic() + ANSWERS
        while True:
            try:
                control = os.open(self._control, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                # the switch has not created it yet
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the switch does not run: {self.log('wire')}") from None
                time.sleep(POLLED)
        with os.fdopen(control, "w") as pipe:
            pipe.write(f"{line}\n")

    def traffic(self):
        """Return the bytes from each host to each other so far, by pairs of names."""
        self._stats.unlink(missing_ok=True)
        self._say("stats")
        deadline = time.monotonic() + ANSWERS
        while time.monotonic() < deadline:
            if self._stats.exists():
                *lines, end = self._stats.read_text().splitlines() or [""]
                if end == "end":
                    return {(a, b): int(size) for a, b, size in map(str.split, lines)}
            time.sleep(POLLED)
        raise RuntimeError(f"the switch does not answer: {self.log('wire')}")


def address(host):
    """Return a host's name in the network."""
    return f"{host}.{DOMAIN}"
