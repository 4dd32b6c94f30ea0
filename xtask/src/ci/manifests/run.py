"""Runs the pods of an overlay here, on the software device.

Stand-ins: for the cluster's network a namespace with a loopback interface alone, in which each pod has an address of
its own; for its DNS /etc/hosts, with the names that it would have and no others; a script for `ray`, which is not
installed, and one for `sleep infinity`, to say that a pod stays. Everything else is as in a container: the command is
the manifest's, the variables are the controller's, the root is read-only, and root has the capability IPC_LOCK alone.
"""

import json
import os
import pathlib
import subprocess
import sys

import pods

TOKEN = "00112233445566778899aabbccddeeff"
LIMIT_S = 120
# Whatever a program prints when all it moved was right.
VERDICTS = ["# Out of bounds values : 0 OK", " of 2048 OK", "corrupt: 0 OK", " 65536      5000 ", " usec/iter"]
STAYS = "the pod stays"


def stand_ins(path):
    """Puts the stand-ins into the folder of our programs."""
    sleep = f'[ "$1" != infinity ] || echo "{STAYS}"; exec /bin/sleep "$@"'
    scripts = {"ray": 'echo "ray $*"', "sleep": sleep}
    for name, text in scripts.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)


def run(objects, path, work):
    """Runs the pods of these objects. Returns why they did not do what they should, or nothing."""
    services = {thing["metadata"]["name"]: thing for thing in objects if thing["kind"] == "Service"}
    all_pods = pods.of(objects)
    hosts = ["127.0.0.1 localhost"]
    for number, pod in enumerate(all_pods, 2):
        pod.address = f"127.0.0.{number}"
        hosts += [f"{pod.address} {name}" for name in [pod.name, *pod.names(services)]]
    (work / "hosts").write_text("\n".join(hosts) + "\n")
    processes = []
    for pod in all_pods:
        variables = pod.environment(TOKEN)
        # Pods of two nodes share no memory. On one kernel the ranks would find that they do.
        variables = {"PATH": f"{path}:/usr/bin:/bin", "HOME": "/root", "NCCL_HOSTID": pod.name} | variables
        words = pod.command(variables)
        processes.append({"name": pod.name, "words": words, "variables": variables, "stays": pod.stays})
    room = {
        "hosts": str(work / "hosts"),
        "tmp": "rw" if any(pod.tmp for pod in all_pods) else "ro",
        "processes": processes,
        "stays": STAYS,
        "verdicts": VERDICTS,
        "limit": LIMIT_S,
    }
    (work / "room.json").write_text(json.dumps(room))
    inside = [sys.executable, "-I", str(pathlib.Path(__file__).with_name("inside.py")), str(work / "room.json")]
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--propagation", "private", *root, *inside],
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 30,
        stdin=subprocess.DEVNULL,
    )
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()
