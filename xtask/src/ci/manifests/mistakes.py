"""Mistakes that people make, each of them made to a good overlay and refused. A check that misses one fails."""

import copy
import json

from objects import containers, one, templates


def pod(objects):
    """The first pod template."""
    return next(template for thing in objects for template in templates(thing))


def context(objects):
    """What the first container may do."""
    return containers(pod(objects))[0]["securityContext"]


def configuration(objects, kind, change):
    """Changes the JSON within an object."""
    thing = one(objects, kind)
    place, name = (thing["data"], "config.json") if kind == "ConfigMap" else (thing["spec"], "config")
    inner = json.loads(place[name])
    change(inner)
    place[name] = json.dumps(inner)


# Overlay, mistake, and a word of the refusal.
MISTAKES = {
    "a privileged container": (
        "job/nic",
        lambda all: context(all).update(privileged=True),
        "rank is privileged",
    ),
    "no IPC_LOCK": (
        "jobset/nic",
        lambda all: context(all)["capabilities"].pop("add"),
        "IPC_LOCK and nothing else",
    ),
    "another capability": (
        "lws/nic",
        lambda all: context(all)["capabilities"]["add"].append("SYS_ADMIN"),
        "IPC_LOCK and nothing else",
    ),
    "IPC_LOCK of a user for whom it does not count": (
        "ray/nic",
        lambda all: context(all).update(runAsUser=1000),
        "runAsUser is not 0",
    ),
    "the device nodes as a path of the host": (
        "perftest/nic",
        lambda all: pod(all)["spec"].update(volumes=[{"name": "nodes", "hostPath": {"path": "/dev/infiniband"}}]),
        "is a path of the host",
    ),
    "no seccomp profile": (
        "trainjob/nic",
        lambda all: pod(all)["spec"].pop("securityContext"),
        "seccompProfile of the pod is not RuntimeDefault",
    ),
    "a container that drops the seccomp profile": (
        "pingpong/soft",
        lambda all: context(all).update(seccompProfile={"type": "Unconfined"}),
        "seccompProfile is not that of the pod",
    ),
    "a token for the API server": (
        "ray/soft",
        lambda all: pod(all)["spec"].pop("automountServiceAccountToken"),
        "automountServiceAccountToken is not false",
    ),
    "privilege escalation": (
        "pingpong/nic",
        lambda all: context(all).pop("allowPrivilegeEscalation"),
        "allowPrivilegeEscalation is not false",
    ),
    "a root that can be written": (
        "volcano/nic",
        lambda all: context(all).pop("readOnlyRootFilesystem"),
        "readOnlyRootFilesystem is not true",
    ),
    "the host's network, unasked": (
        "kvcache/nic",
        lambda all: pod(all)["spec"].update(hostNetwork=True),
        "hostNetwork is set",
    ),
    "the host's network, with a port that nobody declares": (
        "perftest/host-network",
        lambda all: containers(pod(all))[0].pop("ports"),
        "no port is declared",
    ),
    "a field of a Deployment, misspelt": (
        "kvcache/soft",
        lambda all: one(all[-1:], "Deployment")["spec"].update(replica=2),
        "'replica' was unexpected",
    ),
    "a field that Kubernetes 1.28 does not have": (
        "job/soft",
        lambda all: one(all, "Job")["spec"].update(successPolicy={"rules": [{"succeededIndexes": "0"}]}),
        "Kubernetes 1.28: spec: Additional properties",
    ),
    "a field of a LeaderWorkerSet, misspelt": (
        "lws/soft",
        lambda all: one(all, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"].update(sizes=2),
        "'sizes' was unexpected",
    ),
    "a value that JobSet does not know": (
        "jobset/soft",
        lambda all: one(all, "JobSet")["spec"]["failurePolicy"].update(restartStrategy="Retry"),
        "'Retry' is not one of",
    ),
    "a TrainJob for the Trainer of before": (
        "trainjob/soft",
        lambda all: one(all, "TrainJob")["spec"].update(podTemplateOverrides=[]),
        "'podTemplateOverrides' was unexpected",
    ),
    "a NIC where there is none": (
        "job/soft",
        lambda all: containers(pod(all))[0]["resources"]["limits"].update({"rdma/hca_shared_devices_a": 1}),
        "the overlay soft asks for",
    ),
    "no NIC where there is one": (
        "volcano/nic",
        lambda all: containers(pod(all))[0]["resources"]["limits"].pop("rdma/hca_shared_devices_a"),
        "no resource is asked for",
    ),
    "a resource that no plugin offers": (
        "job/nic",
        lambda all: containers(pod(all))[0]["resources"]["limits"].update({"rdma/hca": 1}),
        "no plugin offers rdma/hca",
    ),
    "a network that is not there": (
        "perftest/sriov",
        lambda all: pod(all)["metadata"]["annotations"].update({"k8s.v1.cni.cncf.io/networks": "sriov"}),
        "there is no network sriov",
    ),
    "macvlan without its interface": (
        "perftest/macvlan",
        lambda all: configuration(all, "NetworkAttachmentDefinition", lambda inner: inner.pop("master")),
        "its configuration",
    ),
    "a number as a text": (
        "plugins/shared",
        lambda all: configuration(all, "ConfigMap", lambda inner: inner["configList"][0].update(rdmaHcaMax="63")),
        "'63' is not of type 'integer'",
    ),
}

# Likewise, but only a run shows them.
FAILURES = {
    "a flag that the program does not have": (
        "job/soft",
        lambda all: containers(pod(all))[0]["args"].append("--gpus-per-node=8"),
        "unexpected argument",
    ),
    "a file on the root": (
        "jobset/soft",
        lambda all: containers(pod(all))[0]["args"].extend(["-J", "/run.json"]),
        "Read-only file system",
    ),
}


def refused(checker, overlays, run):
    """Makes each mistake, and returns those that the checks let pass or refuse for another reason."""
    missed = []
    for name, (overlay, make, word) in (MISTAKES | FAILURES).items():
        network, objects = overlays[overlay]
        changed = copy.deepcopy(objects)
        make(changed)
        complaints = checker.complaints(changed, network) if name in MISTAKES else [run(changed) or "nothing"]
        if not any(word in complaint for complaint in complaints):
            missed.append(f"{name}, in {overlay}: expected `{word}`, got {complaints}")
    return missed
