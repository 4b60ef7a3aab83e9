#!/bin/sh
# Waits before a failed oinferd is started again: nothing after the first failure, then 1, 2, 4, ... at most 30 seconds
# as long as failures follow each other within ten minutes. ExecStopPost= of oinferd.service, which sets SERVICE_RESULT
# and RUNTIME_DIRECTORY; the count lives there and is gone after a stop that was asked for.
set -eu

LONGEST_S=30
FORGET_MIN=10

count=${RUNTIME_DIRECTORY:?is set by the service manager}/failures
if [ "${SERVICE_RESULT:?is set by the service manager}" = success ]; then
    rm -f "$count"
    exit 0
fi
n=0
if [ -n "$(find "$count" -mmin "-$FORGET_MIN" 2>/dev/null)" ]; then n=$(cat "$count"); fi
case $n in '' | *[!0-9]* | ??????*) n=0 ;; esac # not ours: begin again
echo $((n + 1)) >"$count"
delay=0
if [ "$n" -gt 0 ]; then
    delay=1
    while [ "$n" -gt 1 ] && [ "$delay" -lt "$LONGEST_S" ]; do
        delay=$((delay * 2))
        n=$((n - 1))
    done
fi
if [ "$delay" -gt "$LONGEST_S" ]; then delay=$LONGEST_S; fi
if [ "$delay" -gt 0 ]; then
    echo "starting again in $delay s (failed: $SERVICE_RESULT)"
    sleep "$delay"
fi
