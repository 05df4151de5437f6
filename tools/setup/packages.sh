# shellcheck shell=bash
# Debian and Ubuntu packages: only the missing ones, through apt-get. Sourced after common.sh.

# What a build needs. python3-pip is asked for only where no Python on the PATH has pip.
build_packages() {
  echo g++ cmake ninja-build ccache binutils ca-certificates python3
  echo libboost-dev rapidjson-dev libtbb-dev libspdlog-dev libssl-dev libcli11-dev libgtest-dev libxxhash-dev
  echo zlib1g-dev libzstd-dev # inputs of `data prepare` may be packed
  echo libutf8proc-dev # tokenizer/bpe
  echo gnuplot-nox # charts of `drivetrain study`
  echo libmpich-dev mpich # communicator/mpi; where both are absent, a build leaves it out and says so
  echo python3-jsonschema # what `config schema` prints is tested with it
  echo libhwloc-dev pkg-config # launch --bind_cores_to_rank
  echo openssh-client openssh-server iproute2 procps # hosts of tests are namespaces with an sshd each
  find_python || echo python3-pip
}

# An `mpicc` may be there without its mpi.h: Debian splits the two.
mpi_with_headers() {
  have mpicc && echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - 2>/dev/null
}

# What tests need beside that. Open MPI is tested where it is (mpirun.openmpi): its package would become `mpirun`.
test_packages() {
  echo slurm-wlm munge # hosts of tests have a slurmd each
}

# A tool that came another way (a newer cmake, say) is as good as the package.
have_package() {
  case $1 in
    cmake | ccache | python3) have "$1" && return 0 ;;
    ninja-build) have ninja && return 0 ;;
    libmpich-dev) mpi_with_headers && return 0 ;; # another MPI will do
    python3-jsonschema) python3 -c "import jsonschema" 2>/dev/null && return 0 ;;
    mpich) have mpirun && return 0 ;;
    openssh-client) have ssh && return 0 ;;
    openssh-server) [ -x /usr/sbin/sshd ] && return 0 ;;
    iproute2) have ip && return 0 ;;
    gnuplot-nox) have gnuplot && return 0 ;;
    pkg-config) have pkg-config && return 0 ;;
    procps) have pkill && return 0 ;;
    slurm-wlm) have srun && { [ -x /usr/sbin/slurmd ] || have slurmd; } && return 0 ;;
    munge) [ -x /usr/sbin/munged ] && return 0 ;;
  esac
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# `tests`: those of the tests, too.
install_packages() {
  local package wanted missing=() as_root=()
  wanted=$(build_packages)
  [ "${1:-}" != tests ] || wanted+=" $(test_packages)"
  if ! have apt-get || ! have dpkg-query; then
    say "no apt-get here: the build needs what Debian calls $(echo $wanted)"
    return 0
  fi
  for package in $wanted; do
    have_package "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" -ne 0 ]; then
    if ! have sudo || ! { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      die "packages are missing, and this user cannot install them. Have this run once, then come back:" \
        "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  need_space 1200 /usr "the packages ${missing[*]}"
  "${as_root[@]}" apt-get update -q ||
    say "apt-get update did not reach every archive; going on with the package lists that are here"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}" \
      "Without a network, install them from your Debian or Ubuntu medium, then run this again."
}
