"""The packages that cpack makes: their content, lintian's opinion, and a life on a Debian system from install to purge.

The life is led on an overlay of this machine's own root, thrown away afterwards; it needs root and a system that has
systemd's tools and the package's libraries.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OINFER_BUILD", ROOT / "build/dev"))
FILES = """etc/oinfer/oinferd.conf usr/bin/oinferd usr/bin/oinfer usr/lib/systemd/system/oinferd.service
    usr/lib/systemd/system/oinferd.socket usr/lib/sysusers.d/oinferd.conf usr/lib/tmpfiles.d/oinferd.conf
    usr/libexec/oinfer/backoff.sh usr/share/man/man8/oinferd.8.gz usr/share/man/man5/oinferd.conf.5.gz
    usr/share/man/man1/oinfer.1.gz usr/share/bash-completion/completions/oinferd
    usr/share/bash-completion/completions/oinfer usr/share/doc/oinfer/copyright usr/share/doc/oinfer/changelog.gz""".split()


def needs(*tools):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """(.deb, .tar.gz) of the build that is tested."""
    folder = tmp_path_factory.mktemp("packages")
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder)
    return next(folder.glob("oinfer_*.deb")), next(folder.glob("oinfer-*.tar.gz"))


@needs("cpack", "dpkg-deb", "dpkg-shlibdeps")
def test_content(packages):
    deb, archive = packages
    listed = run("dpkg-deb", "--contents", deb)
    for path in FILES:
        line = re.search(rf"^(\S+) root/root .* \./{re.escape(path)}$", listed, re.M)
        assert line, path
        assert line.group(1) == ("-rwxr-xr-x" if "/bin/" in path or path.endswith(".sh") else "-rw-r--r--"), path
    assert re.findall(r"^(?:[^d]\S+) .* \./(etc/\S+)$", listed, re.M) == ["etc/oinfer/oinferd.conf"]
    control = run("dpkg-deb", "--field", deb)
    depends = re.search(r"^Depends: (.*)$", control, re.M).group(1)
    for library in ("libmicrohttpd12", "libuv1", "libcjson1", "libpcre2-8-0", "libsystemd0", "systemd"):
        assert library in depends
    assert re.search(r"^Recommends: pocl-opencl-icd \| opencl-icd$", control, re.M)
    names = run("tar", "tzf", archive)
    for path in FILES:
        assert re.search(rf"^oinfer-[^/]+/{re.escape(path)}$", names, re.M), path


@needs("cpack", "dpkg-deb", "dpkg-shlibdeps", "lintian")
def test_lintian(packages):
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", packages[0]], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "E: " not in done.stdout, done.stdout + done.stderr


@needs("man")
@pytest.mark.parametrize("page", ["oinferd.8", "oinferd.conf.5", "oinfer.1"])
def test_manual_pages(page):
    """roff without a warning, and every option in them."""
    path = BUILD / "deploy" / page
    done = subprocess.run(["man", "-E", "UTF-8", "--warnings", "-l", path], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    options = re.findall(r'^OPTION(?:_LIVE)?\(\w+, "([^"]+)"', (ROOT / "config/options.def").read_text(), re.M)
    assert len(options) > 30
    if page != "oinfer.1":
        for option in options:
            assert f"{'--' if page == 'oinferd.8' else ''}{option}" in done.stdout, option


def completions(program, line):
    """What bash offers for the last word of the line."""
    words = line.split(" ")
    script = (f"source {BUILD}/deploy/{program}.bash; COMP_WORDS=({' '.join(repr(w) for w in words)}); "
              f"COMP_CWORD={len(words) - 1}; _{program}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    return run("bash", "-c", script).split()


def test_completion():
    assert completions("oinferd", "oinferd --log") == ["--log-level"]
    assert completions("oinferd", "oinferd --log-level w") == ["warn"]
    assert completions("oinferd", f"oinferd --config {ROOT}/READ") == [f"{ROOT}/README.md"]
    assert "--api-key-file" in completions("oinferd", "oinferd --")
    assert completions("oinfer", "oinfer bench --n-g") == ["--n-gen"]
    commands = re.findall(r"^  (\w+) +\S", run(BUILD / "oinfer", "--help").partition("commands:")[2], re.M)
    assert sorted(completions("oinfer", "oinfer ")) == sorted(commands + ["--help", "--version"])


LIFE = r"""
set -eu
root=$1 deb=$2 next=$3
mkdir "$root"
mount -t tmpfs none "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/all"
cp "$deb" "$root/all/first.deb"
cp "$next" "$root/all/next.deb"
rm -rf "$root/all/run/systemd/system"
for folder in proc dev; do mount --bind "/$folder" "$root/all/$folder"; done
exec chroot "$root/all" bash -euc '
enabled() { [ -L /etc/systemd/system/multi-user.target.wants/oinferd.service ]; }
state() { dpkg-query -W -f "\${db:Status-Abbrev}" oinfer 2>/dev/null | tr -d " "; }
say() { echo "FAILED: $*"; exit 1; }
userdel oinfer 2>/dev/null || true
export DEBIAN_FRONTEND=noninteractive
rm -f /var/lib/man-db/auto-update # the index of manual pages takes long and is not ours
[ "$(stat -c %d:%i /)" != "$HOST_ROOT" ] || say "this is the machine itself"

