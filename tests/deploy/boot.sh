#!/usr/bin/env bash
# Boots a Debian machine with the package installed and lives through what a box that nobody visits lives through: the
# service starts with the machine and answers, is killed, hangs in a step until the watchdog ends it, and comes back after a
# reboot. Not part of ctest: it needs root, debootstrap and a package source, qemu with KVM and a kernel in /boot (packages
# debootstrap qemu-system-x86 linux-image-amd64 e2fsprogs), and a few minutes.
#
#   tests/deploy/boot.sh BUILD [FOLDER]      BUILD: a built build/dev; FOLDER keeps the Debian root for the next time
set -euo pipefail

build=$(realpath "${1:?usage: tests/deploy/boot.sh BUILD [FOLDER]}")
folder=${2:-}
LIMIT_S=${BOOT_LIMIT_S:-900}
suite=bookworm

fail() { printf 'boot.sh: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root"
for tool in debootstrap qemu-system-x86_64 mkfs.ext4 cpack; do
    command -v $tool >/dev/null || fail "$tool is not installed"
done
# BOOT_ACCEL=tcg: without KVM, ten times slower, for machines where there is none or a guest does not get on with it.
if [ "${BOOT_ACCEL:-kvm}" = kvm ]; then
    [ -w /dev/kvm ] || fail "/dev/kvm is not there or not writable (BOOT_ACCEL=tcg does without, slowly)"
    machine=(-accel kvm -cpu "host,arch-capabilities=off" -smp 2)
else
    machine=(-accel tcg -cpu max -smp 1)
fi
kernel=${BOOT_KERNEL:-$(find /boot -name 'vmlinuz-*' | sort -V | tail -n 1)}
initrd=${BOOT_INITRD:-${kernel/vmlinuz/initrd.img}}
if [ ! -r "$kernel" ] || [ ! -r "$initrd" ]; then fail "no kernel with an initrd in /boot (package linux-image-amd64)"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work}
root=$folder/root
mkdir -p "$folder"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" >"$work/cpack.log"
deb=$(find "$work/packages" -maxdepth 1 -name '*.deb')
packages=$(dpkg-deb --field "$deb" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' | sort -u | tr '\n' ',')
if [ ! -e "$folder/complete" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase --include="systemd-sysv,dbus,udev,curl,$packages" $suite "$root" >"$folder/debootstrap.log" 2>&1 ||
        fail "no Debian root (is a package source reachable? details: $folder/debootstrap.log)"
    touch "$folder/complete"
fi
tree=$work/tree
cp -a "$root" "$tree"
cp "$deb" "$tree/oinfer.deb"
unshare -m sh -c "mount -t proc none '$tree/proc' && chroot '$tree' dpkg -i /oinfer.deb" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "the package was not installed"; }
"$build/oinfer" mkmodel --shape n_layer=2,n_embd=64,n_ff=128,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512 --dtype q8_0 \
    -o "$tree/var/lib/oinfer/models/tiny.gguf" >/dev/null
printf '[model]\nmodel = /var/lib/oinfer/models/tiny.gguf\n[device]\ndevice = host\n' >"$tree/etc/oinfer/oinferd.conf"
install -m 755 "$build/tests/oinferd_fake" "$tree/usr/local/bin/oinferd_fake"

# ---- what happens inside ----
cat >"$tree/usr/local/bin/boottest" <<'END'
#!/bin/bash
say() { echo "BOOTTEST $*" >/dev/ttyS0; }
die() { say "FAILED: $*"; { systemctl status oinferd; journalctl -b --no-pager -u oinferd | tail -n 40; } >/dev/ttyS0 2>&1; systemctl poweroff; exit 1; }
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
say "started with the machine: $(systemctl show -P StatusText oinferd)"
systemctl reload oinferd || die "reloading"
until_ 20 "active after reloading" active
pid=$(systemctl show -P MainPID oinferd)
kill -9 "$pid"
until_ 30 "another process" gone "$pid"
restarts 1 || die "not counted as a restart"
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
mkfs.ext4 -q -d "$tree" "$work/disk.img" 2G

log=${BOOT_LOG:-$work/console}
timeout "$LIMIT_S" qemu-system-x86_64 "${machine[@]}" -m 1024 -nographic -nodefaults -serial "file:$log" \
    -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 edd=off panic=-1 no_timer_check" \
    -drive "file=$work/disk.img,format=raw,if=virtio" </dev/null || { tail -n 60 "$log"; fail "the machine did not end within $LIMIT_S s"; }
grep -a BOOTTEST "$log" || { tail -n 60 "$log"; fail "the test inside did not run"; }
grep -aq 'BOOTTEST PASSED' "$log" || { tail -n 60 "$log"; fail "not passed"; }
