"""Types lines into bash, zsh and fish as a person does, presses TAB, and compares what the shell makes of them.

Arguments: the folder `share` with the completions, a folder for PATH with the programs, an empty folder to be at home in.
"""

import os
import pty
import re
import select
import signal
import sys
import time

READY = "READY> "
# Flags and devices in each shell, of a program, a subcommand and the name of a C tool.
CASES = [
    ("allreduce --reprod", "allreduce --reproducible"),
    ("allreduce --device so", "allreduce --device soft0"),
    ("allreduce --device au", "allreduce --device auto"),
    ("write_bw --inl", "write_bw --inline_size"),
    ("write_bw --ib-dev so", "write_bw --ib-dev soft0"),
    ("kvcache_transfer --expl", "kvcache_transfer --explain"),
    ("rdma-tools pingp", "rdma-tools pingpong"),
    ("rdma-tools devinfo --verb", "rdma-tools devinfo --verbose"),
    ("rdma-tools devinfo --soft --ib-dev so", "rdma-tools devinfo --soft --ib-dev soft0"),
    ("rdma-tools stat so", "rdma-tools stat soft0"),
    ("rdma-tools gids so", "rdma-tools gids soft0"),
    ("ibstat so", "ibstat soft0"),
    ("ibstat --soft so", "ibstat --soft soft0"),
    ("ibstat --soft=127.0.0.1 so", "ibstat --soft=127.0.0.1 soft0"),
    ("show_gids so", "show_gids soft0"),
    ("ibv_devinfo --verb", "ibv_devinfo --verbose"),
    ("ibv_devinfo --ib-dev so", "ibv_devinfo --ib-dev soft0"),
    ("mini_server decode --dev", "mini_server decode --device"),
    # Hidden flags.
    ("allreduce --fau", "allreduce --fau"),
    ("kvcache_transfer --fau", "kvcache_transfer --fau"),
]
WITHIN_S = 60


def shells(share):
    bash = f'for f in {share}/bash-completion/completions/*; do source "$f"; done'
    zsh = f"fpath=({share}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D; bindkey -e"
    fish = f"set -p fish_complete_path {share}/fish/vendor_completions.d"
    prompt = f"function fish_prompt; printf '{READY}'; end; function fish_greeting; end"
    return {
        "bash": (["bash", "--norc", "--noprofile", "-i"], bash),
        "zsh": (["zsh", "-f", "-i"], zsh),
        "fish": (["fish", "--private", "--init-command", prompt], fish),
    }


class Shell:
    def __init__(self, command, path, home):
        self.text = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            path = f"{path}:{os.environ['PATH']}"
            known = {"PATH": path, "HOME": home, "PS1": READY, "TERM": "dumb", "LC_ALL": "C.UTF-8", "COLUMNS": "500"}
            os.execvpe(command[0], command, known)
        self.until(re.escape(READY))

    def until(self, pattern):
        """Reads until the pattern, and returns its match."""
        until = time.monotonic() + WITHIN_S
        while not (found := re.search(pattern, self.text)):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                raise RuntimeError(f"within {WITHIN_S} s there was no {pattern!r}, but {self.text!r}")
            self.text += os.read(self.terminal, 4096).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found

    def type(self, keys):
        os.write(self.terminal, keys.encode())

    def run(self, line):
        # The shell puts the word together, so that the echo of the line is not taken for the answer.
        self.type(f"{line}; printf '%s%s\\n' do ne\r")
        self.until(r"done\r?\n")
        self.until(re.escape(READY))

    def completed(self, line):
        """What TAB makes of a line."""
        # Ctrl-A, and the line is words to be printed instead of a command.
        self.type(f"{line}\t\x01printf '<%s>' \"\" ")
        self.type("\r")
        # With the next prompt, because a read may end amid the words.
        words = self.until(rf"<>((?:<[^<>]*>)*)[^<]*?{re.escape(READY)}").group(1)
        return " ".join(re.findall(r"<([^<>]*)>", words))

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def main(share, path, home):
    wrong = 0
    for name, (command, setup) in shells(share).items():
        shell = Shell(command, path, home)
        try:
            shell.run(setup)
            for line, expected in CASES:
                # zsh ends a flag that takes a value with `=`.
                completed = shell.completed(line).rstrip("=")
                if completed != expected:
                    wrong += 1
                    print(f"{name}: TAB makes {completed!r} of {line!r}, not {expected!r}")
        finally:
            shell.end()
    print(f"bash, zsh and fish complete {len(CASES)} lines each" if wrong == 0 else f"{wrong} lines are completed wrongly")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
