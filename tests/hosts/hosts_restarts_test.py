"""`launch --max-restarts` over hosts: lost ranks and lost hosts, hosts that take their place, and what cannot be."""

import os
import re
import unittest

from hosts_fixture import Ended, HostsTest, eventually

ALL = os.environ.get("DRIVETRAIN_ALL_LOST_HOSTS")
# `point TAG`: what rank 0 tells of a checkpoint; `finish`: that the run is done, and leaves. $n: which attempt this is. Each
# attempt is a line of $W/attempts.
WORDS = ('point() { [ $RANK = 0 ] && printf "%s %s\\0" "$1" "$W/run" >&$DRIVETRAIN_RESTART_POINTS_FD; }; '
         'finish() { [ $RANK = 0 ] && printf "done\\0" >&$DRIVETRAIN_RESTART_POINTS_FD; exit 0; }; '
         'me=${DRIVETRAIN_RUN_TOKEN:0:16}; if [ $RANK = 0 ]; then mkdir -p "$W/run"; echo "$me" >> "$W/secrets"; fi; '
         'is_known() { n=$(grep -sn "$me" "$W/secrets" | cut -d: -f1) && [ "$n" ]; }; until_it is_known; '
         'echo "$n: $RANK of $WORLD_SIZE on $(hostname) $RANK_COMMAND ${DRIVETRAIN_BEGUN_FOLDER:+begun}" >> "$W/attempts"; ')
PLAN = '[[ $RANK_COMMAND == *--plan* ]] && { echo "{\\"train_batch_size\\": 6}"; exit 0; }; '
ALL_CAME = 'all_came() { [ $(grep -c "^$n: " "$W/attempts") = $WORLD_SIZE ]; }; until_it all_came; '
# told: rank 0 has told of all its checkpoints. After that one rank fails, and the others lose it.
ENDS = ('told() { [ $RANK = 0 ] && touch "$W/told$n"; }; fail() { await told$n; touch "$W/failed$n"; }; '
        'die() { fail; kill -9 $$; }; lose() { await failed$n; exit 5; }; ')


class Launches(HostsTest):
    def start_restarted(self, script, *options, **more):
        given = options if "--max-restarts" in options else ("--max-restarts", "2", *options)
        return self.start(PLAN + WORDS + ALL_CAME + ENDS + script, *given, **more)

    def restarted(self, *words, **more):
        return Ended(self.start_restarted(*words, **more))

    def attempts(self):
        """For each attempt the host of each rank, and the words of rank 0."""
        attempts = {}
        for line in sorted((self.work / "attempts").read_text().splitlines()):
            number, rank, world, host, words = re.match(r"(\d+): (\d+) of (\d+) on (\w+) (.*)", line).groups()
            hosts, _ = attempts.setdefault(int(number), ({}, words))
            hosts[int(rank)] = host
            self.assertLess(int(rank), int(world))
        return [("".join(hosts[rank] for rank in sorted(hosts)), words) for _, (hosts, words) in sorted(attempts.items())]


