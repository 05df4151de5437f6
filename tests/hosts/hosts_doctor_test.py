"""`drivetrain doctor --hostfile` over hosts of their own: what it says of hosts that are fine, of another version, not
reachable, different, and of pairs that do not reach each other. Doctor's part on each host is a script here."""

import json
import os
import shutil

from hosts_fixture import PROGRAM, Ended, HostsTest

# What doctor prints on a host; W is a folder in which a host may have an answer of its own.
SCRIPT = 'if [ -e "$W/$(hostname)" ]; then . "$W/$(hostname)"; else cat "$W/doctor.json"; fi'


def doctor_value(findings=(), **facts):
    usual = {"release": "0.1.0", "files": {"bin/drivetrain": "a" * 64, "lib/libdrivetrain.so": "b" * 64},
             "plugins": {"model_gpt.so": "c" * 64, "dataset_text.so": "d" * 64}, "libtorch": "2.11.0",
             "libtorch_build_id": "e" * 40, "processor": "P", "cores": 8, "usable_cores": 8, "memory_bytes": 64e9,
             "dev_shm_bytes": 32e9, "ulimit_n": "1024", "free_ports": 28000}
    return {"exit_code": 0, "problems": 0, "warnings": 0, "findings": list(findings), "facts": {**usual, **facts}}


