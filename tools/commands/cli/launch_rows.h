// The options of `drivetrain launch`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kLaunch[] = {
    whole("-n", "N", "ranks on each host; with --hostfile the default is all slots", 1, 4096)
        .by_default("1")
        .counts("ranks")
        .also("--num_gpus"),
    one_of("--bench", "NAME", "step|collectives|context|checkpoint|hardware",
           "time this benchmark on the ranks instead of training")
        .not_with("--plan"),
    whole("--max-restarts", "N",
          "after a lost rank, start all ranks again from the newest checkpoint; give up after N restarts in a row "
          "without a newer one",
          0, 1'000'000)
        .by_default("0")
        .not_with("--bench"),
    text("--elastic", "MIN:MAX",
         "with --max-restarts: go on with fewer ranks, MIN at least, once a rank failed twice in a row; MAX is what "
         "the host has room for, and -n if that is not given")
        .not_with("--bench"),
    flag("--elastic_training",
         "with --hostfile: after a lost host go on with the hosts that are left; restarts without a newer checkpoint "
         "are 100 unless --max-restarts says otherwise")
        .not_with("--elastic"),
    whole("--min_elastic_nodes", "K", "with --elastic_training: as few hosts as this; default: 1", 1, 4096)
        .counts("hosts")
        .only_with("--elastic_training"),
    whole("--max_elastic_nodes", "K",
          "with --elastic_training: hosts that --num_nodes leaves out of the hostfile stand by for lost ones, up to K "
          "hosts in all; default: none",
          1, 4096)
        .counts("hosts")
        .only_with("--elastic_training"),
    text("--spare", "HOST[:K],...",
         "with --max-restarts and --hostfile: hosts that take the place of lost ones, with room for K ranks each"),
    file("--hostfile", "FILE", "the hosts of the run, a line \"NAME slots=K\" each; ranks are started over ssh")
        .also("-H"),
    text("--include", "HOSTS", "use only these hosts and slots of the hostfile, such as a@b:0,2")
        .also("-i")
        .not_with("--exclude"),
    text("--exclude", "HOSTS", "use all but these hosts and slots of the hostfile").also("-e"),
    whole("--num_nodes", "K", "use the first K hosts of the hostfile", 1, 4096).counts("hosts"),
    text("--master_addr", "ADDRESS",
         "where rank 0 listens; default: the address of its host that the others reach by route"),
    whole("--master_port", "PORT", "the port there; default: a free one", 1, 65535),
    text("--launcher", "ssh|slurm|openmpi|mpich|none",
         "what starts the ranks of other hosts; none: a launch on each of them, with --node_rank; default: slurm in a "
         "job of SLURM, else ssh")
        .by_default("ssh"),
    text("--launcher_args", "WORDS", "options for ssh, srun or mpirun, quoted as one word"),
    file("--submit", "FILE",
         "write this batch script for SLURM, with --num_nodes and -n, and submit it; with --dry-run: print it")
        .not_with("--bench"),
    text("--account", "NAME", "the account of SLURM that pays for the job"),
    text("--comment", "TEXT", "a comment on the job, for SLURM"),
    whole("--ssh_port", "PORT", "the port of ssh on every host; default: as its configuration says", 1, 65535),
    flag("--no_ssh", "start the ranks of this host only; the same command runs on the other hosts"),
    whole("--node_rank", "I", "with --no_ssh: which host of the run this is, from 0", 0, 4095),
    flag("--force_multi", "go over ssh even if this host is the only one"),
    text("--copy", "DIR",
         "bring this install folder and the config to DIR on every host that does not have them there"),
    text("--env", "KEY[=VALUE]", "give all ranks this variable, with its value here if none is given; may be repeated")
        .many(),
    text("--enable_each_rank_log", "DIR",
         "write what rank k prints into DIR/<time of the start>_rank<k>.log on its host, and show only errors"),
    flag("--save_pid", "while it runs, keep the launcher's pid in /tmp/<pid>.deepspeed"),
    flag("--bind_cores_to_rank", "give each rank cores of its own, as many threads, and the memory beside them"),
    text("--bind_core_list", "CORES",
         "with --bind_cores_to_rank: which cores the ranks of a host share, such as 0,2-4; default: all")
        .only_with("--bind_cores_to_rank"),
    flag("--dry-run", "print every command that would run, and where, and stop")};

}  // namespace drivetrain::cli::rows
