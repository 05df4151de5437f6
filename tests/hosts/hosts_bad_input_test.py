"""What a launch over hosts refuses before any rank starts: each with one clear error, the exit code and the host."""

import re
import shutil

from hosts_fixture import Ended, HostsTest, eventually

RAN = 'touch "$W/ran"'


class Refused(HostsTest):
    names = ("a", "b")

    def refused(self, code, *words, options=(), **more):
        ended = self.launch(RAN, *options, **more)
        self.expect(ended, code, *words)
        self.assertFalse((self.work / "ran").exists(), "a rank was started")
        self.expect_nothing_left()
        return ended

    def hostfile_refused(self, text, *words):
        self.hostfile(text)
        self.refused(2, *words)

    def ssh_config(self, name, text):
        """The settings of the network after these, which win."""
        (self.folder / name).write_text(text + (self.folder / "ssh_config").read_text())
        return name


class Refusals(Refused):
    def test_hostfiles(self):
        self.hostfile_refused("a slots=1\nb slots=1\na slots=2\n", ":3: the host a stands here and in line 1")
        self.hostfile_refused(f"a slots=1\nb slots=1\n{self.hosts['a'].address} slots=2\n",
                              f":3: the host {self.hosts['a'].address} is the host a of line 1 (both are this host)",
                              "give it one line with all its slots")
        self.hostfile_refused("# nobody\n\r\n", "names no host")
        self.hostfile_refused("a\n", ":1: wanted slots=K after the host, got nothing")
        self.hostfile_refused("a slots=0\n", ":1: slots wants a whole number from 1 to 4096, got \"0\"")
        self.hostfile_refused("a slots=x\n", "got \"x\"")
        self.hostfile_refused("-oProxyCommand=x slots=1\n", "is no host name")
        self.hostfile_refused("root@a slots=1\n", "-l USER")
        self.hostfile_refused("a slots=2 max_slots=4\n", "\"max_slots=4\" was not expected")
        (self.work / "hostfile").unlink()
        self.refused(2, "cannot read the hostfile")

    def test_filters(self):
        self.hostfile("a slots=1\nb slots=2\n")
        for options, words in ((("--include", "a", "--exclude", "b"), "exclude each other"),
                               (("--include", "b:2"), "the host b has no slot 2; it has 2, counted from 0"),
                               (("--include", "b:x"), "is no number of a slot"),
                               (("--plugin-path", "/no/such/plugins"), "host a: cannot read /no/such/plugins"),
                               (("--include", "a@b:1", "--env", "CUDA_VISIBLE_DEVICES=7"),
                                "host b: slot 1 was chosen, and CUDA_VISIBLE_DEVICES=7 there shows 1 GPU"),
                               (("--include", "bb"), "there is no host bb in the hostfile"),
                               (("--exclude", "a@b"), "leaves no slot of any host"),
                               (("--include", "a", "-n", "1"), "leave out -n"),
                               (("--num_nodes", "3"), "the hostfile has 2 hosts"),
                               (("-n", "2"), "the host a has slots=1"),
                               (("--include", "fd00::1:0"), "stands in brackets")):
            self.refused(2, words, options=options)

    def test_options_that_contradict(self):
        for options, words in ((("--launcher", "slurm"), "SLURM chooses the hosts"), (("--launcher", "rsh"), "or none"),
                               (("--no_ssh",), "Give --node_rank"), (("--node_rank", "0"), "goes with --no_ssh"),
                               (("--no_ssh", "--node_rank", "0"), "needs --master_addr"),
                               (("--no_ssh", "--node_rank", "2"), "counted from 0"),
                               (("--env", "NOT_SET_HERE"), "is not set here"), (("--env", "A B=1"), "KEY or KEY=VALUE"),
                               (("--env", "DRIVETRAIN_RUN_TOKEN=x"), "launch itself gives that"),
                               (("--spare", "c"), "--spare goes with --max-restarts"),
                               (("--launcher_args", "-o 'x"), "does not end")):
            self.refused(2, words, options=options, ssh_config=None)
        (self.work / ".drivetrain_env").write_text("A=1\nno equals sign\n")
        self.refused(2, ".drivetrain_env:2: wanted NAME=VALUE")

    def test_hosts_that_cannot_be_reached_are_all_named(self):
        self.hostfile("a slots=1\nb slots=1\ngone slots=1\nnowhere slots=1\n")
        config = self.ssh_config("config_gone", "Host gone\n  HostName 10.77.0.99\nHost nowhere\n  HostName no.such.invalid\n")
        self.refused(5, "host gone: it cannot be reached by ssh: ssh ended with exit 255: ssh: connect to host 10.77.0.99",
                     "host nowhere: it cannot be reached by ssh", "Could not resolve hostname",
                     "2 of 4 hosts cannot take part; no rank was started", ssh_config=config)

    def test_a_port_where_no_sshd_is(self):
        self.refused(5, "host a: ", "host b: it cannot be reached by ssh", "Connection refused",
                     options=("--ssh_port", "2222"))

    def test_wrong_keys(self):
        config = self.ssh_config("config_wrong", f"Host b\n  IdentityFile {self.folder}/wrong_key\n")
        text = (self.folder / config).read_text()
        (self.folder / config).write_text(text.replace(f"Host *\n  User root\n  IdentityFile {self.folder}/user_key\n",
                                                       f"Host a\n  IdentityFile {self.folder}/user_key\nHost *\n"))
        self.refused(5, "host b: it cannot be reached by ssh", "Permission denied", "has to work without a question",
                     ssh_config=config)
        config = self.ssh_config("config_unknown", f"Host b\n  UserKnownHostsFile {self.folder}/nobody_known\n")
        self.refused(5, "host b: it cannot be reached by ssh", "Host key verification failed", ssh_config=config)
        known = (self.folder / "known_hosts").read_text()
        other = (self.folder / "wrong_key.pub").read_text()
        (self.folder / "another_known").write_text("".join(f"{line.split()[0]} {other}" for line in known.splitlines(True)))
        config = self.ssh_config("config_changed", f"Host b\n  UserKnownHostsFile {self.folder}/another_known\n")
        self.refused(5, "host b: it cannot be reached by ssh: its host key is another one than ssh knows (Offending ",
                     f"{self.folder}/another_known:", "if the host was installed anew, remove the old key", ssh_config=config)


