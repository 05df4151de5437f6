"""A real SLURM on this machine: munged and slurmd on every host of a network of namespaces, slurmctld on the first."""

import os
import pathlib
import secrets
import shutil
import subprocess

from hosts_fixture import HostsTest
from waiting import eventually

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")


def why_not():
    """The reason why there can be no such cluster here, or None."""
    missing = [name for name in NEEDED if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return f"there is no {', '.join(missing)} (packages slurm-wlm, munge)" if missing else None


class Cluster:
    """`hosts`: of namespaces.py. `folder` is seen by all of them and holds keys, states and logs."""

    def __init__(self, hosts, folder, cpus=4):
        self.hosts, self.folder = hosts, pathlib.Path(folder)
        self.folder.mkdir()
        self.first = next(iter(self.hosts.values()))
        self.processes = []
        self.log = (self.folder / "daemons.log").open("w")
        self.conf = self.folder / "slurm.conf"
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.folder / "munge.key").chmod(0o600)
        self.write_conf(cpus)
        try:
            for host in self.hosts.values():
                self.begin(host)
            self.wait_until_idle()
        except BaseException:
            self.end()
            raise

    def write_conf(self, cpus):
        nodes = "".join(f"NodeName={host.name} NodeAddr={host.address} CPUs={cpus} RealMemory=1000 State=UNKNOWN\n"
                        for host in self.hosts.values())
        self.conf.write_text(
            f"ClusterName=test\nSlurmctldHost={self.first.name}({self.first.address})\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket=/run/munge.socket,cred_expire=6\nCredType=cred/munge\nStateSaveLocation={self.folder}/state\n"
            f"SlurmdSpoolDir={self.folder}/spool-%n\nSlurmctldPidFile=/run/slurmctld.pid\nSlurmdPidFile=/run/slurmd.pid\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
            "SelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\nReturnToService=2\nMpiDefault=none\nSlurmdParameters=config_overrides\n"
            "SchedulerParameters=sched_interval=1,batch_sched_delay=0\nKillWait=30\nMinJobAge=300\nJobRequeue=1\n"
            "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
            f"{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30\n"
            "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10\n")
        (self.folder / "state").mkdir()

    def environment(self, **more):
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.conf), **more}

    def daemon(self, host, *words):
        self.processes.append(host.start(*words, env=self.environment(), stdin=subprocess.DEVNULL, stdout=self.log,
                                         stderr=self.log))

    def begin(self, host):
        self.daemon(host, "munged", "-F", "-f", "--key-file", self.folder / "munge.key", "--socket", "/run/munge.socket",
                    "--pid-file", "/run/munge.pid", "--seed-file", "/run/munge.seed", "--log-file", "/run/munge.log")
        if host is self.first:
            self.daemon(host, "slurmctld", "-D", "-c")
        self.daemon(host, "slurmd", "-D", "-N", host.name)

    def run(self, *words, **options):
        return self.first.run(*words, env=self.environment(), **options)

    def wait_until_idle(self):
        def state():
            return subprocess.run(self.first.words("sinfo", "-h", "-N", "-o", "%N %T"), env=self.environment(),
                                  capture_output=True, text=True)
        idle = {f"{name} idle" for name in self.hosts}
        if not eventually(lambda: set(state().stdout.splitlines()) == idle):  # a line for each partition
            said = state().stdout + state().stderr
            raise RuntimeError(f"SLURM did not come up: {said.strip()}\n{(self.folder / 'daemons.log').read_text()[-3000:]}")

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.log.close()


class SlurmTest(HostsTest):
    """On two hosts; a process that runs such tests has one cluster for all of them."""
    names = ("a", "b")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not hasattr(cls.site, "cluster"):
            cls.site.cluster = Cluster({name: cls.network.hosts[name] for name in cls.names}, cls.folder / "slurm")
            cls.site.at_end(cls.site.cluster.end)
        cls.cluster = cls.site.cluster
