"""What is deployed: the overlays, their objects, and where each kind of object has its pods."""

import os
import subprocess

import yaml

# The path of the pod templates of each kind, as deploy/networks/places has it for kustomize.
PLACES = {
    ("apps/v1", "StatefulSet"): ["spec.template"],
    ("apps/v1", "Deployment"): ["spec.template"],
    ("batch/v1", "Job"): ["spec.template"],
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): ["spec.replicatedJobs.*.template.spec.template"],
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): [
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ],
    ("batch.volcano.sh/v1alpha1", "Job"): ["spec.tasks.*.template"],
    ("ray.io/v1", "RayCluster"): ["spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"],
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): [
        "spec.template.spec.replicatedJobs.*.template.spec.template"
    ],
}
# Kinds without pods.
PODLESS = {"Service", "ConfigMap", "NetworkAttachmentDefinition", "TrainJob"}


def render(kubectl, folder):
    """The objects of a kustomization, as `kubectl apply -k` would apply them."""
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SystemExit(f"error: {folder} is not rendered: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))


def overlays(deploy):
    """Each folder that people apply: the overlays of a workload, and the plugins' configurations."""
    folders = sorted(path.parent for path in deploy.glob("*/*/kustomization.yaml"))
    return [folder for folder in folders if folder.name != "base" and folder.parent.name != "networks"]


def crossed(deploy, work, name):
    """Overlays that are not there: each workload in the network of this name, as a user would write it."""
    for base in sorted(deploy.glob("*/base")):
        if (base.parent / name).exists():
            continue
        folder = work / "crossed" / base.parent.name / name
        folder.mkdir(parents=True, exist_ok=True)
        resource, component = (os.path.relpath(path, folder) for path in (base, deploy / "networks" / name))
        text = f"resources: ['{resource}']\ncomponents: ['{component}']\n"
        (folder / "kustomization.yaml").write_text(text)
        yield folder


def network(folder):
    """The network of an overlay; none for a plugin's configuration."""
    if folder.parent.name == "plugins":
        return None
    return "shared" if folder.name == "nic" else folder.name


def templates(thing):
    """The pod templates of an object."""
    if thing["kind"] in PODLESS:
        return []
    found = []
    for place in PLACES[thing["apiVersion"], thing["kind"]]:
        at = [thing]
        for name in place.split("."):
            if name == "*":
                at = [each for every in at for each in every]
            else:
                at = [every[name] for every in at if name in every]
        found += at
    return found


def containers(template):
    """The containers of a pod template, those that begin before the others included."""
    return template["spec"].get("initContainers", []) + template["spec"]["containers"]


def one(objects, kind):
    """The only object of this kind."""
    [found] = [thing for thing in objects if thing["kind"] == kind]
    return found
