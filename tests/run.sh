#!/usr/bin/env bash
# Every test in every build: installs what the tests need, builds the presets below, runs their tests as one ctest whose
# summary is the last thing printed.
#
#   tests/run.sh [ctest arguments]        e.g. tests/run.sh -L unit, tests/run.sh -R '^asan/'
#
# gcc/ everything; clang/ unit and fuzz tests; asan/ all but style, deployment and benchmarks, some of them with fewer cases,
# under AddressSanitizer and UBSan; tsan/ what has threads, and HTTP but for failing devices, under ThreadSanitizer.
# OINFER_BUILDS="dev asan" builds and runs only these presets. Kernels are compiled once for all of them.
set -euo pipefail
# shellcheck source=deploy/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../deploy/lib.sh"

TEST_NEEDS="$BUILD_NEEDS
clang command clang
clang-format command clang-format
ccache command ccache
libcmocka-dev library cmocka
python3-venv module ensurepip
shellcheck command shellcheck
systemd command systemd-analyze
haproxy file /usr/sbin/haproxy
dpkg-dev command dpkg-shlibdeps
man-db command man
openssl command openssl
git command git"

# Two more OpenCL implementations to test on, and checkers of packages and of monitoring files: not every distribution has
# them, and tests that need one say that it is missing.
TEST_EXTRAS="
mesa-opencl-icd file /etc/OpenCL/vendors/rusticl.icd
oclgrind command oclgrind
lintian command lintian
prometheus command promtool"

# make_venv: the Python packages of tests/requirements.txt, installed again when the list changes.
make_venv() {
    local venv=$ROOT/.cache/venv list=$ROOT/tests/requirements.txt log=$STATE/venv.log
    if cmp -s "$list" "$venv/requirements.txt"; then return 0; fi
    say "Making the Python environment of the tests"
    mkdir -p "$ROOT/.cache" "$STATE"
    { python3 -m venv --clear "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$list"; } >"$log" 2>&1 ||
        fail "the Python packages could not be installed (is a package source reachable?): $(tail -n 1 "$log")"
    cp "$list" "$venv/requirements.txt"
}

install_packages "$TEST_NEEDS"
install_extras "$TEST_EXTRAS"
make_venv
fetch_smollm2
export OINFER_SMOLLM2=$SMOLLM2

# Objects of another checkout of the same tree are as good.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$ROOT} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

builds=()
for preset in ${OINFER_BUILDS:-dev clang asan tsan}; do
    say "Building preset $preset"
    build_preset "$preset" -DOINFER_PYTHON="$ROOT/.cache/venv/bin/python3" -DOINFER_TEST_CACHE="$ROOT/build/kernels"
    case $preset in
    dev) builds+=("gcc=$ROOT/build/dev") ;;
    clang) builds+=("clang=$ROOT/build/clang:unit,fuzz") ;;
    asan) builds+=("asan=$ROOT/build/asan:unit,drivers,ops,golden,fault,http,fuzz") ;;
    tsan) builds+=("tsan=$ROOT/build/tsan:threads,http") ;;
    *) fail "OINFER_BUILDS names $preset; known: dev clang asan tsan" ;;
    esac
done
python3 "$ROOT/tests/matrix.py" "$ROOT/build/matrix" "${builds[@]}"
# More tests than processors: those of HTTP mostly wait.
exec ctest --test-dir "$ROOT/build/matrix" --parallel "$(($(nproc) * 3 / 2))" --output-on-failure "$@"
