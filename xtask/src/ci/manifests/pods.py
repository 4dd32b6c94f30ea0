"""The pods that a controller makes of an object: each with its name, its variables and its command.

The variables are those that the controller's documentation and sources name, with the values that it would give; the
namespace is `default`. Cluster DNS knows a pod's name where the controller, or a Service of the overlay, publishes it.
"""

import re

from objects import containers

SPACE = "default"
# Where ray's operator looks for the head.
HEAD = "head-svc"


class Pod:
    """A pod that is about to run."""

    def __init__(self, name, template, variables, subdomain=None, stays=False, aliases=()):
        self.name, self.stays = name, stays
        self.container = containers(template)[0]
        self.labels = template.get("metadata", {}).get("labels", {})
        self.subdomain = subdomain or template["spec"].get("subdomain")
        self.variables = variables
        # Whether a controller publishes this subdomain, or the overlay's own Service must.
        self.published = subdomain is not None
        self.aliases = list(aliases)
        self.tmp = any(mount["mountPath"] == "/tmp" for mount in self.container.get("volumeMounts", []))
        self.address = None

    def names(self, services):
        """The names that cluster DNS has for the pod."""
        names = list(self.aliases)
        service = services.get(self.subdomain)
        if self.subdomain and (self.published or service and selects(service, self.labels)):
            names.append(f"{self.name}.{self.subdomain}")
        # A headless Service stands for the addresses of all its pods; a Service of one pod is that pod.
        others = [name for name, service in services.items() if selects(service, self.labels)]
        names += [name for name in others if name != self.subdomain]
        return [every for name in names for every in (name, f"{name}.{SPACE}", f"{name}.{SPACE}.svc.cluster.local")]

    def environment(self, token):
        """The variables of the container's processes, as the kubelet puts them together."""
        variables = {"HOSTNAME": self.name, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        fields = {"status.podIP": self.address, "metadata.name": self.name, "metadata.namespace": SPACE}
        # A controller's variables stand before the container's own, which may refer to them.
        given = [{"name": name, "value": value} for name, value in self.variables.items()]
        for variable in given + self.container.get("env", []):
            value, source = variable.get("value", ""), variable.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                if (source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]) != ("rdma-job-token", "token"):
                    raise SystemExit(f"error: {self.name} wants another secret than docs/kubernetes.md makes: {source}")
                value = token
            variables[variable["name"]] = expand(value, variables)
        return variables

    def command(self, variables):
        """The words of the command."""
        words = self.container["command"] + self.container.get("args", [])
        return [expand(word, variables) for word in words]


def expand(text, variables):
    """Kubernetes' own replacement of `$(NAME)`: an unknown name stays, and `$$` is `$`."""

    def value(match):
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)", value, text)


def selects(service, labels):
    """Whether a Service selects pods with these labels."""
    return service["spec"]["selector"].items() <= labels.items()


def indexed(name, spec, subdomain=None):
    """The pods of an Indexed Job."""
    for index in range(spec["completions"] if spec.get("completionMode") == "Indexed" else 0):
        yield Pod(f"{name}-{index}", spec["template"], {"JOB_COMPLETION_INDEX": str(index)}, subdomain)


def job(thing, _):
    yield from indexed(thing["metadata"]["name"], thing["spec"])


def jobset(thing, _):
    name, network = thing["metadata"]["name"], thing["spec"].get("network", {})
    published = (network.get("subdomain") or name) if network.get("enableDNSHostnames", True) else None
    for replicated in thing["spec"]["replicatedJobs"]:
        for number in range(replicated.get("replicas", 1)):
            yield from indexed(f"{name}-{replicated['name']}-{number}", replicated["template"]["spec"], published)


def leaderworkerset(thing, _):
    name, group = thing["metadata"]["name"], thing["spec"]["leaderWorkerTemplate"]
    for index in range(group["size"]):
        variables = {
            "LWS_LEADER_ADDRESS": f"{name}-0.{name}.{SPACE}",
            "LWS_GROUP_SIZE": str(group["size"]),
            "LWS_WORKER_INDEX": str(index),
        }
        template = group.get("leaderTemplate", group["workerTemplate"]) if index == 0 else group["workerTemplate"]
        yield Pod(f"{name}-0-{index}" if index else f"{name}-0", template, variables, name, stays=True)


