"""Kubernetes manifests: against the schemas of their kinds, the operator's among them, and one another."""

import functools
import importlib.metadata

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.reading import DEPLOY, documents

FOLDER = DEPLOY / "kubernetes"
OPERATOR = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
VERSION = "1.34"
PATHS = sorted(FOLDER.glob("*.yaml"))
MANIFESTS = [
    pytest.param(manifest, id=f"{path.stem}-{manifest['kind']}") for path in PATHS for manifest in documents(path)
]


def strict(schema):
    """The schema with unknown fields refused, as `kubectl` does; and its integers that may be text."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    checked = {name: strict(value) for name, value in schema.items()}
    if isinstance(checked.get("properties"), dict) and "additionalProperties" not in checked:
        checked["additionalProperties"] = False
    if checked.pop("x-kubernetes-int-or-string", False):
        checked["type"] = ["integer", "string"]
    return checked


@functools.cache
def validators():
    """The operator's kinds and who checks them, from the package dask-kubernetes, which is not imported."""
    package, found = importlib.metadata.distribution("dask-kubernetes"), {}
    for name in ("daskcluster", "daskjob"):
        text = package.locate_file(f"{OPERATOR}/{name}.yaml").read_text(encoding="utf-8")
        for definition in yaml.load_all(text, yaml.CSafeLoader):
            for version in definition["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}
                of_kind = f"{definition['spec']['group']}/{version['name']}", definition["spec"]["names"]["kind"]
                found[of_kind] = jsonschema.Draft7Validator(schema)
    return found


def pods(tree):
    """The specifications of pods in a manifest, wherever they stand."""
    if isinstance(tree, dict):
        if "containers" in tree:
            yield tree
        for value in tree.values():
            yield from pods(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from pods(value)


def assert_fits_the_schema_of_its_kind(manifest):
    validator = validators().get((manifest["apiVersion"], manifest["kind"]))
    if validator is None:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    else:
        validator.validate(manifest)


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifests__fit_the_schema_of_their_kind(manifest):
    assert_fits_the_schema_of_its_kind(manifest)


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_faults__are_found(manifest):
    wrong = {**manifest, "spec": {**manifest["spec"], "no-such-field": 1}}
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError), match="no-such-field"):
        assert_fits_the_schema_of_its_kind(wrong)


def test_kinds__are_complete():
    kinds = {param.values[0]["kind"] for param in MANIFESTS}
    assert kinds == {"PersistentVolumeClaim", "NetworkPolicy", "DaskCluster", "DaskJob", "CronJob"}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_pods__do_not_run_as_root_and_mount_existing_volumes(manifest):
    for pod in pods(manifest):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["args"][0] in ("dask", "collapsium")
        claims = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert claims <= {"collapsium-data"}


def test_pods__have_certificates_wherever_they_speak_to_others():
    for pod in (pod for param in MANIFESTS for pod in pods(param.values[0])):
        assert {"name": "tls", "secret": {"secretName": "collapsium-tls", "defaultMode": 0o440}} in pod["volumes"]
        for container in pod["containers"]:
            variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
            assert variables["DASK_SCHEDULER_ADDRESS"].startswith("tls://")
            assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
            assert variables["DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"] == "/tls/key.pem"


def test_policy__limits_incoming_and_outgoing_connections():
    (policy,) = documents(FOLDER / "network.yaml")
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert all(rule["to"] for rule in policy["spec"]["egress"])


def test_cluster_and_job__have_the_same_pods():
    (cluster,), (job,) = documents(FOLDER / "cluster.yaml"), documents(FOLDER / "job.yaml")
    of_job = job["spec"]["cluster"]["spec"]
    assert of_job["worker"] == cluster["spec"]["worker"]
    assert of_job["scheduler"]["spec"] == cluster["spec"]["scheduler"]["spec"]
    for resource, part in ((cluster, cluster["spec"]), (job, of_job)):
        assert part["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == resource["metadata"]["name"]
