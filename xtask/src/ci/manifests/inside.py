"""Starts processes in a room of their own, and waits until each has done what it should. Argument: the room, as JSON.

A process is done when it has ended with status 0. One whose pod stays is done, too, when it has printed a verdict, or
that it stays; then it is ended.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

# IPC_LOCK and nothing else, and nothing more by a program of another user: as the manifests have it.
RIGHTS = ["setpriv", "--bounding-set=-all,+ipc_lock", "--inh-caps=-all", "--no-new-privs", "--"]


def furnish(room):
    """The loopback interface, the names, an empty /tmp, and a root that nobody can write."""
    for words in (
        ["ip", "link", "set", "lo", "up"],
        ["mount", "--bind", room["hosts"], "/etc/hosts"],
        ["mount", "-t", "tmpfs", "-o", room["tmp"], "tmp", "/tmp"],
        ["mount", "-o", "remount,bind,ro", "/"],
    ):
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


class Running:
    """A process, and what it has printed."""

    def __init__(self, process, room):
        self.name, self.stays, self.room = process["name"], process["stays"], room
        self.lines = []
        self.child = subprocess.Popen(
            RIGHTS + process["words"],
            env=process["variables"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # Until the last process that has the pipe is gone: the head of a RayCluster leaves its rank behind.
        read = lambda: self.lines.extend(iter(self.child.stdout.readline, ""))
        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()

    def said(self, texts):
        """Whether it has printed one of these."""
        return any(text in line for line in list(self.lines) for text in texts)

    def is_done(self):
        """Whether it has done what it should; an error where it cannot any more."""
        if self.stays and self.said([*self.room["verdicts"], self.room["stays"]]):
            return True
        if self.child.poll() is None or self.reader.is_alive():
            return False
        if self.child.returncode != 0 or self.stays:
            raise SystemExit(f"{self.name} ended with status {self.child.returncode}")
        return True

    def end(self):
        """Ends the process and its children."""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        self.reader.join(1)


def main():
    room = json.loads(pathlib.Path(sys.argv[1]).read_text())
    furnish(room)
    running = []
    end = time.monotonic() + room["limit"]
    try:
        running += [Running(process, room) for process in room["processes"]]
        while not all([process.is_done() for process in running]):
            if time.monotonic() > end:
                raise SystemExit(f"not done within {room['limit']} s")
            time.sleep(0.02)
        if not any(process.said(room["verdicts"]) for process in running):
            raise SystemExit("nobody has printed that all was right")
    except SystemExit:
        for process in running:
            process.end()
            print(f"--- {process.name}\n{''.join(process.lines)}", end="")
        raise
    finally:
        for process in running:
            process.end()


if __name__ == "__main__":
    main()
