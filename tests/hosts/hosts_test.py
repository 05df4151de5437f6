"""`drivetrain launch` over hosts of their own: what ranks are told, how runs end, and that nothing is left anywhere."""

import re
import signal

from hosts_fixture import Ended, HostsTest, eventually
from waiting import DEADLINE_S, STAY, let_pass

SLEEP = 'touch "$W/up$RANK"; hold'
UP = ("up0", "up1", "up2")


class WhatRanksAreTold(HostsTest):
    def test_ranks_numbers_and_rank_0s_address(self):
        self.hostfile("# three hosts\na slots=2 # the first\r\nb slots=1\n\nc slots=1\n")
        ended = self.launch('exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && echo "$(hostname) $RANK $LOCAL_RANK '
                            '$WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $PWD"; all_up')  # so long rank 0's port is open
        self.expect(ended, 0)
        lines = sorted(re.sub(r"^\[.*?\] ", "", line) for line in ended.out.splitlines())
        at = f"10.77.0.1 {self.work}"
        self.assertEqual(lines, [f"a 0 0 4 2 {at}", f"a 1 1 4 2 {at}", f"b 2 0 4 1 {at}", f"c 3 0 4 1 {at}"])
        self.assertIn("[b rank 2] b 2", ended.out)
        self.expect_nothing_left()

    def test_one_secret_that_no_command_line_shows(self):
        launch = self.start('echo "$DRIVETRAIN_RUN_TOKEN" > "$W/token$RANK"; touch "$W/up$RANK"; await go')
        self.wait_for(*UP)
        tokens = {(self.work / f"token{rank}").read_text().strip() for rank in range(3)}
        self.assertEqual(len(tokens), 1)
        self.assertGreaterEqual(len(next(iter(tokens))), 32)
        for host in self.hosts.values():
            self.assertNotIn(next(iter(tokens)), "".join(host.processes()))
        (self.work / "go").touch()
        self.expect_code(launch, 0)

    def test_variables(self):
        (self.folder / "home/.deepspeed_env").write_text("FROM_HOME=1\nBOTH=home\n")
        (self.work / ".deepspeed_env").write_text("# a note\nBOTH=here\nSPACE=a b 'c'\n")
        (self.work / ".drivetrain_env").write_text("OURS=2\n")
        self.addCleanup((self.folder / "home/.deepspeed_env").unlink)
        ended = self.launch('echo "$FROM_HOME|$BOTH|$SPACE|$OURS|$GIVEN|$NAMED|$NCCL_DEBUG|$OTHER"', "--env", "GIVEN=x y",
                            "--env", "NAMED", env={"NAMED": "n", "NCCL_DEBUG": "WARN", "OTHER": "stays"})
        self.expect(ended, 0)
        self.assertEqual(ended.out.count("1|here|a b 'c'|2|x y|n|WARN|\n"), 3, ended.text)

    def test_chosen_slots(self):
        self.hostfile("a slots=4\nb slots=4\nc slots=4\n")
        said = 'echo "$(hostname) $RANK of $WORLD_SIZE gpus ${CUDA_VISIBLE_DEVICES-all}"'
        ended = self.launch(said, "--include", "c:1,3@a:0")
        self.expect(ended, 0)
        for line in ("a 0 of 3 gpus all", "c 1 of 3 gpus 1,3", "c 2 of 3 gpus 1,3"):
            self.assertIn(line, ended.out)
        ended = self.launch(said, "--exclude", "a@b:0,1,2")
        self.assertIn("b 0 of 5 gpus 3", ended.out, ended.text)
        ended = self.launch(said, "--num_nodes", "2", "--num_gpus", "1")
        self.assertEqual(ended.out.count(" of 2 gpus all"), 2, ended.text)

    def test_without_ssh_each_host_starts_its_own(self):
        self.hostfile("a slots=1\nb slots=1\n")
        script = ('reached() { (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) 2> /dev/null; }; until_it reached; '
                  'echo "$RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE reached $MASTER_ADDR"; all_up')
        there = ("--no_ssh", "--master_addr", "10.77.0.1", "--master_port", "29511", "--node_rank")
        launches = [self.start(script, *there, str(i), on=on, ssh_config=None) for i, on in enumerate("ab")]
        first, second = map(Ended, launches)
        self.expect(first, 0)
        self.expect(second, 0)
        self.assertIn("1 of 2 1 reached 10.77.0.1", second.out)
        fails = self.start("echo 'drivetrain: error: why' >&2; exit 7", *there, "1", on="b", ssh_config=None)
        self.expect(Ended(fails), 7, "rank 1 failed: exit 7")  # the only one there

    def test_two_launches_from_one_folder(self):
        script = ('echo "$MASTER_PORT $DRIVETRAIN_RUN_TOKEN"; touch "$W/$N.$RANK"; '
                  'for n in 1 2; do for rank in 0 1 2; do await $n.$rank; done; done')
        launches = [self.start(script, "--env", "N", env={"N": n}) for n in "12"]
        both = set()
        for ended in map(Ended, launches):
            self.expect(ended, 0)
            told = {tuple(line.split()[-2:]) for line in ended.out.splitlines()}
            self.assertEqual(len(told), 1, ended.text)
            both |= told
        self.assertEqual(len({port for port, _ in both}), 2)
        self.assertEqual(len({token for _, token in both}), 2)
        self.expect_nothing_left()


