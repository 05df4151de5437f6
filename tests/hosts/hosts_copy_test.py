"""`launch --copy`: hosts that have neither the program nor the config get both, and keep them."""


from hosts_fixture import Ended, HostsTest, eventually
from waiting import STAY

SAID = 'echo "$RANK on $(hostname): $RANK_COMMAND"; echo "$RANK from $DRIVETRAIN_CONFIG_FOLDER"; cat "${RANK_COMMAND##* train }" 2> /dev/null || true'


class Copies(HostsTest):
    names = ("a", "b")

    def setUp(self):
        super().setUp()
        self.there = self.hosts["b"].run
        (self.folder / "only_a").mkdir(exist_ok=True)
        (self.folder / "only_a/config.json").write_text('{"a": "config"}')
        for hidden in ("install/bin", "install/lib", "only_a"):
            self.mount("b", "-t", "tmpfs", "tmpfs", self.folder / hidden)
        for host in self.hosts.values():
            self.addCleanup(host.run, "rm", "-rf", "/tmp/copies")

    def launch_copied(self, *options):
        return Ended(self.start_copied(*options))

    def start_copied(self, *options, **words):
        words = self.words("--env", "RANK_SCRIPT", "--copy", "/tmp/copies", *options, **words)
        launch = self.hosts["a"].start("env", "-C", self.work, *words[:-1], self.folder / "only_a/config.json",
                                       env=self.environment(SAID), stdin=-3, stdout=-1, stderr=-1)
        self.addCleanup(lambda: launch.poll() is None and launch.kill())
        return launch

    def files(self):
        return self.there("find", "/tmp", "-type", "f", "-printf", "%p %i %T@ %m\n").stdout.splitlines()

    def test_a_host_without_program_and_config_gets_both_once(self):
        self.expect(self.launch(SAID), 2, "host b: there is no program")
        ended = self.launch_copied()
        self.expect(ended, 0)
        for rank, host in enumerate("abb"):
            self.assertRegex(ended.out, rf"{rank} on {host}: /tmp/copies/drivetrain-[\d.]+-[0-9a-f]{{16}}/bin/drivetrain "
                                        r"train /tmp/copies/configs/[0-9a-f]{16}/config.json")
            self.assertIn(f"{rank} from {self.folder}/only_a\n", ended.out)
        first = self.files()
        self.assertEqual(len(first), 7)  # the program, the library, four commands, the config
        self.assertTrue(all(line.endswith(("700", "600")) for line in first), first)
        self.expect(self.launch_copied(), 0)
        self.assertEqual([line for line in self.files() if "configs" not in line],
                         [line for line in first if "configs" not in line])

    def test_what_cannot_be(self):
        self.expect(self.launch_copied(), 0)
        (library,) = self.there("find", "/tmp/copies", "-name", "libdrivetrain.so").stdout.split()
        self.there("sh", "-c", f"echo >> {library}")
        self.expect(self.launch_copied(), 5, "--copy did not reach all hosts, and no rank was started: host b: "
                    "/tmp/copies/drivetrain-", "has other files than it had; remove it")
        self.there("rm", "-rf", "/tmp/copies")
        self.there("touch", "/tmp/copies")
        self.expect(self.launch_copied(), 2, "--copy /tmp/copies: nothing was copied: host b: /tmp/copies is no folder; name")
        self.hosts["b"].run("rm", "/tmp/copies")

    def expect_nothing_copied(self, *words):
        self.expect(self.launch_copied(), 2, "--copy /tmp/copies: nothing was copied: host b: ", *words,
                    "; name a folder that is this user's own on every host, or that can be made there")
        self.assertEqual(self.files(), [])
        self.assertEqual(self.hosts["a"].run("find", "/tmp", "-name", "copies").stdout, "")

    def test_a_folder_of_somebody_else_is_refused_before_any_host_gets_something(self):
        self.there("mkdir", "-p", "/tmp/copies/configs")
        for folder in ("/tmp/copies/configs", "/tmp/copies"):
            self.there("chown", "nobody", folder)
            self.expect_nothing_copied(f"{folder} belongs to nobody, who could change the program that root runs there")

    def test_a_file_system_that_takes_nothing_is_refused_before_any_host_gets_something(self):
        self.there("mkdir", "-p", "/tmp/copies")
        self.mount("b", "-t", "tmpfs", "-o", "ro", "tmpfs", "/tmp/copies")
        self.expect_nothing_copied("root may not write in /tmp/copies")

    def test_two_launches_at_once(self):
        for ended in map(Ended, [self.start_copied() for _ in range(2)]):
            self.expect(ended, 0)
        self.assertEqual(len(self.files()), 7)  # and no half of anything

    def test_a_signal_ends_the_copies(self):
        (self.folder / "slow").write_text(f"Host b\n  ProxyCommand {STAY}\n" + (self.folder / "ssh_config").read_text())
        launch = self.start_copied(ssh_config="slow")
        here = self.hosts["a"]
        self.assertTrue(eventually(lambda: any(STAY in line for line in here.processes())), here.processes())
        here.run("pkill", "-INT", "-f", "bin/drivetrain launch")
        self.expect(Ended(launch), 130, "stopped by signal 2 before any rank was started")
        self.assertTrue(eventually(lambda: not here.processes()), here.processes())

    def test_dry_run_shows_what_would_run(self):
        ended = self.launch_copied("--dry-run")
        self.expect(ended, 0)
        self.assertIn("belongs to", ended.out[:ended.out.index("launcher: tar -C ")])
        self.assertIn("/bin/drivetrain train /tmp/copies/configs/", ended.out)
        self.assertEqual(self.files(), [])
