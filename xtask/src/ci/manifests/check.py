"""Whether objects are valid: core ones under Kubernetes' schemas, custom ones under ours, all under our rule."""

import functools
import json
import pathlib

import jsonschema
import referencing
from kubernetes_validate import utils

from objects import PLACES, PODLESS, containers, one, templates

VERSIONS = ["1.28", "1.31", "1.34", "1.37"]
# The only capability that a pod may have: without it a NIC's memory cannot be pinned.
CAPABILITIES = {"drop": ["ALL"], "add": ["IPC_LOCK"]}
SECCOMP = {"type": "RuntimeDefault"}
NETWORKS = "k8s.v1.cni.cncf.io/networks"
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"

# The package reads a file of 1.5 MB anew for each object.
utils.schema_contents = functools.cache(utils.schema_contents)


class Checker:
    """Knows the schemas of the custom objects, and the resources that the plugins offer."""

    def __init__(self, deploy, plugins):
        files = pathlib.Path(deploy, "schemas").glob("*.json")
        self.schemas = {path.name: json.loads(path.read_text()) for path in files}
        self.offered = offered(plugins)
        self.seen = set()

    @functools.cache
    def validator(self, title, version):
        """Of the schema with this title, whose pods are those of a version of Kubernetes."""
        [schema] = [schema for schema in self.schemas.values() if schema["title"] == title]
        folder = f"kubernetes-json-schema/v{version}.0-local-strict"
        definitions = utils.schema_contents(f"{folder}/_definitions.json", version)
        registry = referencing.Registry().with_contents(
            [(name, schema) for name, schema in self.schemas.items()] + [(definitions["$id"], definitions)],
            default_specification=referencing.jsonschema.DRAFT202012,
        )
        return jsonschema.Draft202012Validator(schema, registry=registry)

    def complaints(self, objects, network):
        """What is wrong with the objects of an overlay with this network."""
        found = []
        for thing in objects:
            name = f"{thing['kind']} {thing['metadata']['name']}"
            text = json.dumps(thing, sort_keys=True)
            # Most objects are in several overlays.
            if text not in self.seen:
                before = len(found)
                found += [f"{name}: {complaint}" for complaint in self.invalid(thing)]
                if len(found) == before:
                    self.seen.add(text)
            if (thing["apiVersion"], thing["kind"]) not in PLACES and thing["kind"] not in PODLESS:
                found.append(f"{name}: nobody has said where this kind has its pods")
                continue
            for template in templates(thing):
                found += [f"{name}: {complaint}" for complaint in rule(template, network)]
                found += [f"{name}: {complaint}" for complaint in self.unasked(template, objects, network)]
        return found

    def invalid(self, thing):
        """Each version under whose schema the object is not valid, and why."""
        title = f"{thing['apiVersion']} {thing['kind']}"
        for version in VERSIONS:
            try:
                if any(schema["title"] == title for schema in self.schemas.values()):
                    self.validator(title, version).validate(thing)
                else:
                    utils.validate(thing, version, strict=True)
            except (jsonschema.ValidationError, utils.SchemaNotFoundError) as error:
                where = ".".join(str(part) for part in getattr(error, "absolute_path", []))
                yield f"Kubernetes {version}: {where}: {error.message[:300]}"
        # JSON within a text, which the schemas of objects take for any text.
        inner = None
        if thing["kind"] == "NetworkAttachmentDefinition":
            inner, schema = thing["spec"].get("config"), {"$ref": "networkattachmentdefinition.json#/$defs/cni"}
        elif thing["kind"] == "ConfigMap":
            inner, schema = thing["data"]["config.json"], {"$ref": f"{thing['metadata']['name']}.json"}
        if inner is not None:
            registry = referencing.Registry().with_contents(
                self.schemas.items(), default_specification=referencing.jsonschema.DRAFT202012
            )
            try:
                jsonschema.Draft202012Validator(schema, registry=registry).validate(json.loads(inner))
            except (jsonschema.ValidationError, ValueError) as error:
                yield f"its configuration: {getattr(error, 'message', error)}"

    def unasked(self, template, objects, network):
        """What a pod asks for and nobody gives, or does not ask for and needs."""
        asked = {
            resource
            for container in containers(template)
            for resource in container.get("resources", {}).get("limits", {})
            if "/" in resource
        }
        annotations = template.get("metadata", {}).get("annotations", {})
        attached = set(filter(None, annotations.get(NETWORKS, "").split(",")))
        if network == "soft" and (asked or attached):
            yield f"the overlay soft asks for {', '.join(sorted(asked | attached))}"
        if network != "soft" and not asked:
            yield "no resource is asked for, so the pod gets no device node"
        for resource in asked - self.offered:
            yield f"no plugin offers {resource}: {', '.join(sorted(self.offered))}"
        networks = [thing for thing in objects if thing["kind"] == "NetworkAttachmentDefinition"]
        known = {thing["metadata"]["name"]: thing for thing in networks}
        for name in attached:
            if name not in known:
                yield f"there is no network {name}"
            elif not {known[name]["metadata"].get("annotations", {}).get(RESOURCE)} <= asked | {None}:
                yield f"the network {name} is that of a resource that the pod does not ask for"


def rule(template, network):
    """What a pod may not have: privilege, paths of the host, another capability than IPC_LOCK, a root to write.

    Of the Pod Security Standard `restricted` a pod may break two rules: it is root, and has IPC_LOCK.
    """
    spec = template["spec"]
    # A controller may add containers to the pod; the profile of the pod is theirs, too.
    if spec.get("securityContext", {}).get("seccompProfile") != SECCOMP:
        yield "seccompProfile of the pod is not RuntimeDefault"
    if spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken is not false, and nobody in the pod asks the API server"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is a path of the host"
    for field in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(field):
            yield f"{field} is set"
    if spec.get("hostNetwork") and network != "host-network":
        yield "hostNetwork is set, and the overlay is not host-network"
    if spec.get("hostNetwork") and not any(container.get("ports") for container in containers(template)):
        yield "hostNetwork is set and no port is declared, so pods that listen on one port may come to one node"
    if spec.get("hostUsers") is False:
        yield "hostUsers is false: IPC_LOCK does not count in a user namespace of the pod"
    for container in containers(template):
        name, context = container["name"], container.get("securityContext", {})
        if context.get("privileged"):
            yield f"{name} is privileged"
        if context.get("seccompProfile", SECCOMP) != SECCOMP:
            yield f"{name}: seccompProfile is not that of the pod"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation is not false"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{name}: readOnlyRootFilesystem is not true"
        # A capability that is added does not reach the processes of another user.
        if context.get("runAsUser") != 0:
            yield f"{name}: runAsUser is not 0, so IPC_LOCK does not count"
        if context.get("capabilities") != CAPABILITIES:
            yield f"{name}: capabilities are {context.get('capabilities')}, but must be IPC_LOCK and nothing else"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{name} has a port of the host"


def offered(plugins):
    """The resources of the plugins' configurations."""
    shared = json.loads(one(plugins["shared"], "ConfigMap")["data"]["config.json"])["configList"]
    sriov = json.loads(one(plugins["sriov"], "ConfigMap")["data"]["config.json"])["resourceList"]
    return {f"{each.get('resourcePrefix', 'rdma')}/{each['resourceName']}" for each in shared} | {
        f"{each.get('resourcePrefix', 'intel.com')}/{each['resourceName']}" for each in sriov
    }