class Doctor(HostsTest):
    def setUp(self):
        super().setUp()
        self.hostfile("a slots=1\nb slots=1\nc slots=1\n")
        self.says("doctor.json", doctor_value())

    def says(self, file, value):
        (self.work / file).write_text(json.dumps(value))

    def host_says(self, name, value):
        self.says(f"{name}.json", value)
        (self.work / name).write_text(f'cat "$W/{name}.json"')

    def doctor(self, *options, code=0, words=(), ssh_config="ssh_config"):
        (self.work / ".drivetrain_env").write_text(f"RANK_SCRIPT={SCRIPT}\nW={self.work}\n")
        given = [self.folder / "install/bin/drivetrain", "doctor", "--hostfile", self.work / "hostfile",
                 "--launcher_args", f"-F {self.folder}/{ssh_config}", *options]
        ended = Ended(self.hosts["a"].start("env", "-C", self.work, *given, env=self.environment(""), stdout=-1, stderr=-1))
        self.assertEqual(ended.code, code, ended.text)
        for word in words:
            self.assertIn(word, ended.out, ended.text)
        self.expect_nothing_left()
        return ended

    def test_hosts_that_are_fine(self):
        ended = self.doctor(words=("8 cores, 64.0 GB of memory, /dev/shm 32.0 GB, LibTorch 2.11.0, no GPU, 2 files of plugins",
                                   "the same bytes on all hosts", "6 of 6 pairs of hosts connect", "apart",
                                   "everything that was looked at is in order"))
        self.assertEqual(ended.err, "")
        value = json.loads(self.doctor("--json", "--exclude", "b").out)
        self.assertEqual([host["name"] for host in value["hosts"]], ["a", "c"])
        self.assertEqual([host["address"] for host in value["hosts"]], ["10.77.0.1", "10.77.0.3"])
        self.assertEqual([(p["from"], p["to"], p["address"], p["problem"]) for p in value["pairs"]],
                         [("a", "c", "10.77.0.3", None), ("c", "a", "10.77.0.1", None)])
        for host in value["hosts"]:  # they have one clock
            self.assertLessEqual(abs(host["clock"]["ahead_of_this_host_s"]), host["clock"]["within_s"])
            self.assertEqual(host["doctor"]["facts"]["cores"], 8)
        self.assertEqual(value["exit_code"], 0)

    def test_what_differs_is_named_with_its_host(self):
        self.host_says("b", doctor_value(plugins={"model_gpt.so": "f" * 64, "mine.so": "0" * 64}, usable_cores=4))
        self.doctor(code=3, words=("host b differs from most others: dataset_text.so is not there, mine.so is there alone, "
                                   f"model_gpt.so is {'f' * 12}, not {'c' * 12}", "install the same plugins on all hosts",
                                   "differs: 8 on a, c; 4 on b"))
        self.host_says("b", doctor_value(files={"bin/drivetrain": "a" * 64, "lib/libdrivetrain.so": "9" * 64},
                                         libtorch="2.11.0+cpu"))
        self.doctor(code=2, words=(f"host b differs from most others: lib/libdrivetrain.so is {'9' * 12}, not {'b' * 12}",
                                   "2.11.0 on a, c; 2.11.0+cpu on b", "install the same build on all hosts"))

    def test_what_doctor_finds_on_a_host(self):
        small = {"level": "problem", "part": "machine", "about": "memory", "found": "0.5 GB", "remedy": "end others", "code": 2}
        common = {"level": "warning", "part": "machine", "about": "files", "found": "few", "remedy": "ulimit -n 4096"}
        for name, findings in (("a", [common]), ("b", [common, small]), ("c", [common])):
            self.host_says(name, doctor_value(findings))
        ended = self.doctor(code=2, words=("memory: 0.5 GB", "-> end others", "all hosts", "files: few", "1 problem, 1 warning"))
        self.assertEqual(ended.out.count("files: few"), 1, ended.text)
        (self.work / "b").write_text("echo 'drivetrain: error: no LibTorch at /there' >&2; exit 2")
        ended = self.doctor(code=2, words=("`drivetrain doctor --json` there ended with exit 2: drivetrain: error: no LibTorch",
                                           "6 of 6 pairs"))

    def test_hosts_that_cannot_be_asked(self):
        """c has another version, d does not exist; a and b are looked at all the same."""
        self.hostfile("a slots=1\nb slots=1\nc slots=1\ngone slots=1\n")
        other = self.work / "other"
        shutil.copytree(self.folder / "install", other)
        program = other / "bin/drivetrain"
        program.write_bytes(program.read_bytes().replace(b"\x000.1.0\x00", b"\x000.0.9\x00"))
        self.mount("c", "--bind", other, self.folder / "install")
        (self.folder / "config_gone").write_text("Host gone\n  HostName 127.0.0.1\n  Port 9\n" +
                                                 (self.folder / "ssh_config").read_text())
        version = ("it has drivetrain 0.0.9", "install the same version on both")
        self.doctor(code=5, ssh_config="config_gone",
                    words=("it cannot be reached by ssh", "Connection refused", *version, "2 of 2 pairs", "2 problems"))
        self.doctor("--num_nodes", "3", code=2, words=version)

    def no_route(self, host, address):
        self.hosts[host].run("ip", "route", "add", "unreachable", address)
        self.addCleanup(self.hosts[host].run, "ip", "route", "del", "unreachable", address)

    def test_pairs_that_are_cut(self):
        self.no_route("b", "10.77.0.3")
        value = json.loads(self.doctor("--json", code=5).out)
        failed = {(p["from"], p["to"]): p["problem"] for p in value["pairs"] if p["problem"]}
        self.assertEqual(set(failed), {("b", "c"), ("c", "b")}, failed)
        self.assertEqual(failed["b", "c"], "No route to host")
        said = {f["about"]: f for f in value["findings"] if f["level"] == "problem"}
        self.assertIn("b does not reach c at 10.77.0.3 port", said["b -> c"]["found"])
        self.assertIn("ip route get 10.77.0.3` on b", said["b -> c"]["remedy"])
        self.assertIn("Connection timed out", said["c -> b"]["found"])  # b cannot answer
        self.assertIn("packets are lost on the way", said["c -> b"]["remedy"])

    def test_bad_input(self):
        for options, words in ((("--include", "x"), "doctor: --include: there is no host x in the hostfile"),
                               (("--include", "a", "--num_nodes", "1"), "leave out --num_nodes")):
            self.assertIn(words, self.doctor(*options, code=2).err)
        self.assertIn("doctor: --launcher_args: the quote", self.doctor(code=2, ssh_config="'").err)
        (self.work / "hostfile").write_text("a\n")
        self.assertIn(":1: wanted slots=K after the host, got nothing", self.doctor(code=2).err)


class TheRealDoctor(HostsTest):
    """With libraries and plugins, and ranks that compare collectives over the hosts."""
    names = ("a", "b")

    def test_libraries_plugins_and_collectives(self):
        self.hostfile("a slots=1\nb slots=1\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        ended = Ended(self.hosts["a"].start(
            "env", "-C", self.work, PROGRAM, "doctor", "--hostfile", self.work / "hostfile", "--launcher_args",
            f"-F {self.folder}/ssh_config", "--ranks", "1", "--communicator", "tcp", "--json", stdout=-1, stderr=-1,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}))
        self.assertEqual(ended.code, 0, ended.text)
        value = json.loads(ended.out)
        facts = [host["doctor"]["facts"] for host in value["hosts"]]
        self.assertIn("communicator_tcp.so", facts[0]["plugins"])
        self.assertEqual(facts[0]["plugins"], facts[1]["plugins"])
        results = value["collectives"]["results"]
        self.assertEqual(value["collectives"]["ranks"], 2)
        self.assertLess({"all_reduce", "all_gather", "reduce_scatter"}, {one["op"] for one in results})
        self.assertEqual({one["bytes"] for one in results if one["op"] == "all_reduce"}, {4096, 4 << 20})
        self.expect_nothing_left()