class WhatIsNotThere(Refused):
    def stop_sshd(self, name):
        self.hosts[name].stop_sshd()
        self.addCleanup(self.hosts[name].continue_sshd)

    def test_an_sshd_that_hangs(self):
        self.stop_sshd("b")
        self.refused(5, "host b: ")

    def test_a_missing_install_folder(self):
        install = self.folder / "install"
        self.mount("b", "-t", "tmpfs", "tmpfs", install)
        self.refused(2, f"host b: there is no program {install}/bin/drivetrain that can be run",
                     "install Drivetrain at the same path on every host")

    def test_another_version(self):
        other = self.work / "other"
        shutil.copytree(self.folder / "install", other)
        program = other / "bin/drivetrain"
        bytes_there = program.read_bytes()
        self.assertIn(b"\x000.1.0\x00", bytes_there)
        program.write_bytes(bytes_there.replace(b"\x000.1.0\x00", b"\x000.0.9\x00"))
        self.mount("b", "--bind", other, self.folder / "install")
        self.refused(2, "host b: it has drivetrain 0.0.9", "install the same version on both")

    def test_a_program_that_is_none_of_ours(self):
        other = self.work / "none"
        (other / "bin").mkdir(parents=True)
        (other / "bin/drivetrain").write_text("#!/bin/sh\necho hello\nexit 3\n")
        (other / "bin/drivetrain").chmod(0o755)
        self.mount("b", "--bind", other, self.folder / "install")
        self.refused(5, "host b: ", "ssh ended with exit 3")

    def test_missing_folder_and_config(self):
        self.mount("b", "-t", "tmpfs", "tmpfs", self.work)
        config = self.work / "config.json"
        config.write_text("{}")
        ended = self.launch(RAN, "--set", "a=1")
        self.assertEqual(ended.code, 0, ended.text)  # the folder is there, though empty
        (self.folder / "config.json").rename(self.folder / "elsewhere.json")
        self.addCleanup((self.folder / "elsewhere.json").rename, self.folder / "config.json")
        self.expect(self.launch(RAN), 2, "launch: cannot read the config file")

    def test_a_config_that_only_this_host_has(self):
        hidden = self.work / "hidden"
        hidden.mkdir()
        (hidden / "config.json").write_text("{}")
        self.mount("b", "-t", "tmpfs", "tmpfs", hidden)
        launch = self.hosts["a"].start("env", "-C", self.work, *self.words()[:-1], hidden / "config.json",
                                       env=self.environment(RAN), stdout=-1, stderr=-1)
        self.expect(Ended(launch), 2, f"host b: cannot read the config file {hidden}/config.json", "at the same path on every host")

    def test_where_rank_0_listens(self):
        taken = self.hosts["a"].start("python3", "-c", "import signal,socket; s=socket.socket(); s.bind(('',29533)); "
                                      "s.listen(); print('up', flush=True); signal.pause()", stdout=-1)
        taken.stdout.readline()
        try:
            ended = self.launch(RAN, "--master_port", "29533")
            self.expect(ended, 5, "host a: it cannot listen on 10.77.0.1 port 29533: Address already in use",
                        "without --master_port a free port is taken")
        finally:
            self.hosts["a"].run("pkill", "-f", "29533")
            taken.wait()
            taken.stdout.close()
        self.refused(2, "host a: it cannot listen on 10.77.0.2", "has to be an address of that host",
                     options=("--master_addr", "10.77.0.2"))
        self.refused(5, "host b: it does not reach rank 0's host at 127.0.0.1", "Connection refused",
                     options=("--master_addr", "127.0.0.1"))

    def test_a_signal_before_ranks_start(self):
        self.stop_sshd("b")
        launch = self.start(RAN)
        self.assertTrue(eventually(lambda: any(re.search("ssh.* -- b ", line) for line in self.hosts["a"].processes())))
        self.hosts["a"].run("pkill", "-TERM", "-f", "drivetrain launch")
        self.expect(Ended(launch), 143, "stopped by signal 15 before any rank was started")
