"""Hosts of a network on this machine: namespaces with an address, host name, /tmp, /dev/shm and processes of their own,
and a real sshd in each. They are gone with the processes that hold them."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

from waiting import STAY, eventually

os.environ.pop("TMPDIR", None)  # tools/check sets one in /dev/shm; hosts have a /tmp and a /dev/shm of their own
SSHD = "/usr/sbin/sshd"
HOLDS = "sleep infinity"  # Waits: the first process of a host, which holds it


def why_not():
    """The reason why there can be no such hosts here, or None."""
    for tool in ("unshare", "nsenter", "ip", "ssh", "ssh-keygen"):
        if not shutil.which(tool):
            return f"there is no {tool} (packages util-linux, iproute2, openssh-client)"
    if not os.path.exists(SSHD):
        return f"there is no {SSHD} (package openssh-server)"
    if os.geteuid() != 0:
        return "making hosts of namespaces takes root"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "true"],
                           capture_output=True, text=True)
    if tried.returncode != 0:
        return f"namespaces are not allowed here: {tried.stderr.strip()}"
    return None


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
    return done


def state_of(pid):
    """One letter of proc(5)."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]


class Host:
    """A set of namespaces, held by its first process."""

    def __init__(self, name, address):
        self.name, self.address, self.sshd = name, address, None
        script = ("mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && "
                  f"mkdir /run/sshd && hostname {name} && ip link set lo up && echo ready && exec {HOLDS}")
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
             "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"host {name} could not be made")
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        self.pid = int(children[0])

    def words(self, *words):
        """What runs `words` on this host."""
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-i", "-p", "--", *[str(w) for w in words]]

    def run(self, *words, **options):
        return run(*self.words(*words), **options)

    def start(self, *words, **options):
        return subprocess.Popen(self.words(*words), **options)

    def processes(self):
        """Command lines of all that runs there, but for the holder and sshd."""
        listed = subprocess.run(self.words("ps", "-eo", "stat=,args="), capture_output=True, text=True).stdout
        lines = [line.strip() for line in listed.splitlines()]
        return [line for line in lines
                if not line.startswith("Z") and not any(word in line for word in (HOLDS, "sshd", "ps -eo"))]

    def processes_of_ours(self):
        """The program's, and what a test's ranks sleep in. The folder of this tree may be called drivetrain, too."""
        return [line for line in self.processes() if re.search(rf"(^|[/ ])drivetrain(-[a-z-]+)?( |$)|{STAY}", line)]

    def sshd_pid(self):
        """As this process sees it: the first of its sshd, which takes connections."""
        return int(pathlib.Path(f"/proc/{self.sshd.pid}/task/{self.sshd.pid}/children").read_text().split()[0])

    def stop_sshd(self):
        """nsenter, which started it, stops itself when its child is stopped: a moment later, which is waited for."""
        os.kill(self.sshd_pid(), signal.SIGSTOP)
        if not eventually(lambda: {state_of(self.sshd_pid()), state_of(self.sshd.pid)} == {"T"}):
            raise RuntimeError(f"sshd of host {self.name} does not stop")

    def continue_sshd(self):
        """nsenter continues its child, so that no signal of this one is on its way to a later test."""
        os.kill(self.sshd.pid, signal.SIGCONT)
        if not eventually(lambda: state_of(self.sshd_pid()) != "T"):
            raise RuntimeError(f"sshd of host {self.name} does not go on")

    def files(self):
        """What was left in /tmp and /dev/shm."""
        return self.run("find", "/tmp", "/dev/shm", "-mindepth", "1").stdout.split()

    def end(self):
        """As a host that loses its power: nothing says good-bye."""
        for process in (self.holder, self.sshd):
            if process:
                process.kill()
                process.wait()


class Network:
    """Hosts behind one switch. `folder` is seen by all of them and holds keys and configurations."""

    def __init__(self, folder, names, net="10.77.0"):
        self.folder = pathlib.Path(folder)
        if self.folder.resolve().parts[1:2] == ("tmp",):
            raise RuntimeError(f"hosts of a test have a /tmp of their own and would not see {self.folder}: build this tree outside of /tmp")
        self.hosts = {}
        self.switch = Host("switch", "")
        try:
            self.switch.run("ip", "link", "add", "br0", "type", "bridge")
            self.switch.run("ip", "link", "set", "br0", "up")
            for number, name in enumerate(names):
                self.add(name, f"{net}.{number + 1}")
            self.write_ssh()
            for host in self.hosts.values():
                self.serve(host)
        except BaseException:
            self.end()
            raise

    def renew(self, name):
        """In place of one that was ended."""
        subprocess.run(self.switch.words("ip", "link", "delete", f"to-{name}"), capture_output=True)  # unless it is gone already
        self.add(name, self.hosts[name].address)
        for host in self.hosts.values():  # its card is another one
            host.run("ip", "neigh", "flush", "dev", "eth0")
        self.serve(self.hosts[name])

    def add(self, name, address):
        host = Host(name, address)
        self.hosts[name] = host
        port = f"to-{name}"
        # Only its network: the number of the host's first process is one outside of the switch's own processes.
        run("nsenter", "-t", self.switch.pid, "-n", "--", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
            host.pid)
        self.switch.run("ip", "link", "set", port, "master", "br0", "up")
        host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")

    def cut(self, name):
        """As a cable that is pulled out between switches: packets are lost, and nobody is told."""
        self.switch.run("ip", "link", "set", f"to-{name}", "nomaster")

    def mend(self, name):
        self.switch.run("ip", "link", "set", f"to-{name}", "master", "br0")

    def switch_off(self, name):
        self.hosts[name].run("ip", "link", "set", "eth0", "down")

    def switch_on(self, name):
        self.hosts[name].run("ip", "link", "set", "eth0", "up")

    def write_ssh(self):
        for key in ("host_key", "user_key", "wrong_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        host_key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        known = "".join(f"{h.address} {host_key}\n" for h in self.hosts.values())
        (self.folder / "known_hosts").write_text(known)
        config = "".join(f"Host {h.name}\n  HostName {h.address}\n" for h in self.hosts.values())
        config += (f"Host *\n  User root\n  IdentityFile {self.folder}/user_key\n  IdentitiesOnly yes\n"
                   f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
                   "  StrictHostKeyChecking yes\n  KexAlgorithms curve25519-sha256\n")  # the default takes four times as long
        (self.folder / "ssh_config").write_text(config)
        # What this machine's user starts in each shell (~/.bashrc) is no part of a test.
        (self.folder / "there").mkdir(exist_ok=True)
        (self.folder / "sshd_config").write_text(
            f"SetEnv HOME={self.folder}/there\nHostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\n"
            "UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\nMaxStartups 100\n")

    def serve(self, host):
        with (self.folder / f"sshd_{host.name}.log").open("w") as log:
            host.sshd = host.start(SSHD, "-D", "-e", "-f", self.folder / "sshd_config", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=log)
        if not eventually(lambda: ":22 " in host.run("ss", "-Hltn").stdout):
            raise RuntimeError(f"sshd of {host.name} does not listen: see {self.folder}/sshd_{host.name}.log")

    def end(self):
        for host in [*self.hosts.values(), self.switch]:
            host.end()
