#!/usr/bin/env bash
# Boots a Debian machine with the package installed and lives through what a box that nobody visits lives through: the
# service starts with the machine and answers, is killed, hangs in a step until the watchdog ends it, and comes back after a
# reboot. Not part of ctest: it needs root, debootstrap and a package source, and a minute or more.
#
#   tests/deploy/boot.sh BUILD [FOLDER]      BUILD: a built build/dev; FOLDER keeps the Debian root for the next time
#
# BOOT_WITH says what the machine is: nspawn, a container with its own init (package systemd-container; the default), kvm, or
# tcg, which does without KVM and is ten times slower (packages qemu-system-x86 linux-image-amd64 e2fsprogs).
set -euo pipefail

build=$(realpath "${1:?usage: tests/deploy/boot.sh BUILD [FOLDER]}")
folder=${2:-}
LIMIT_S=${BOOT_LIMIT_S:-900}
suite=bookworm
device=${BOOT_DEVICE:-pthread} # PoCL, whose compiler runs under all that the unit forbids; "host" is quicker under tcg

fail() { printf 'boot.sh: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root"
with=${BOOT_WITH:-nspawn}
case $with in
nspawn) tools=(systemd-nspawn) ;;
kvm) tools=(qemu-system-x86_64 mkfs.ext4) machine=(-accel kvm -cpu "host,arch-capabilities=off" -smp 2) ;;
tcg) tools=(qemu-system-x86_64 mkfs.ext4) machine=(-accel tcg -cpu max -smp 1) ;;
*) fail "BOOT_WITH is nspawn, kvm or tcg, not $with" ;;
esac
for tool in debootstrap cpack unshare "${tools[@]}"; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
if [ "$with" = kvm ] && [ ! -w /dev/kvm ]; then fail "/dev/kvm is not there or not writable (BOOT_WITH=tcg does without, slowly)"; fi
if [ "$with" != nspawn ]; then
    kernel=${BOOT_KERNEL:-$(find /boot -name 'vmlinuz-*' | sort -V | tail -n 1)}
    initrd=${BOOT_INITRD:-${kernel/vmlinuz/initrd.img}}
    if [ ! -r "$kernel" ] || [ ! -r "$initrd" ]; then fail "no kernel with an initrd in /boot (package linux-image-amd64)"; fi
fi

work=$(mktemp -d)
groups=() # of the container, left empty by it
clean_up() {
    rm -rf "$work"
    for group in "${groups[@]}"; do find "$group" -depth -type d -exec rmdir {} \;; done
}
trap clean_up EXIT
folder=${folder:-$work}
root=$folder/root
mkdir -p "$folder"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" >"$work/cpack.log"
deb=$(find "$work/packages" -maxdepth 1 -name '*.deb')
packages=$(dpkg-deb --field "$deb" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | sort -u | tr '\n' ',')
if [ ! -e "$folder/complete" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase --include="systemd-sysv,dbus,udev,curl,pocl-opencl-icd,$packages" $suite "$root" >"$folder/debootstrap.log" 2>&1 ||
        fail "no Debian root (is a package source reachable? details: $folder/debootstrap.log)"
    touch "$folder/complete"
fi
tree=$work/tree
cp -a "$root" "$tree"
cp "$deb" "$tree/oinfer.deb"
unshare -m sh -c "mount -t proc none '$tree/proc' && chroot '$tree' dpkg -i /oinfer.deb" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "the package was not installed"; }
"$build/oinfer" mkmodel --shape n_layer=2,n_embd=64,n_ff=128,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512 --dtype q8_0 \
    -o "$tree/var/lib/oinfer/models/tiny.gguf" >/dev/null
printf '[model]\nmodel = /var/lib/oinfer/models/tiny.gguf\n[device]\ndevice = %s\n' "$device" >"$tree/etc/oinfer/oinferd.conf"
install -m 755 "$build/tests/oinferd_fake" "$tree/usr/local/bin/oinferd_fake"