class HowRunsEnd(HostsTest):
    def fails(self, script, code, *words, options=()):
        """Ranks that do not fail stay until they are ended."""
        ended = self.launch(script, *options)
        self.expect(ended, code, *words)
        self.expect_nothing_left()
        return ended

    def test_the_first_failure_is_named_with_its_host_and_code(self):
        self.fails("all_up; [ $RANK = 2 ] && { echo why it failed >&2; exit 7; }; hold", 7,
                   "rank 2 on host b failed first: exit 7 (numeric failure)", "why it failed")

    def test_a_signal_that_killed(self):
        self.fails("[ $RANK = 1 ] && kill -SEGV $$; hold", 139, "rank 1 on host b failed first: killed by signal 11")

    def test_ranks_that_ignore_sigterm(self):
        self.fails("trap '' TERM; all_up; [ $RANK = 0 ] && exit 8; hold", 8, "rank 0 on host a failed first")

    def test_a_lost_peer_is_not_the_cause(self):
        self.fails('[ $RANK = 2 ] && echo $$ > "$W/pid2"; [ $RANK = 1 ] && { until_it gone "$W/pid2"; exit 4; }; exit 5', 4,
                   "rank 1 on host b failed first: exit 4")

    def test_a_rank_that_hangs_while_others_lose_it(self):
        self.fails("all_up; [ $RANK = 2 ] && hold; exit 5", 5,
                   "rank 2 on host b failed first: did not go on while the others waited for it")

    def test_the_same_error_is_said_once(self):
        ended = self.fails('echo "drivetrain: error: the same" >&2; exit 2', 2)
        self.assertEqual(ended.err.count("drivetrain: error: the same"), 1, ended.text)

    def test_a_stopped_rank(self):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        self.hosts["b"].run("pkill", "-STOP", "-f", STAY)
        self.hosts["a"].run("pkill", "-KILL", "-f", STAY)
        self.expect(Ended(launch), 137, "on host b: rank 1 is stopped by signal 19")
        self.expect_nothing_left()

    def test_signals_reach_every_rank(self):
        for sent, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130)):
            launch = self.start(f"trap 'touch $W/got$RANK; exit {code}' {sent.name[3:]}; "
                                "touch $W/up$RANK; $STAY & wait")
            self.wait_for(*UP)
            self.hosts["a"].run("pkill", f"-{sent.value}", "-f", "drivetrain launch")
            self.expect_code(launch, code)
            self.wait_for("got0", "got1", "got2")
            for file in self.work.glob("[ug]*"):
                file.unlink()
        self.expect_nothing_left()


