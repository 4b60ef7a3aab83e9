"""A service manager for tests: what systemd does for oinferd.service, as a class.

It holds the listening socket and passes it on, listens to notifications, kills a daemon whose signs of life stay out
(SIGABRT) and starts one that failed again.
"""
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time


class Manager:
    """Runs one service. states: every notification, as (start number, {key: value})."""

    def __init__(self, binary, *arguments, folder, env=None, watchdog_s=0, pass_socket=True):
        self.command = [str(a) for a in (binary, *arguments)]
        self.env = {**os.environ, **(env or {})}
        self.watchdog_s = watchdog_s
        self.notify_path = str(folder / "notify")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.notify_path)
        self.notify.settimeout(0.02)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128) if pass_socket else None
        self.log_file = tempfile.TemporaryFile()
        self.lock = threading.Lock()
        self.states, self.results = [], []
        self.starts, self.ready, self.stopping, self.ended = 0, False, False, False
        self._start()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def _start(self):
        env = {**self.env, "NOTIFY_SOCKET": self.notify_path}
        command, passed = self.command, ()
        if self.watchdog_s:
            env["WATCHDOG_USEC"] = str(int(self.watchdog_s * 1e6))
        if self.listener is not None:
            # The protocol wants descriptor 3 and the pid of the program that runs in the end.
            command = ["bash", "-c", f'exec 3<&{self.listener.fileno()} {self.listener.fileno()}<&-; '
                       'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', *command]
            passed = (self.listener.fileno(),)
        with self.lock:
            self.ready = False
            self.starts += 1
            self.alive = time.monotonic()
            self.process = subprocess.Popen(command, stderr=self.log_file, env=env, pass_fds=passed)

    def _take(self, text):
        state = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        with self.lock:
            self.states.append((self.starts, state))
            if state.get("READY") == "1":
                self.ready = True
                self.alive = time.monotonic()
            if state.get("WATCHDOG") == "1":
                self.alive = time.monotonic()

    def _run(self):
        while not self.ended:
            try:
                self._take(self.notify.recv(4096).decode())
            except TimeoutError:
                pass
            if self.process.poll() is not None:
                self.results.append(self.process.returncode)
                if self.stopping or self.process.returncode == 0:
                    self.ended = True
                else:
                    time.sleep(0.2)
                    self._start()
            elif self.watchdog_s and self.ready and time.monotonic() - self.alive > self.watchdog_s:
                self.process.send_signal(signal.SIGABRT)
                self.process.wait()

    def seen(self, start=None):
        """The notifications of one start, or of all, in order."""
        with self.lock:
            return [state for number, state in self.states if start in (None, number)]

    def log(self):
        number = self.log_file.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode("utf-8", "replace")

    def until(self, what, check, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = check()
            if value:
                return value
            time.sleep(0.01)
        raise AssertionError(f"{what}: not within {seconds} s\nresults {self.results}\n{self.seen()}\n{self.log()}")

    def wait_ready(self, start):
        self.until(f"start {start} is ready", lambda: self.starts >= start and self.ready)

    def stop(self):
        self.stopping = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.until("the end", lambda: self.ended)
        self.thread.join()
        return self.results[-1]

    def close(self):
        self.stopping = True
        if self.process.poll() is None:
            self.process.kill()
        self.thread.join(30)
        self.notify.close()
        self.log_file.close()
        if self.listener is not None:
            self.listener.close()