def volcano(thing, _):
    name, spec = thing["metadata"]["name"], thing["spec"]
    plugins, hosts = spec.get("plugins", {}), {}
    if "svc" in plugins:
        for task in spec["tasks"]:
            key = task["name"].upper().replace("-", "_")
            hosts[f"VC_{key}_HOSTS"] = ",".join(f"{name}-{task['name']}-{i}.{name}" for i in range(task["replicas"]))
            hosts[f"VC_{key}_NUM"] = str(task["replicas"])
    for task in spec["tasks"]:
        for index in range(task["replicas"]):
            numbers = {"VK_TASK_INDEX": str(index), "VC_TASK_INDEX": str(index)} if "env" in plugins else {}
            subdomain = name if "svc" in plugins else None
            yield Pod(f"{name}-{task['name']}-{index}", task["template"], hosts | numbers, subdomain)


def trainjob(thing, objects):
    """The runtime's pods, with the command and the numbers of the TrainJob."""
    name, spec = thing["metadata"]["name"], thing["spec"]
    [runtime] = [each for each in objects if each["kind"] == spec["runtimeRef"]["kind"]]
    [nodes] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    template, trainer = nodes["template"]["spec"]["template"], spec["trainer"]
    count = trainer.get("numNodes", runtime["spec"]["mlPolicy"]["numNodes"])
    # Without GPUs the controller counts the processors that the pod asks for.
    processes = trainer.get("numProcPerNode", containers(template)[0]["resources"]["limits"]["cpu"])
    for index in range(count):
        variables = {
            "JOB_COMPLETION_INDEX": str(index),
            "PET_NNODES": str(count),
            "PET_NPROC_PER_NODE": str(processes),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": "29500",
        }
        pod = Pod(f"{name}-{nodes['name']}-0-{index}", template, variables, name)
        pod.container = pod.container | {key: trainer[key] for key in ("command", "args") if key in trainer}
        yield pod


def raycluster(thing, _):
    """Head and workers. The operator makes the container's command the beginning of its own."""
    name, spec = thing["metadata"]["name"], thing["spec"]
    head = f"{name}-{HEAD}.{SPACE}.svc.cluster.local"
    common = {"RAY_CLUSTER_NAME": name, "RAY_PORT": "6379", "RAY_USAGE_STATS_KUBERAY_IN_USE": "1"}
    local = {"RAY_IP": "127.0.0.1", "RAY_ADDRESS": "127.0.0.1:6379"}
    remote = {"FQ_RAY_IP": head, "RAY_IP": f"{name}-{HEAD}", "RAY_ADDRESS": f"{head}:6379"}
    groups = [(f"{name}-head", spec["headGroupSpec"], 1, local, "ray start --head --block", [f"{name}-{HEAD}"])]
    for group in spec["workerGroupSpecs"]:
        start = f"ray start --address={head}:6379 --block"
        groups.append((f"{name}-{group['groupName']}-worker", group, group["replicas"], remote, start, []))
    for start_of, group, replicas, variables, start, aliases in groups:
        for index in range(replicas):
            pod = Pod(f"{start_of}-{index}", group["template"], common | variables, aliases=aliases)
            own = " ".join(pod.container["command"] + pod.container.get("args", []))
            pod.container = pod.container | {
                "command": ["/bin/bash", "-c", "--"],
                "args": [f"{own} && ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {start}"],
            }
            yield pod


def statefulset(thing, _):
    for index in range(thing["spec"]["replicas"]):
        name, spec = thing["metadata"]["name"], thing["spec"]
        pod = Pod(f"{name}-{index}", spec["template"], {}, stays=True)
        pod.subdomain = spec["serviceName"]
        yield pod


def deployment(thing, _):
    for index in range(thing["spec"].get("replicas", 1)):
        yield Pod(f"{thing['metadata']['name']}-5d8f7c6b9-{index:05}", thing["spec"]["template"], {}, stays=True)


CONTROLLERS = {
    ("batch/v1", "Job"): job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): jobset,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): leaderworkerset,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): trainjob,
    ("ray.io/v1", "RayCluster"): raycluster,
    ("apps/v1", "StatefulSet"): statefulset,
    ("apps/v1", "Deployment"): deployment,
}


def of(objects):
    """All pods of an overlay."""
    found = []
    for thing in objects:
        controller = CONTROLLERS.get((thing["apiVersion"], thing["kind"]))
        found += controller(thing, objects) if controller else []
    return found