class OutputThatNobodyReads(HostsTest):
    """stdout of the launch is a pipe that is full."""
    fill = 'touch "$W/up$RANK"; while :; do echo -----------------------------------------------------------; done'

    def unread(self, script):
        launch = self.start(script)
        self.wait_for(*UP)
        looks = []  # asleep at so many: rank 0 waits to write

        def waits_to_write():
            self.assertIsNone(launch.poll())
            pid = (self.work / "pid").read_text().strip()
            looks.append(self.hosts["a"].run("ps", "-o", "stat=", "-p", pid).stdout.startswith("S"))
            return sum(looks) >= 20
        self.assertTrue(eventually(waits_to_write))
        return launch

    def expect_end(self, launch, code, *words):
        self.assertEqual(launch.wait(DEADLINE_S), code)  # its stdout is not read
        said = launch.stderr.read().decode()
        for word in (*words, "drivetrain launch: stdout is not read: what ranks wrote and it did not take is dropped"):
            self.assertIn(word, said)
        self.expect_nothing_left()

    def test_a_signal_ends_the_run_as_ever(self):
        launch = self.unread('stop=0; trap "stop=1" TERM; [ $RANK = 0 ] && echo $$ > "$W/pid"; touch "$W/up$RANK"; '
                             '[ $RANK != 0 ] && { $STAY & wait; exit 143; }; while [ $stop = 0 ]; do '
                             'echo ----------------------------------------------------; done; touch "$W/saved"; exit 143')
        self.hosts["a"].run("pkill", "-TERM", "-f", "drivetrain launch")
        self.expect_end(launch, 143)
        self.assertTrue((self.work / "saved").exists())

    def test_a_lost_rank_is_named(self):
        launch = self.unread('[ $RANK = 2 ] && { echo $$ > "$W/pid2"; touch "$W/up2"; hold; }; '
                             '[ $RANK = 0 ] && echo $$ > "$W/pid"; ' + self.fill)
        self.hosts["b"].run("kill", "-KILL", (self.work / "pid2").read_text().strip())
        self.expect_end(launch, 137, "rank 2 on host b failed first: killed by signal 9")

    def test_a_full_disk_is_told(self):
        launch = self.hosts["a"].start("env", "-C", self.work, "sh", "-c", '"$@" > /dev/full', "sh",
                                       *self.words("--env", "RANK_SCRIPT", "--env", "W"),
                                       env=self.environment("echo a line"), stdout=-1, stderr=-1)
        ended = Ended(launch)
        self.expect(ended, 0, "stdout cannot be written: No space left on device; output is lost")


class HowConnectionsEnd(HostsTest):
    def test_a_launcher_that_is_killed(self):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        self.hosts["a"].run("pkill", "-KILL", "-f", "drivetrain launch")
        launch.wait()
        self.expect_nothing_left()

    def test_a_sigkill_after_a_sigterm_that_ranks_ignore(self):
        """As a scheduler ends a job whose time is over."""
        launch = self.start('trap "" TERM; touch "$W/up$RANK"; idle')
        self.wait_for(*UP)
        self.hosts["a"].run("pkill", "-TERM", "-f", "drivetrain launch")
        let_pass(1)  # Waits: it does not end for that
        self.assertIsNone(launch.poll())
        self.hosts["a"].run("pkill", "-KILL", "-f", "drivetrain launch")
        launch.wait()
        self.expect_nothing_left()

    def test_an_agent_that_is_killed(self):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        self.hosts["b"].run("pkill", "-KILL", "-f", "drivetrain agent")
        self.expect(Ended(launch), 5, "on host b failed first: lost with its host: ssh ended with exit 255: its agent was killed "
                    "there while the connection stood")
        self.expect_nothing_left()

    def test_an_agent_that_is_stopped(self):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        self.hosts["b"].run("pkill", "-STOP", "-o", "-f", "/drivetrain agent")
        self.expect(Ended(launch), 5, "on host b failed first: lost with its host: its agent has said nothing")
        self.expect_nothing_left()

    def test_an_ssh_that_hangs(self):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        self.hosts["a"].run("pkill", "-STOP", "-f", "ssh.* -- b ")
        self.expect(Ended(launch), 5, "rank 1 on host b failed first: lost with its host: its agent has said nothing for 10 s")
        self.expect_nothing_left()

    def link_is_cut(self, cut, mend):
        launch = self.start(SLEEP)
        self.wait_for(*UP)
        cut("b")
        self.addCleanup(mend, "b")
        # Not how soon, but how it was noticed: TCP by itself would take minutes.
        self.expect(Ended(launch), 5, "rank 1 on host b failed first: lost with its host: ssh ended with exit 255: the host, or the "
                    "network to it, does not answer")
        # Nobody can tell b: its agent sees by itself that the network does not answer.
        self.expect_nothing_left()

    def test_a_link_that_is_cut(self):
        self.link_is_cut(self.network.cut, self.network.mend)

    def test_a_network_card_that_is_switched_off(self):
        self.link_is_cut(self.network.switch_off, self.network.switch_on)


class ALostHost(HostsTest):
    def host_is_lost(self, name, rank):
        launch = self.start(SLEEP, on="c")
        self.wait_for(*UP)
        self.end_host(name)
        self.expect(Ended(launch), 5, f"rank {rank} on host {name} failed first: lost with its host")
        self.expect_nothing_left()

    def test_the_one_with_rank_0(self):
        self.host_is_lost("a", 0)


    def test_another_one(self):
        self.host_is_lost("b", 1)
