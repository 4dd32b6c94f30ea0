"""Checks deploy/. Arguments: kubectl, deploy/, a folder with our programs alone, a folder to work in.

Every overlay is rendered and checked; then each mistake is made and must be refused; then the pods of every overlay
`soft` run here.
"""

import concurrent.futures
import pathlib
import sys
import time

import mistakes
import run
from check import VERSIONS, Checker
from objects import crossed, network, overlays, render


def main():
    kubectl = sys.argv[1]
    deploy, path, work = (pathlib.Path(argument).resolve() for argument in sys.argv[2:])
    folders = overlays(deploy)
    # The lists of deploy/networks/places are the same for all networks, and macvlan is one that uses them all.
    others = list(crossed(deploy, work, "macvlan"))
    folders += others
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rendered = list(pool.map(lambda folder: render(kubectl, folder), folders))
    every = {f"{at.parent.name}/{at.name}": (network(at), objects) for at, objects in zip(folders, rendered)}
    checker = Checker(deploy, {name: every[f"plugins/{name}"][1] for name in ("shared", "sriov")})
    wrong = []
    for name, (net, objects) in every.items():
        wrong += [f"{name}: {complaint}" for complaint in checker.complaints(objects, net)]
    if wrong:
        raise SystemExit("\n".join(["error: manifests are wrong:", *wrong]))
    versions = ", ".join(VERSIONS)
    print(f"{len(every)} overlays, {len(others)} of them made for this check, are valid in Kubernetes {versions}")
    run.stand_ins(path)
    missed = mistakes.refused(checker, every, lambda objects: run.run(objects, path, work))
    if missed:
        raise SystemExit("\n".join(["error: mistakes are not refused:", *missed]))
    print(f"{len(mistakes.MISTAKES) + len(mistakes.FAILURES)} mistakes are refused")
    for name, (net, objects) in every.items():
        if net != "soft":
            continue
        begun = time.monotonic()
        reason = run.run(objects, path, work)
        if reason:
            raise SystemExit(f"error: {name} does not run:\n{reason}")
        print(f"{name} runs: {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