class Restarts(Launches):
    def test_a_lost_rank(self):
        ended = self.restarted('[ $n = 1 ] && point ""; [ $n = 2 ] && { point ""; point step-2; }; told; '
                               '[ $n = 3 ] && exit 0; [ $RANK = 2 ] && die; lose', "--enable_each_rank_log", "logs")
        self.expect(ended, 0, "rank 2 on host b failed first: killed by signal 9", "from the beginning, for there is no",
                    "restart 1 of 2 in 0.2 s, from checkpoint step-2")
        attempts = self.attempts()
        self.assertEqual([hosts for hosts, _ in attempts], ["abb"] * 3)
        self.assertEqual([re.findall("auto|begun", words) for _, words in attempts], [[], ["auto", "begun"], ["auto"]])
        self.assertEqual(len(set((self.work / "secrets").read_text().split())), 3)
        self.assertEqual(len(list((self.work / "logs").iterdir())), 3)
        self.expect_nothing_left()

    def test_what_is_not_started_again(self):
        self.expect(self.restarted('point ""; told; [ $RANK = 1 ] && { fail; exit 7; }; lose'), 7,
                    "no restart: rank 1 on host b: exit 7 (numeric failure)")
        self.assertEqual(len(self.attempts()), 1)
        for name in ("secrets", "attempts", "told1", "failed1"):
            (self.work / name).unlink()
        self.expect(self.restarted('point ""; told; [ $RANK = 2 ] && die; lose', "--max-restarts", "1"), 137,
                    "gives up after 1 restart without a newer checkpoint")
        self.expect_nothing_left()

    def test_whole_hosts_only(self):
        """DeepSpeed's options: of a host without a rank none is used."""
        ended = self.restarted('point step-1; told; [ $WORLD_SIZE = 1 ] && finish; [ $RANK = 2 ] && die; lose',
                               "--elastic_training", "--min_elastic_nodes", "1", "--master_addr", "10.77.0.1")
        self.expect(ended, 0, "rank 2 on host b failed twice in a row: goes on with 1 rank instead of 3, on 1 host")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["abb", "abb", "a"])
        self.expect_nothing_left()

    def test_a_spare_that_lacks_the_run(self):
        self.mount("c", "-t", "tmpfs", "tmpfs", self.work)
        ended = self.restarted('point step-1; told; [ $RANK = 1 ] && die; lose', "--spare", "gone,c",
                               ssh_config=self.gone())
        self.expect(ended, 137, "rank 1 on host b failed twice in a row: host gone takes the place of b",
                    "host gone: it cannot be reached by ssh", "host c takes the place of gone",
                    f"host c: the folder of the run, with its checkpoints, is not there: {self.work}/run",
                    "a file system that all hosts share; no other host stands by; the first failure was rank 1 on host b")
        self.expect_nothing_left()

    def test_a_host_that_is_lost_before_the_first_rank_starts(self):
        self.hostfile("a slots=1\ngone slots=2\n")
        ended = self.restarted('[ $n = 1 ] && finish; lose', "--spare", "c:2", ssh_config=self.gone())
        self.expect(ended, 0, "host gone: it cannot be reached by ssh", "host c takes the place of gone")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["acc"])
        self.expect_nothing_left()

    @unittest.skipUnless(ALL, "DRIVETRAIN_ALL_LOST_HOSTS=1 is not set")
    def test_a_host_that_comes_back(self):
        launch = self.start_restarted('point ""; point step-1; touch "$W/up$n.$RANK"; [ $n = 1 ] && hold; finish')
        self.wait_for("up1.0", "up1.1", "up1.2")
        self.network.cut("b")
        self.assertTrue(eventually(lambda: not self.hosts["b"].processes()))
        self.network.mend("b")
        self.expect(Ended(launch), 0, "no host stands by for 2 ranks of b, which is tried again", "from checkpoint step-1")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["abb", "abb"])
        self.expect_nothing_left()

    def gone(self):
        (self.folder / "config_gone").write_text("Host gone\n  HostName 10.77.0.99\n" +
                                                 (self.folder / "ssh_config").read_text())
        return "config_gone"

    def test_spares_that_cannot_be(self):
        for options, words in ((("--spare", "c"), "--spare goes with --max-restarts"),
                               (("--spare", "b", "--max-restarts", "1"), "the host b is one of the run already"),
                               (("--spare", "c:x", "--max-restarts", "1"), "gives no number of ranks"),
                               (("--spare", "-c", "--max-restarts", "1"), "is no host name"),
                               (("--elastic", "1:2", "--max-restarts", "1"), "the hosts together have 3 ranks, which is not within")):
            self.expect(self.launch("exit 0", *options), 2, words)


class ALostHost(Launches):
    def lose(self, name, *options, on):
        launch = self.start_restarted('[ $n = 1 ] && { point ""; point step-1; touch "$W/up1.$RANK"; hold; }; exit 0',
                                      *options, on=on)
        self.wait_for("up1.0", "up1.1", "up1.2")
        self.end_host(name)
        return Ended(launch)

    def test_another_takes_its_place(self):
        self.expect(self.lose("b", "--spare", "c:2", on="a"), 0, "rank 1 on host b failed first: lost with its host",
                    "host c takes the place of b", "restart 1 of 2 in 6 s, from checkpoint step-1")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["abb", "acc"])
        self.expect_nothing_left()


@unittest.skipUnless(ALL, "DRIVETRAIN_ALL_LOST_HOSTS=1 is not set")
class TheLostHostOfRank0(ALostHost):
    options = ("--elastic", "1:3")

    def test_another_takes_its_place(self):
        self.expect(self.lose("a", *self.options, on="c"), 0, "rank 0 on host a failed first: lost with its host",
                    "host a is lost: goes on with 2 ranks instead of 3, on 1 host")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["abb", "bb"])
        self.expect_nothing_left()


class TheLostHostOfRank0ByWholeHosts(TheLostHostOfRank0):
    options = ("--elastic_training", "--master_addr", "10.77.0.1")  # which no host has any more


@unittest.skipUnless(ALL, "DRIVETRAIN_ALL_LOST_HOSTS=1 is not set")
class ALostHostAndTheRestOfTheHostfile(ALostHost):
    def test_another_takes_its_place(self):
        self.hostfile("a slots=1\nb slots=2\nc slots=2\n")
        ended = self.lose("b", "--elastic_training", "--num_nodes", "2", "--max_elastic_nodes", "3", on="a")
        self.expect(ended, 0, "host c takes the place of b")
        self.assertEqual([hosts for hosts, _ in self.attempts()], ["abb", "acc"])
