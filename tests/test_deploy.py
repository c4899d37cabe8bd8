"""The manifests of deploy/ fit the schemas of Kubernetes and Ray; their commands, names and versions exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import mcflow
from mcflow.cli.app import app

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy"
RAY_CLUSTER = FOLDER / "ray-cluster.yaml"
MANIFESTS = [
    (path.name, document)
    for path in sorted((FOLDER / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
IMAGE = f"mcflow:{mcflow.__version__}"

#: Fields of KubeRay's own resources that the manifests may use; pods inside them have a schema.
KUBERAY = {
    "RayJob": {
        *("entrypoint", "submissionMode", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"),
        "rayClusterSpec",
    },
    "RayCluster": {"rayVersion", "headGroupSpec", "workerGroupSpecs"},
    "head": {"rayStartParams", "template"},
    "worker": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}


def name_of(value: Any) -> str:
    """Return a name for a manifest, and the first word of anything else."""
    if isinstance(value, dict):
        return f"{value['kind']}-{value['metadata']['name']}" if "kind" in value else ""
    return value if isinstance(value, str) else str(value[0])


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [document for _, document in MANIFESTS if document["kind"] in kinds]


def ray_spec(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]
    return spec["rayClusterSpec"] if document["kind"] == "RayJob" else spec


def templates(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the templates of pods in a manifest."""
    if document["kind"] == "Job":
        yield document["spec"]["template"]
    if document["kind"] in ("RayJob", "RayCluster"):
        spec = ray_spec(document)
        yield spec["headGroupSpec"]["template"]
        yield from (group["template"] for group in spec["workerGroupSpecs"])


TEMPLATES = [(name_of(document), template) for _, document in MANIFESTS for template in templates(document)]
CONTAINERS = [(name, template, one) for name, template in TEMPLATES for one in template["spec"]["containers"]]


