# shellcheck shell=bash disable=SC2034
# Shared by tools/quickstart, tools/check and tools/setup/deps. Sourced; sets -euo pipefail.
#
# Gives REPO (this checkout), DEPS (the folder that clean clones share), TORCH (the torch package folder in use) and the
# helpers below. Nothing here writes anything.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DEPS=${DRIVETRAIN_DEPS:-${HOME:?HOME is not set; set it, or DRIVETRAIN_DEPS}/.cache/drivetrain}
TORCH_VERSION=2.11.0
TORCH=$(realpath -ms "${DRIVETRAIN_TORCH:-$DEPS/torch-$TORCH_VERSION-run/torch}")

say() { printf '%s\n' "-- $*"; }

# die MESSAGE...: each argument is a line; exit status 1.
die() {
  printf '%s\n' "error: $1" >&2
  shift
  [ $# -eq 0 ] || printf '   %s\n' "$@" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# torch_version DIR: the version of a torch package folder, or "another version" where no header tells.
torch_version() {
  local header=$1/include/torch/headeronly/version.h
  if [ -r "$header" ]; then
    sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$header" | paste -sd.
  else
    echo "another version"
  fi
}

# existing_parent DIR: the nearest folder above DIR, or DIR, that is there.
existing_parent() {
  local folder=$1
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  echo "$folder"
}

# need_space MB DIR PURPOSE: stops where the disk below DIR has less than that free.
need_space() {
  local free
  free=$(df -Pm "$(existing_parent "$2")" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$1" ] || die "not enough disk space for $3" "wanted  $1 MB free at $2" "found   $free MB" \
    "Free some, or choose another disk: DRIVETRAIN_DEPS=DIR moves the downloaded libraries."
}

# find_python: sets PYTHON to a Python 3 that has pip, if there is one.
find_python() {
  local candidate
  PYTHON=
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10; do
    if have "$candidate" && "$candidate" -m pip --version >/dev/null 2>&1; then
      PYTHON=$candidate
      return 0
    fi
  done
  return 1
}
