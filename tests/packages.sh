# The Debian packages that building and testing need, each with its reason. Sourced by tests/run.sh; prints nothing.
# One list: examples/quickstart.sh takes BUILD_PACKAGES from here too.
BUILD_PACKAGES=(
  g++                 # the compiler
  cmake ninja-build   # the build
  liburing-dev        # io_uring engine, linked statically into the plugin
  libxxhash-dev       # block checksums (header-only use)
  libfmt-dev          # messages (header-only use)
  nlohmann-json3-dev  # options, manifests (header-only)
  libprotozero-dev    # handshake messages inside the plugin (header-only)
  protobuf-compiler libprotobuf-dev # handshake messages in hosts; protoc for the descriptor set
  libboost-dev libboost-filesystem-dev # Boost.DLL: hosts open the plugin
  libcli11-dev        # the programs' command lines
)
TEST_PACKAGES=(
  libgtest-dev libgmock-dev libbenchmark-dev # test runner, benchmarks
  clang libclang-rt-14-dev # second compiler, sanitizers, libFuzzer
  clang-format clang-tidy  # style and static analysis
  python3 python3-venv     # torch as an oracle, ctypes host
  xfsprogs e2fsprogs btrfs-progs util-linux # real small filesystems for the fault tests
  fio                 # a second opinion of the drive, for the campaign
)
# install_packages NAME...: only what is missing, as root or through sudo.
install_packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && { echo "  all there"; return 0; }
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  echo "  apt-get install ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