# ---- what happens inside ----
cat >"$tree/usr/local/bin/boottest" <<'END'
#!/bin/bash
say() { echo "BOOTTEST $*" >/dev/console; }
die() { say "FAILED: $*"; { systemctl status oinferd; journalctl -b --no-pager -u oinferd | tail -n 40; } >/dev/console 2>&1; systemctl poweroff; exit 1; }
until_() { # SECONDS WHAT COMMAND...
    local limit=$1 what=$2; shift 2
    for ((i = 0; i < limit * 5; i++)); do if "$@"; then return 0; fi; sleep 0.2; done
    die "$what: not within $limit s"
}
answers() { curl -sf -m 20 http://127.0.0.1:8080/v1/completions -d '{"prompt": "x", "max_tokens": 4}' | grep -q '"finish_reason"'; }
active() { systemctl is-active --quiet oinferd; }
restarts() { [ "$(systemctl show -P NRestarts oinferd)" -ge "$1" ]; }
gone() { [ "$(systemctl show -P MainPID oinferd)" != "$1" ]; }
if [ -e /var/lib/boottest ]; then
    until_ 60 "active after the reboot" active
    until_ 60 "a completion after the reboot" answers
    say "PASSED: back after a reboot"
    systemctl poweroff
    exit
fi
until_ 60 "active after the boot" active
until_ 60 "a completion" answers
[ "$(stat -c %U "/proc/$(systemctl show -P MainPID oinferd)")" = oinfer ] || die "runs as another user"
say "started with the machine: $(systemctl show -P StatusText oinferd), on" \
    "$(curl -s http://127.0.0.1:8080/v1/devices | grep -o '"name":"[^"]*"' | head -n 1)"
systemctl reload oinferd || die "reloading"
until_ 20 "active after reloading" active
pid=$(systemctl show -P MainPID oinferd)
kill -9 "$pid"
until_ 30 "another process" gone "$pid"
until_ 30 "counted as a restart" restarts 1
until_ 60 "a completion after kill -9" answers
say "killed and restarted"
mkdir -p /etc/systemd/system/oinferd.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/oinferd_fake --model fake.gguf\nWatchdogSec=5\n' \
    >/etc/systemd/system/oinferd.service.d/stall.conf
systemctl daemon-reload
systemctl restart oinferd || die "the engine that can hang does not start"
until_ 30 "a completion of the engine that can hang" answers
sleep 12
answers || die "not alive while idle"
restarts 1 && die "the watchdog ended an idle daemon"
curl -s -m 60 http://127.0.0.1:8080/v1/completions -d '{"prompt": "\u0007\u0007"}' >/dev/null
until_ 60 "a restart by the watchdog" restarts 1
journalctl -b --no-pager -u oinferd | grep -qi "watchdog timeout" || die "no word of the watchdog in the journal"
until_ 60 "a completion after the watchdog" answers
say "stalled and restarted by the watchdog"
rm -r /etc/systemd/system/oinferd.service.d
systemctl daemon-reload
systemctl stop oinferd
systemctl enable --now oinferd.socket >/dev/null 2>&1 || die "the socket does not start"
until_ 30 "a completion through the socket" answers
pids=$(systemctl show -P MainPID oinferd)
systemctl restart oinferd &
until_ 30 "the old process gone" gone "$pids"
answers || until_ 30 "a completion after a restart behind the socket" answers
wait
say "restarted behind its socket"
touch /var/lib/boottest
systemctl reboot
END
chmod 755 "$tree/usr/local/bin/boottest"
cat >"$tree/etc/systemd/system/boottest.service" <<'END'
[Unit]
After=multi-user.target
[Service]
ExecStart=/usr/local/bin/boottest
[Install]
WantedBy=graphical.target multi-user.target
END
sed -i '/^After=multi-user.target/d' "$tree/etc/systemd/system/boottest.service"
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
ln -sf ../boottest.service "$tree/etc/systemd/system/multi-user.target.wants/boottest.service"
log=${BOOT_LOG:-$work/console}
: >"$log"

# Until the machine has powered itself off; its console goes to $log.
boot_qemu() {
    mkfs.ext4 -q -d "$tree" "$work/disk.img" 2G
    timeout "$LIMIT_S" qemu-system-x86_64 "${machine[@]}" -m 1024 -nographic -nodefaults -serial "file:$log" \
        -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 edd=off panic=-1 no_timer_check" \
        -drive "file=$work/disk.img,format=raw,if=virtio" </dev/null
}

# Its reboot ends the first run (133), and the second is the machine coming back.
boot_nspawn() {
    local options=(-q -D "$tree" --private-network --keep-unit --register=no --boot) status=0
    for hierarchy in systemd unified; do # where there is no systemd that would keep its groups apart from all others
        if [ ! -d /run/systemd/system ] && mkdir "/sys/fs/cgroup/$hierarchy/boot.$$" 2>/dev/null; then
            groups+=("/sys/fs/cgroup/$hierarchy/boot.$$")
        fi
    done
    for _ in 1 2; do
        status=0
        (
            for group in "${groups[@]}"; do echo "$BASHPID" >"$group/cgroup.procs"; done
            exec timeout -k 10 "$LIMIT_S" systemd-nspawn "${options[@]}" </dev/null >>"$log" 2>&1
        ) || status=$?
        if [ "$status" -ne 133 ]; then break; fi
    done
    return "$status"
}

case $with in
nspawn) boot_nspawn ;;
*) boot_qemu ;;
esac || { tail -n 60 "$log"; fail "the machine did not end within $LIMIT_S s"; }
grep -a BOOTTEST "$log" || { tail -n 60 "$log"; fail "the test inside did not run"; }
grep -aq 'BOOTTEST PASSED' "$log" || { tail -n 60 "$log"; fail "not passed"; }