def validate(document: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    kubernetes.validate(document, kubernetes.latest_version(), strict=True)


@pytest.mark.parametrize("document", of_kind("Job", "Service", "PersistentVolumeClaim"), ids=name_of)
def test_manifest_fits_the_schema_of_kubernetes(document) -> None:
    validate(document)


@pytest.mark.parametrize(("name", "template"), TEMPLATES, ids=name_of)
def test_pods_fit_the_schema_of_kubernetes(name, template) -> None:
    validate({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template})


def test_schema_refuses_a_misspelt_field() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    job = json.loads(json.dumps(of_kind("Job")[0]))
    job["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes.ValidationError):
        validate(job)


@pytest.mark.parametrize("document", of_kind("RayJob", "RayCluster"), ids=name_of)
def test_ray_manifests_have_known_fields_and_the_version_of_ray_that_is_tested(document) -> None:
    assert document["apiVersion"] == "ray.io/v1"
    assert set(document["spec"]) <= KUBERAY[document["kind"]]
    spec = ray_spec(document)
    assert set(spec) == KUBERAY["RayCluster"]
    assert set(spec["headGroupSpec"]) <= KUBERAY["head"]
    tested = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert tested
    assert spec["rayVersion"] == tested[1]
    for group in spec["workerGroupSpecs"]:
        assert set(group) <= KUBERAY["worker"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        check_ray(["start", *(f"--{flag}={value}" for flag, value in group["rayStartParams"].items())])


def check_ray(words: list[str]) -> None:
    """See that a command of Ray and its flags exist."""
    scripts = pytest.importorskip(
        "ray.scripts.scripts", reason="Ray is not installed: pip install 'mcflow-impute[ray]'"
    )
    command = scripts.cli.commands[words[0]]
    known = {flag for parameter in command.params for flag in parameter.opts}
    for word in words[1:]:
        assert word.partition("=")[0] in known, f"ray {words[0]} has no {word}"


@pytest.mark.parametrize(("name", "template", "container"), CONTAINERS, ids=name_of)
def test_containers_have_our_image_resources_and_no_more_rights_than_needed(name, template, container) -> None:
    assert container["image"] == IMAGE
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    assert template["spec"]["securityContext"]["runAsNonRoot"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.parametrize(("name", "template", "container"), CONTAINERS, ids=name_of)
def test_containers_that_stay_have_probes_and_those_that_end_are_tried_again(name, template, container) -> None:
    if name.startswith("Ray"):
        for probe in ("livenessProbe", "readinessProbe"):
            compile(container[probe]["exec"]["command"][2], name, "exec")
    else:
        spec = next(document["spec"] for document in of_kind("Job") if name_of(document) == name)
        assert template["spec"]["restartPolicy"] == "Never"
        assert max(spec.get("backoffLimit", 0), spec.get("backoffLimitPerIndex", 0)) > 0


def test_claims_mounts_and_services_have_the_same_names() -> None:
    claims = {document["metadata"]["name"] for document in of_kind("PersistentVolumeClaim")}
    for name, template, container in CONTAINERS:
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes), name
        used = {v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v}
        assert used == claims, name
    for service in of_kind("Service"):
        pods = [t for _, t in TEMPLATES if t["spec"].get("subdomain") == service["metadata"]["name"]]
        assert pods
        assert all(service["spec"]["selector"].items() <= pod["metadata"]["labels"].items() for pod in pods)


# ---------------------------------------------------------------- commands


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every command of mcflow in the folder, those of comments too, with where it is."""
    for name, _, container in CONTAINERS:
        words = [*container.get("command", []), *container.get("args", [])]
        if words:
            yield name, words
    for document in of_kind("RayJob"):
        yield name_of(document), shlex.split(document["spec"]["entrypoint"])
    for path in [*FOLDER.rglob("*.yaml"), *FOLDER.rglob("*.py")]:
        for found in re.findall(r"^# .*?(mcflow (?:impute|fit) .*)$", path.read_text(), re.MULTILINE):
            yield path.name, shlex.split(found)


@pytest.mark.parametrize(("name", "words"), list(commands()), ids=name_of)
def test_commands_and_their_flags_exist(name, words) -> None:
    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        known, _ = get_args_parser().parse_known_args(words[1:])
        assert (known.module, known.training_script) == (True, "mcflow")
        words = ["mcflow", *known.training_script_args]
    assert words[0] == "mcflow"
    assert words[1] in ("fit", "impute")
    app.parse_args(words[1:], exit_on_error=False, print_error=True)


def test_workers_of_torchrun_meet_where_the_service_says() -> None:
    job = next(one for one in of_kind("Job") if one["metadata"]["name"] == "mcflow-fit")
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    flags = dict(word.split("=") for word in words if word.startswith("--") and "=" in word)
    service = of_kind("Service")[0]
    host, _, port = flags["--rdzv-endpoint"].partition(":")
    assert host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert int(port) == service["spec"]["ports"][0]["port"]
    assert int(flags["--nnodes"]) == job["spec"]["completions"] == job["spec"]["parallelism"]


# ---------------------------------------------------------------- the Ray cluster of one's own machines


def test_ray_cluster_fits_the_schema_of_rays_autoscaler() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    autoscaler = pytest.importorskip("ray.autoscaler", reason="Ray is not installed: pip install 'mcflow-impute[ray]'")
    schema = json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text())
    cluster = yaml.safe_load(RAY_CLUSTER.read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cluster | {"max_wokers": 3}, schema)
    assert cluster["docker"]["image"] == IMAGE
    assert cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
    for command in [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]:
        program, *words = shlex.split(command)
        assert program == "ray"
        check_ray(words)


def test_no_image_is_whatever_is_newest() -> None:
    for path in FOLDER.rglob("*"):
        if path.is_file():
            assert ":latest" not in path.read_text(), path


def test_image_installs_extras_that_exist_from_files_that_are_there() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"/src\[(\w+)\]", text):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    assert re.search(r"FROM python:\d+\.\d+", text)
    assert (ROOT / "constraints.txt").is_file()
    assert f"-t {IMAGE} " in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["deploy/Dockerfile", "docs/deployment.md"])
def test_slim_image_installs_the_openmp_library_that_lightgbm_needs(page) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    image, install = text.index("FROM python:3.12-slim"), text.index("pip install")
    assert "apt-get install --yes --no-install-recommends libgomp1" in text[image:install]
