#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 machine to a completion with timings: installs what is missing, builds, fetches a
# small model, starts oinferd on 127.0.0.1, asks it for a completion. Run it again at any time; it keeps what is there.
#
#   deploy/quickstart.sh [--model FILE.gguf] [--port N] [--device NAME]
#   deploy/quickstart.sh --stop [--port N]
#
# Pid and log files are in ${XDG_STATE_HOME:-~/.local/state}/oinfer, the model in ${XDG_CACHE_HOME:-~/.cache}/oinfer.
set -euo pipefail
# shellcheck source=deploy/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

START_LIMIT_S=600
STOP_LIMIT_S=60

usage() { sed -n '5,6s/^# *//p' "$0"; }

# running_pid: pid of the daemon that this script started on $port, if it still runs.
running_pid() {
    local pid
    [ -f "$pid_file" ] || return 1
    pid=$(cat "$pid_file")
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = oinferd ] || return 1
    printf '%s' "$pid"
}

# stop_daemon: ends it with SIGTERM (it drains), with SIGKILL if it does not end.
stop_daemon() {
    local pid i
    pid=$(running_pid) || return 1
    kill "$pid"
    for ((i = 0; i < STOP_LIMIT_S * 10; i++)); do
        if ! running_pid >/dev/null; then break; fi
        sleep 0.1
    done
    if running_pid >/dev/null; then kill -KILL "$pid"; fi
    rm -f "$pid_file"
}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# last_error: the daemon's last error in the log, else its last line.
last_error() {
    local line
    line=$(grep -a '^error' "$log_file" | tail -n 1) || true
    line=${line:-$(tail -n 1 "$log_file")}
    printf '%s' "${line#oinferd: }"
}

http() { curl --silent --show-error --noproxy '*' --max-time 300 "$@"; }

# start_daemon: starts it and waits until /health says ok, with a progress line.
start_daemon() {
    local command=("$oinferd" --host 127.0.0.1 --port "$port" --model "$model") code health started=$SECONDS
    if [ -n "$device" ]; then command+=(--device "$device"); fi
    setsid "${command[@]}" >"$log_file" 2>&1 </dev/null &
    pid=$!
    printf '%s\n' "$pid" >"$pid_file"
    printf '%s\n' "$arguments" >"$arguments_file"
    while :; do
        code=$(http --output "$health_file" --write-out '%{http_code}' "$url/health" 2>/dev/null) || code=000
        if [ "$code" = 200 ]; then break; fi
        if ! kill -0 "$pid" 2>/dev/null; then
            rm -f "$pid_file"
            fail "oinferd did not start: $(last_error) (log: $log_file)"
        fi
        if ((SECONDS - started > START_LIMIT_S)); then
            stop_daemon
            fail "oinferd was not ready after $START_LIMIT_S s (log: $log_file)"
        fi
        health=
        if [ "$code" = 503 ]; then health=$(tr -d '\n' <"$health_file" | cut -c 1-90); fi
        if [ -t 1 ]; then
            printf '\r\033[KStarting oinferd: %d s %s' $((SECONDS - started)) "$health"
        fi
        sleep 0.2
    done
    if [ -t 1 ]; then printf '\r\033[K'; fi
    say "oinferd is ready after $((SECONDS - started)) s: pid $pid, log $log_file"
    grep -a '^warn' "$log_file" || true
}

model=
port=8080
device=
stop=
while [ $# -gt 0 ]; do
    case $1 in
    --model | --port | --device)
        [ $# -ge 2 ] || fail "$1 needs a value"
        printf -v "${1#--}" '%s' "$2"
        shift
        ;;
    --stop) stop=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail "unknown argument $1 (--help lists them)" ;;
    esac
    shift
done
if [[ ! $port =~ ^[0-9]{1,5}$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    fail "--port $port: not a port (1 to 65535)"
fi

mkdir -p "$STATE" 2>/dev/null || fail "$STATE cannot be made; set XDG_STATE_HOME to a folder of yours"
url=http://127.0.0.1:$port
pid_file=$STATE/oinferd-$port.pid
log_file=$STATE/oinferd-$port.log
arguments_file=$STATE/oinferd-$port.arguments
health_file=$STATE/oinferd-$port.health
oinferd=$ROOT/build/release/oinferd

if [ -n "$stop" ]; then
    if stop_daemon; then
        say "Stopped the oinferd on port $port."
    else
        say "No oinferd that this script started is running on port $port."
    fi
    exit 0
fi

if [ -n "$model" ]; then
    [ -f "$model" ] || fail "--model $model: no such file"
    [ "$(head -c 4 "$model" | tr -d '\0')" = GGUF ] || fail "--model $model: not a GGUF file"
    model=$(realpath "$model")
fi
if ! running_pid >/dev/null && port_taken; then
    fail "port $port of 127.0.0.1 is taken by another program; choose one with --port N"
fi

install_packages "$BUILD_NEEDS"
say "Building release into build/release"
build_preset release
if [ -z "$model" ]; then
    fetch_smollm2
    model=$SMOLLM2
fi
if [ "$device" != host ]; then
    devices=$("$ROOT/build/release/oinfer" devices --json 2>"$STATE/devices.log") ||
        fail "the devices could not be listed: $(tail -n 1 "$STATE/devices.log")"
    grep '"kind"' <<<"$devices" | grep -v '"host"' >/dev/null ||
        fail "no OpenCL device was found (is pocl-opencl-icd installed? is OCL_ICD_VENDORS set?); --device host works without one, slowly"
fi

arguments="$model $device $(stat -c %Y "$oinferd")"
if pid=$(running_pid) && [ "$(cat "$arguments_file" 2>/dev/null)" = "$arguments" ]; then
    say "oinferd is already running: pid $pid, log $log_file"
else
    stop_daemon || true
    start_daemon
fi

request='{"prompt": "The capital of France is", "max_tokens": 24, "temperature": 0, "timings": "kernels"}'
say "curl $url/v1/completions -d '$request'"
reply=$(http --fail-with-body "$url/v1/completions" -H 'Content-Type: application/json' -d "$request") ||
    fail "the completion failed: ${reply:-no answer} (log: $log_file)"
# Indented, but innermost objects (a kernel's row) on one line.
python3 -c 'import json, re, sys
text = json.dumps(json.load(sys.stdin), indent=2, ensure_ascii=False)
print(re.sub(r"\{[^{}\[\]]*\}", lambda row: re.sub(r"\n\s*", " ", row[0]), text))' <<<"$reply"

cat <<END

Go on:    curl -N $url/v1/completions -H 'Content-Type: application/json' \\
               -d '{"prompt": "Once upon a time", "max_tokens": 100, "stream": true}'
Look at:  curl $url/health    (or /v1/models /v1/devices /props /slots /metrics)
Log:      $log_file
Stop:     $0 --stop$([ "$port" = 8080 ] || printf ' --port %s' "$port")
END