dpkg -i /first.deb
[ "$(state)" = ii ] || say "not installed"
enabled || say "not enabled"
id -nG oinfer | grep -qw render || say "the user is not in group render"
[ "$(stat -c "%U %a" /var/cache/oinfer)" = "oinfer 700" ] || say "cache folder"
[ "$(stat -c "%U %a" /var/lib/oinfer/models)" = "oinfer 755" ] || say "folder of models"
[ "$(stat -c "%U %a" /etc/oinfer/oinferd.conf)" = "root 644" ] || say "configuration"
oinferd --config /etc/oinfer/oinferd.conf --check || say "the packaged configuration is refused"
[ ! -e /etc/systemd/system/sockets.target.wants/oinferd.socket ] || say "the socket is enabled"

# An upgrade keeps what the administrator has changed, and what has been written.
echo "# ours" >>/etc/oinfer/oinferd.conf
touch /var/lib/oinfer/models/a.gguf /var/cache/oinfer/kernel
systemctl --root=/ disable oinferd.service 2>/dev/null
dpkg -i --force-confold /next.deb
[ "$(dpkg-query -W -f "\${Version}" oinfer)" = 9.9.9 ] || say "not upgraded"
grep -q "# ours" /etc/oinfer/oinferd.conf || say "the configuration was overwritten"
[ -e /var/lib/oinfer/models/a.gguf ] && [ -e /var/cache/oinfer/kernel ] || say "an upgrade removed data"
! enabled || say "an upgrade enabled what was disabled"

dpkg -r oinfer
[ "$(state)" = rc ] && [ -e /etc/oinfer/oinferd.conf ] && [ -e /var/lib/oinfer/models/a.gguf ] || say "removed too much"
[ ! -e /usr/bin/oinferd ] && [ ! -e /usr/lib/systemd/system/oinferd.service ] || say "removed too little"

dpkg -i --force-confold /first.deb
oinferd --version >/dev/null || say "not there again"
[ "$(readlink /etc/systemd/system/oinferd.service)" != /dev/null ] || say "still masked"
dpkg -r oinfer
dpkg -P oinfer
[ "$(state)" = "" ] || [ "$(state)" = un ] || say "not purged: $(state)"
[ ! -e /etc/oinfer ] && [ ! -e /var/cache/oinfer ] || say "purging left files"
[ -e /var/lib/oinfer/models/a.gguf ] || say "purging removed a model"
[ -z "$(find /etc/systemd /var/lib/systemd -name "oinferd*" 2>/dev/null)" ] || say "purging left links"
echo LIVED
'
"""


@needs("cpack", "dpkg-deb", "dpkg-shlibdeps", "systemd-sysusers", "systemd-tmpfiles", "unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for an overlay of the machine's root")
def test_install_upgrade_remove_purge(packages, tmp_path):
    probe = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {tmp_path} && mkdir {tmp_path}/u {tmp_path}/w {tmp_path}/a"
                            f" && mount -t overlay overlay -o lowerdir=/,upperdir={tmp_path}/u,workdir={tmp_path}/w {tmp_path}/a"],
                           capture_output=True, text=True, timeout=60)
    if probe.returncode != 0:
        pytest.skip(f"no overlay of the root: {probe.stderr.strip()[-200:]}")
    tree = tmp_path / "tree"
    run("dpkg-deb", "--raw-extract", packages[0], tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 9.9.9", control.read_text(), flags=re.M))
    config = tree / "etc/oinfer/oinferd.conf"
    config.write_text(config.read_text() + "# of the next version\n")
    run("dpkg-deb", "--build", "--root-owner-group", tree, tmp_path / "next.deb")
    status = os.stat("/")
    done = subprocess.run(["unshare", "-m", "bash", "-c", LIFE, "life", str(tmp_path / "root"), str(packages[0]), str(tmp_path / "next.deb")],
                          capture_output=True, text=True, timeout=240, env={**os.environ, "HOST_ROOT": f"{status.st_dev}:{status.st_ino}"})
    if "dependency problems" in done.stderr:
        pytest.skip(f"the package's dependencies are not installed: {done.stderr[-400:]}")
    assert done.returncode == 0 and "LIVED" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert not pathlib.Path("/usr/lib/systemd/system/oinferd.service").exists(), "the test left the overlay"
