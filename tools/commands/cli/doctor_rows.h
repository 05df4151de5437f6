// The options of `drivetrain doctor`.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kDoctor[] = {
    file("--plugin", "FILE", "look at this plugin: fingerprint, headers, libraries, symbols, whether it opens"),
    file("--config", "FILE", "plan this config, without a GPU, and say whether this machine has what it needs"),
    whole("--ranks", "N",
          "start this many ranks, with --hostfile on each host, which compare the values of every collective", 1, 4096)
        .counts("ranks"),
    text("--communicator", "NAME",
         "with --ranks: the communicator plugin; default: the device's own, which may be for one host alone")
        .only_with("--ranks"),
    text("--set", "KEY=VALUE", "with --config: change one key of it").only_with("--config").many(),
    file("--hostfile", "FILE", "look at all hosts of this hostfile over ssh, and at the network between them")
        .also("-H"),
    text("--include", "HOSTS", "with --hostfile: only these hosts, such as a@b")
        .also("-i")
        .only_with("--hostfile")
        .not_with("--exclude"),
    text("--exclude", "HOSTS", "with --hostfile: all but these hosts").also("-e").only_with("--hostfile"),
    whole("--num_nodes", "K", "with --hostfile: its first K hosts", 1, 4096).counts("hosts").only_with("--hostfile"),
    text("--launcher_args", "WORDS", "with --hostfile: options for ssh, quoted as one word").only_with("--hostfile"),
    whole("--ssh_port", "PORT", "with --hostfile: the port of ssh on every host; default: as its configuration says", 1,
          65535)
        .only_with("--hostfile"),
    kJson,
    kPluginPath};

}  // namespace drivetrain::cli::rows
