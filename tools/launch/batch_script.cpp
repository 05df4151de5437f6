#include "launch/batch_script.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/printable.h"
#include "launch/command_output.h"
#include "launch/hosts_request.h"
#include "launch/meeting.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

// A value that a #SBATCH line takes as one word: sbatch knows quotes, and no backslashes.
std::string sbatch_value(const std::string& text) {
  const std::string line = printable(text.substr(0, text.find('\n')));
  if (shell_quoted(line) == line) return line;
  const char quote = line.find('"') == std::string::npos ? '"' : '\'';
  return quote + line + quote;
}

std::string job_name(const cli::Arguments& arguments) {
  const std::string config = arguments.plain().empty() ? "" : arguments.plain().front();
  const std::string stem = std::filesystem::path(config).stem();
  return stem.empty() ? "drivetrain" : stem;
}

std::string options_of_job(const cli::Arguments& given) {
  const int64_t nodes = given.has("--num_nodes") ? given.whole("--num_nodes") : 1;
  std::string text = "#SBATCH --job-name=" + sbatch_value(job_name(given)) +
                     "\n#SBATCH --nodes=" + std::to_string(nodes) +
                     "\n#SBATCH --ntasks-per-node=" + std::to_string(given.whole("-n")) +
                     "\n#SBATCH --output=%x-%j.log\n#SBATCH --open-mode=append\n";
  if (given.has("--account")) text += "#SBATCH --account=" + sbatch_value(given.text("--account")) + "\n";
  if (given.has("--comment")) text += "#SBATCH --comment=" + sbatch_value(given.text("--comment")) + "\n";
  return text +
         "# A job that ends with exit 75 is put into the queue again, by the last lines.\n"
         "#SBATCH --requeue\n"
         "# Two minutes before the time limit the run is told to save a checkpoint and to end.\n"
         "#SBATCH --signal=B:USR1@120\n"
         "# What a cluster may want; one '#' less makes a line count.\n"
         "##SBATCH --partition=NAME\n"
         "##SBATCH --time=1-00:00:00\n"
         "##SBATCH --cpus-per-task=8\n"
         "##SBATCH --gpus-per-node=" +
         std::to_string(given.whole("-n")) + "\n";
}

}  // namespace

std::string batch_script(const cli::Arguments& given, const std::string& program, const std::string& folder) {
  std::vector<std::string> words{program, "launch", "--launcher", "slurm"};
  for (const std::string& word :
       given.as_words({"--launcher", "--submit", "--dry-run", "--account", "--comment", "-n", "--num_nodes"}))
    words.push_back(word);
  return "#!/bin/bash\n# Written by `drivetrain launch --submit`. Edit it as you like; `sbatch FILE` submits it.\n" +
         options_of_job(given) + "\ncd " + shell_quoted(folder) +
         " || exit 8\n\n"
         "# SLURM sends SIGTERM to every process of the job, so that it reaches the run by itself; this script stays "
         "for\n"
         "# what comes after. SIGUSR1 reaches this script alone.\n"
         "trap : TERM\n" +
         shell_line(words) +
         " &\n"
         "run=$!\n"
         "trap 'kill -USR1 $run' USR1\n"
         "while kill -0 $run 2> /dev/null; do wait $run; done  # a signal ends a wait, not the run\n"
         "wait $run\n"
         "code=$?\n\n"
         "# 75: the run was told to end and has saved a checkpoint. The same command goes on from it, unless scancel "
         "has ended it.\n"
         "if [ $code = 75 ] && ! scontrol show job \"$SLURM_JOB_ID\" | grep -q JobState=COMPLETING; then\n"
         "  echo \"job $SLURM_JOB_ID saved a checkpoint and is put into the queue again to go on from it\"\n"
         "  scontrol requeue \"$SLURM_JOB_ID\"\n"
         "fi\n"
         "exit $code\n";
}

std::string submit(const std::string& script, const std::string& file) {
  const Descriptor to(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
  if (to.get() < 0 && errno == EEXIST)
    throw HostError(2, "the file " + file + " is there already: `sbatch " + file +
                           "` submits it as it is; give --submit another name for a new one");
  if (to.get() < 0)
    throw HostError(8,
                    "cannot write " + file + ": " + std::strerror(errno) + "; give --submit a file that can be made");
  write_text(to.get(), script);
  const CommandOutput said = output_of({"sbatch", file});
  if (said.code != 0)
    throw HostError(said.code == 127 ? 2 : 5, "sbatch " + file + " ended with exit " + std::to_string(said.code) +
                                                  ": " + printable(said.text) + "; the script stays there");
  return said.text;
}

}  // namespace drivetrain::program
