# shellcheck shell=bash
# Configure and build a preset. Sourced after common.sh.

# LibTorch's headers cost a compiler up to 1.5 GB: too many at once and the kernel ends one.
build_jobs() {
  local memory cores
  memory=$(awk '/^MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  cores=$(nproc)
  [ "$memory" -ge 1 ] || memory=1
  [ "$cores" -le "$memory" ] && echo "$cores" || echo "$memory"
}

# configure PRESET: where the build folder is new or of another LibTorch. Ninja finds out by itself what changed later, CMake
# files included.
configure() {
  local folder=$REPO/build/$1 cached
  cached=$(sed -n 's/^DRIVETRAIN_TORCH:[A-Z]*=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
  if [ ! -f "$folder/build.ninja" ] || [ "$cached" != "$TORCH" ]; then
    need_space 2000 "$REPO/build" "the build"
    (cd "$REPO" && cmake --preset "$1" -DDRIVETRAIN_TORCH="$TORCH")
  fi
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  configure "$preset"
  ninja -C "$REPO/build/$preset" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(build_jobs)}" "$@"
}
