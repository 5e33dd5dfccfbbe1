"""Several hosts on one machine: network namespaces with names, addresses, process trees and an sshd of their own."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

NETWORK = "10.211.7"

_SETTLE = """
set -e
hostname {name}
mount --make-rprivate /
mount --bind {place}/hosts /etc/hosts
mount -t tmpfs -o size=256m tmpfs /dev/shm
ip link set lo up
exec {sshd} -D -e -f {place}/sshd_config
"""
"""What the first process of a host does. A /dev/shm of its own keeps ranks of two hosts from sharing memory."""

_SSHD = """
ListenAddress 0.0.0.0
HostKey {place}/key
AuthorizedKeysFile {place}/key.pub
PidFile none
PermitRootLogin yes
StrictModes no
UsePAM no
MaxStartups 100
"""

_SSH = """
Host *
  IdentityFile {place}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
  ControlMaster no
"""


class Hosts:
    """Hosts ``host1`` to ``hostN``, joined by a switch, with ssh between them without a password."""

    def __init__(self, place: Path, count: int) -> None:
        self.place = place
        self.names = [f"host{number}" for number in range(1, count + 1)]
        self._switch = f"arena{os.getpid()}"
        self._inits: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Make the switch and the hosts.

        Raises:
          subprocess.CalledProcessError: this machine does not let us.
        """
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        Path("/run/sshd").mkdir(exist_ok=True)
        _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.place / "key"))
        lines = [f"{NETWORK}.{number} {name}" for number, name in enumerate(self.names, 1)]
        (self.place / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        (self.place / "sshd_config").write_text(_SSHD.format(place=self.place))
        (self.place / "ssh_config").write_text(_SSH.format(place=self.place))
        _do("ip", "netns", "add", self._switch)
        self._in_switch("ip", "link", "add", "switch", "type", "bridge")
        self._in_switch("ip", "link", "set", "switch", "up")
        for number, name in enumerate(self.names, 1):
            space = self._space(name)
            _do("ip", "netns", "add", space)
            self._in_switch("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
            self._in_switch("ip", "link", "set", name, "master", "switch", "up")
            _do("ip", "-n", space, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            _do("ip", "-n", space, "link", "set", "eth0", "up")
            script = _SETTLE.format(name=name, place=self.place, sshd=sshd)
            apart = ["unshare", "--uts", "--mount", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
            with open(self.place / f"{name}.log", "wb") as log:
                self._inits[name] = subprocess.Popen(
                    ["ip", "netns", "exec", space, *apart, "sh", "-c", script], stdout=log, stderr=log
                )
        for name in self.names:
            self._await_ssh(name)

    def _await_ssh(self, name: str) -> None:
        for _ in range(100):
            answer = subprocess.run(
                self.on(self.names[0], *self.ssh(), name, "hostname"), check=False, capture_output=True
            )
            if answer.stdout.strip() == name.encode():
                return
            time.sleep(0.1)
        raise subprocess.CalledProcessError(1, "sshd", (self.place / f"{name}.log").read_bytes(), answer.stderr)

    def _space(self, name: str) -> str:
        return f"{self._switch}-{name}"

    def _in_switch(self, *line: str) -> None:
        _do("ip", "netns", "exec", self._switch, *line)

    def ssh(self) -> list[str]:
        """Return the words that ssh between the hosts needs."""
        return ["ssh", "-F", str(self.place / "ssh_config")]

    def first_process(self, name: str) -> int:
        """Return the process that all others of a host descend from, by its number outside."""
        # unshare has one child: the first process of the new tree.
        outer = self._inits[name].pid
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])

    def on(self, name: str, *line: str) -> list[str]:
        """Return the command line that runs ``line`` on a host."""
        return ["nsenter", "-t", str(self.first_process(name)), "-a", *line]

    def environment(self) -> dict[str, str]:
        """Return the environment with which mpirun reaches the hosts, and its ranks each other: by TCP."""
        return {
            **os.environ,
            "PRTE_MCA_plm_ssh_agent": " ".join(self.ssh()),
            # The hosts share /tmp, and count their processes from 1 each: folders named by process would be the same.
            "PRTE_MCA_prte_tmpdir_base": "/dev/shm",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,sm,tcp",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
        }

    def cut(self, name: str) -> None:
        """Disconnect a host: nothing arrives any more, and no process is notified."""
        self._in_switch("ip", "link", "set", name, "down")

    def kill(self, name: str) -> None:
        """Kill all processes of a host."""
        os.kill(self.first_process(name), signal.SIGKILL)

    def processes(self, name: str, word: str) -> list[int]:
        """Return the processes of a host that have ``word`` in their command line."""
        found = []
        space = os.readlink(f"/proc/{self.first_process(name)}/ns/pid")
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdecimal() and os.readlink(folder / "ns/pid") == space:
                    found += [int(folder.name)] if word.encode() in (folder / "cmdline").read_bytes() else []
        return found

    def stop(self) -> None:
        """End all hosts and take the network down."""
        for init in self._inits.values():
            init.kill()  # and with it, by --kill-child, all processes of the host
            init.wait()
        for space in [self._switch, *map(self._space, self.names)]:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def _do(*line: str) -> None:
    subprocess.run(line, check=True, capture_output=True, timeout=120)


def missing(programs: Sequence[str] = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "sshd")) -> str | None:
    """Return why there can be no such hosts here, or None."""
    if os.geteuid() != 0:
        return "several hosts need root, for network namespaces"
    lacking = [name for name in programs if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    return f"several hosts need {', '.join(lacking)}" if lacking else None


@contextlib.contextmanager
def several_hosts(place: Path, count: int = 4) -> Iterator[Hosts]:
    """Have hosts for a while, or skip the test where that is not possible."""
    if reason := missing():
        pytest.skip(reason)
    hosts = Hosts(place, count)
    try:
        try:
            hosts.start()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"several hosts: {error}: {(error.stderr or b'').decode(errors='replace')}")
        yield hosts
    finally:
        hosts.stop()
