"""The manifests: against the published schemas, and against the program."""

import dataclasses
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow.training import models

from flags import command_line
from strategies.cluster import kubernetes
from tests import processes

FOLDER = processes.ROOT / "deploy" / "kubernetes"
PORT = 2222


def _read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


SERVICE, JOB = _read("job.yaml")
(TFJOB,) = _read("tfjob.yaml")
(POLICY,) = _read("network_policy.yaml")
(VOLUME,) = _read("volume.yaml")
TEMPLATES = {
    "job": JOB["spec"]["template"],
    "tfjob": TFJOB["spec"]["tfReplicaSpecs"]["Worker"]["template"],
}


@pytest.mark.parametrize(
    "manifest",
    [
        SERVICE,
        JOB,
        POLICY,
        VOLUME,
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "tfjob"},
            "template": TEMPLATES["tfjob"],
        },
    ],
    ids=lambda manifest: manifest["kind"],
)
def test_is_as_the_published_schema_says(manifest) -> None:
    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, version, strict=True)


def _check_form(value: Any, form: str) -> None:
    """Checks against what the training operator's own package says."""
    if match := re.fullmatch(r"dict\(str, (\w+)\)", form):
        for each in value.values():
            _check_form(each, match[1])
    elif form in ("int", "str", "bool"):
        assert type(value).__name__ == form
    elif form.startswith("Kubeflow"):
        kind = getattr(models, form)
        names = {key: name for name, key in kind.attribute_map.items()}
        assert value.keys() <= names.keys()
        for key, each in value.items():
            _check_form(each, kind.openapi_types[names[key]])


def test_the_tfjob_has_the_form_of_kubeflow() -> None:
    _check_form(TFJOB, "KubeflowOrgV1TFJob")
    spec = TFJOB["spec"]
    assert spec["tfReplicaSpecs"]["Worker"]["restartPolicy"] == "OnFailure"
    (container,) = TEMPLATES["tfjob"]["spec"]["containers"]
    assert container["name"] == "tensorflow"
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": PORT}]


def test_the_job_is_what_the_program_reads() -> None:
    spec, pod = JOB["spec"], JOB["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    (container,) = pod["containers"]
    environ = {each["name"]: each["value"] for each in container["env"]}
    assert int(environ["WORKERS"]) == spec["completions"] == spec["parallelism"]
    service = SERVICE["metadata"]["name"]
    assert pod["subdomain"] == service
    assert SERVICE["spec"]["clusterIP"] == "None"
    labels = JOB["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    # What Kubernetes adds.
    environ |= {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1"}
    cluster = kubernetes.read(environ)
    assert cluster.workers == (f"train-0.{service}:2222", "train-1.train:2222")
    assert container["ports"] == [{"containerPort": PORT}]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_pod_may_do_little(name: str) -> None:
    pod = TEMPLATES[name]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == {"memory"}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"/runs", "/tmp"}
    (claim,) = (
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    )
    assert claim == VOLUME["metadata"]["name"]
    assert VOLUME["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_flags_are_those_of_the_program(name: str) -> None:
    pod = TEMPLATES[name]["spec"]
    (container,) = pod["containers"]
    words = [word[2:].partition("=") for word in container["args"]]
    flags = {flag: value for flag, _, value in words}
    known = {
        field.name: field
        for config in command_line.Configs()
        for field in dataclasses.fields(config)
    }
    assert flags.keys() <= known.keys()
    grace = int(flags["preemption_grace_secs"])
    assert grace < pod["terminationGracePeriodSeconds"]
    assert flags["model_dir"].startswith("/runs/")


def test_an_interruption_starts_again_and_a_wrong_request_does_not() -> None:
    rules = JOB["spec"]["podFailurePolicy"]["rules"]
    actions = {
        code: rule["action"]
        for rule in rules
        for code in rule.get("onExitCodes", {}).get("values", ())
    }
    assert actions == {2: "FailJob", 42: "Ignore"}
    # As the policy asks for.
    assert TEMPLATES["job"]["spec"]["restartPolicy"] == "Never"
    assert rules[-1]["onPodConditions"][0]["type"] == "DisruptionTarget"
    (container,) = TEMPLATES["job"]["spec"]["containers"]
    for rule in rules[:-1]:
        assert rule["onExitCodes"]["containerName"] == container["name"]


def test_only_workers_reach_the_port() -> None:
    spec = POLICY["spec"]
    own = spec["podSelector"]["matchLabels"]
    for template in TEMPLATES.values():
        assert own.items() <= template["metadata"]["labels"].items()
    peers = [{"podSelector": {"matchLabels": own}}]
    assert spec["ingress"] == [{"from": peers, "ports": [{"port": PORT}]}]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    to_peers, to_names = spec["egress"]
    assert to_peers == {"to": peers}
    assert {each["port"] for each in to_names["ports"]} == {53}
