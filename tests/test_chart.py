"""The Helm chart: what it refuses, what it renders, and what a real Kubernetes API makes of it."""

import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.chart import CHART, ChartError, check, rendered, texts
from beds.kubernetes import KubernetesBed, running_kubernetes

from dashboard.cli.parser.parser import build_parser
from data.settings.all_settings import Settings
from data.settings.load import load_settings

DEPLOY = CHART.parents[1]
RBAC = "rbac.authorization.k8s.io"
SHARED = {"url": "postgresql+psycopg://trimtab@db/trimtab"}
EVERYTHING: dict[str, Any] = {
    "applier": {"create": True, "namespaces": ["search", "vision"], "cordon": True},
    "submitter": {"create": True, "namespace": "search"},
    "secret": {"values": {"TRIMTAB_NOTIFY_SMTP_PASSWORD": "p\n'\""}},
    "settings": {
        "store": SHARED,
        "prometheus": {"url": "http://prometheus:9090", "step_seconds": 30},
        "planning": {"pins": [{"job": "a/b", "gpu_model": "H100-SXM5-80GB", "gpu_count": 1}]},
    },
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"operator": "Exists"}],
    "podAnnotations": {"a": "b"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "cron": {"mode": "cron", "cron": {"timeZone": "Europe/Berlin"}},
    "bare": {
        "reader": {"create": False, "name": "mine"},
        "persistence": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "secret": {"existing": "theirs"},
    },
}
each_variant = pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)


def secret_settings() -> list[tuple[str, str]]:
    """Section and field of every secret setting, as the settings declare them."""
    defaults = Settings()
    return [
        (section, name)
        for section in Settings.__dataclass_fields__
        for name, entry in type(getattr(defaults, section)).__dataclass_fields__.items()
        if entry.metadata["secret"]
    ]


@pytest.mark.parametrize(("section", "name"), secret_settings())
def test_no_secret_goes_into_the_config_map(section: str, name: str) -> None:
    """The schema refuses a secret setting among the plain ones, and takes it as a variable."""
    with pytest.raises(ChartError):
        check({"settings": {section: {name: "canary"}}})
    check({"secret": {"values": {f"TRIMTAB_{section}_{name}".upper(): "canary"}}})


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"store": {"url": "postgresql+psycopg://trimtab:pass@db/trimtab"}}},
        {"secret": {"values": {"PATH": "/bin"}}},
        {"mode": "both"},
        {"replicas": 2},
        {"applier": {"enabled": True}},
        {"persistence": {"size": "a lot"}},
        {"networkPolicy": {"egressPorts": ["443"]}},
        {"settings": {"planning": 3}},
    ],
)
def test_the_schema_refuses_what_would_not_do(values: dict[str, Any]) -> None:
    """A password in an address, a misspelt key, a value of another kind."""
    with pytest.raises(ChartError):
        check(values)


@pytest.mark.kubernetes
def test_an_applier_without_namespaces_is_refused() -> None:
    """Nobody may change everything by leaving a list empty."""
    with pytest.raises(ChartError, match="name the namespaces"):
        rendered({"applier": {"create": True}})


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pod of every workload."""
    found = []
    for entry in objects:
        if entry["kind"] == "Deployment":
            found.append(entry["spec"]["template"]["spec"])
        if entry["kind"] == "CronJob":
            found.append(entry["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    return found


@pytest.mark.kubernetes
@each_variant
def test_pods_are_plain_users_on_a_read_only_system(values: dict[str, Any]) -> None:
    """No root, no capability, no way up; what is written is on named volumes."""
    found = pods(rendered(values))
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounted = {volumemount["name"] for volumemount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert not any("hostPath" in volume for volume in pod["volumes"])


@pytest.mark.kubernetes
@each_variant
def test_pods_run_commands_that_exist_without_a_secret(values: dict[str, Any]) -> None:
    """Trimtab's own parser takes the arguments, and no password is among them."""
    for pod in pods(rendered(values)):
        (container,) = pod["containers"]
        assert container["command"] == ["trimtab"]
        assert build_parser().parse_args(container["args"])
        assert "p\n'\"" not in str(pod)


@pytest.mark.kubernetes
@each_variant
def test_the_settings_are_ones_that_trimtab_takes(values: dict[str, Any], tmp_path: Path) -> None:
    """The file of the ConfigMap loads, and says what the values said."""
    (config,) = (entry for entry in rendered(values) if entry["kind"] == "ConfigMap")
    path = tmp_path / "trimtab.toml"
    path.write_text(config["data"]["trimtab.toml"], encoding="utf-8")
    loaded = load_settings(path, environ={}).settings
    assert loaded.kubernetes.enabled
    given = tomllib.loads(config["data"]["trimtab.toml"])
    for section, fields in values.get("settings", {}).items():
        assert given[section] == fields
    # Every pod is its own account in the cluster.
    assert set(config["data"]) == {"trimtab.toml"}
    assert loaded.apply_kubernetes.kubeconfig == loaded.submit.kubeconfig == ""


ACCOUNTS = {
    "demo-trimtab-web": "demo-trimtab-reader",
    "demo-trimtab-cycle": "demo-trimtab-reader",
    "demo-trimtab-apply": "demo-trimtab-applier",
    "demo-trimtab-submit": "demo-trimtab-submitter",
}
"""Who each pod is, once an account that writes exists."""


@pytest.mark.kubernetes
@pytest.mark.parametrize("writers", [("applier",), ("submitter",), ("applier", "submitter")])
def test_each_account_has_a_pod_of_its_own(writers: tuple[str, ...]) -> None:
    """No pod holds another's token, and the dashboard's pod is an account that only reads."""
    values = {name: EVERYTHING[name] | {"secret": f"{name}-variables"} for name in writers}
    objects = rendered(values | {"settings": {"store": SHARED}})
    found = {}
    for entry in objects:
        assert entry["kind"] != "Secret"
        if entry["kind"] != "Deployment":
            continue
        name, pod = entry["metadata"]["name"], entry["spec"]["template"]["spec"]
        found[name] = pod["serviceAccountName"]
        (container,) = pod["containers"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert (variables.get("TRIMTAB_SUBMIT_ENABLED") == "false") == (not name.endswith("submit"))
        own = [each["secretRef"]["name"] for each in container.get("envFrom", [])]
        assert own == [f"{each}-variables" for each in writers if ACCOUNTS[name].endswith(each)]
        volumes = {each["name"] for each in pod["volumes"] if "secret" in each}
        assert volumes == set()
    wanted = {
        name: account
        for name, account in ACCOUNTS.items()
        if account.endswith(("reader", *writers))
    }
    assert found == wanted


@pytest.mark.kubernetes
@each_variant
def test_each_service_leads_to_one_deployment_and_each_volume_to_one_pod(
    values: dict[str, Any],
) -> None:
    """Nobody lands on the page of another account by chance; one pod at most has the volume."""
    objects = rendered(values)
    pods = [entry["spec"]["template"] for entry in objects if entry["kind"] == "Deployment"]
    for service in (entry for entry in objects if entry["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        chosen = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1
        submits = service["metadata"]["name"].endswith("-submit")
        assert chosen[0]["spec"]["serviceAccountName"].endswith("submitter") == submits
    claims = [
        volume
        for pod in pods
        for volume in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert len(claims) <= 1


@pytest.mark.kubernetes
@pytest.mark.parametrize("writer", ["applier", "submitter"])
def test_pods_that_share_a_store_need_one_that_can_be_shared(writer: str) -> None:
    """The message names the setting; an address in a Secret is taken as well."""
    values = {writer: EVERYTHING[writer]}
    with pytest.raises(ChartError, match=r"settings\.store\.url to postgresql"):
        rendered(values)
    with pytest.raises(ChartError, match="need mode serve"):
        rendered(values | {"mode": "cron", "settings": {"store": SHARED}})
    assert rendered(values | {"secret": {"existing": "theirs"}})
    assert rendered(values | {"secret": {"values": {"TRIMTAB_STORE_URL": SHARED["url"]}}})


def rules(objects: list[dict[str, Any]], kinds: tuple[str, ...] = ("ClusterRole", "Role")) -> Any:
    """The rules of every role, by the last word of its name."""
    return {
        re.sub(r".*trimtab-", "", entry["metadata"]["name"]): entry["rules"]
        for entry in objects
        if entry["kind"] in kinds
    }


@pytest.mark.kubernetes
def test_the_accounts_are_those_of_the_plain_manifests() -> None:
    """Who installs by chart gives no other rights than who applies deploy/kubernetes-*.yaml."""
    plain = [
        entry
        for name in ("reader", "applier", "submitter")
        for entry in yaml.safe_load_all((DEPLOY / f"kubernetes-{name}.yaml").read_text())
    ]
    assert rules(rendered(EVERYTHING)) == rules(plain)


@pytest.mark.kubernetes
def test_old_clusters_get_the_cron_jobs_that_they_know() -> None:
    """Before Kubernetes 1.21 a CronJob was beta; an unknown cluster is taken for a new one."""
    values = {"mode": "cron"}
    for served, version in (
        ((), "batch/v1"),
        (("batch/v1beta1",), "batch/v1beta1"),
        (("batch/v1beta1", "batch/v1/CronJob"), "batch/v1"),
    ):
        found = [entry for entry in rendered(values, served=served) if entry["kind"] == "CronJob"]
        assert [entry["apiVersion"] for entry in found] == [version] * 2


@pytest.mark.kubernetes
def test_a_service_monitor_selects_the_service() -> None:
    """It asks /metrics by the port's name, and carries the labels that a Prometheus looks for."""
    values = {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}
    objects = rendered(EVERYTHING | values)
    (monitor,) = (entry for entry in objects if entry["kind"] == "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = (
        entry
        for entry in objects
        if entry["kind"] == "Service" and wanted <= entry["metadata"]["labels"].items()
    )
    assert service["metadata"]["name"] == "demo-trimtab"
    assert monitor["spec"]["endpoints"][0]["port"] in {
        port["name"] for port in service["spec"]["ports"]
    }


@pytest.mark.kubernetes
def test_the_notes_say_how_to_open_the_dashboard() -> None:
    """And what is still missing."""
    notes = texts()["NOTES.txt"]
    assert "port-forward service/demo-trimtab 8501:8501" in notes
    assert "settings.prometheus.url" in notes
    assert "settings.access.public_url" in notes
    assert "service/demo-trimtab-submit" in texts(EVERYTHING)["NOTES.txt"]


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A real API with the namespaces of the release and of its jobs."""
    with running_kubernetes() as running:
        for name in ("trimtab", "search", "vision"):
            running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield running


def placed(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects in the namespace of the release, as Helm sends them."""
    for entry in objects:
        if not entry["kind"].startswith("Cluster"):
            entry["metadata"].setdefault("namespace", "trimtab")
    return objects


@pytest.mark.kubernetes
@pytest.mark.slow
@each_variant
def test_a_real_api_takes_every_object(bed: KubernetesBed, values: dict[str, Any]) -> None:
    """Dry-run first, on the server, then for good; what is stored is what was meant."""
    for entry in placed(rendered(values, served=("batch/v1beta1",))):
        bed.api_versions[entry["kind"]] = entry["apiVersion"]
        path = bed.path(entry["kind"], entry["metadata"].get("namespace"))
        tried = bed.answer("POST", path, json=entry, params={"dryRun": "All"})
        assert tried.status_code in (201, 409), f"{entry['kind']}: {tried.text[:600]}"
        bed.apply(entry)
        kept = bed.get(entry["kind"], entry["metadata"]["name"], namespace=entry["metadata"].get(
            "namespace", "default"))  # fmt: skip
        assert (kept.get("rules"), kept.get("roleRef")) == (
            entry.get("rules"),
            entry.get("roleRef"),
        )
        # The variants before left theirs: a merge takes nothing away.
        assert entry.get("data", {}).items() <= kept.get("data", {}).items()


def may(bed: KubernetesBed, account: str, verb: str, group: str, resource: str, where: str) -> bool:
    """Ask the API whether the account may do it."""
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:trimtab:demo-trimtab-{account}",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:trimtab",
                       "system:authenticated"],
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource,
                                   "namespace": where},
        },
    }  # fmt: skip
    path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(bed.ask("POST", path, json=asked)["status"]["allowed"])


def served(bed: KubernetesBed) -> set[tuple[str, str]]:
    """Every (group, resource) that the API serves, and those of the kinds that jobs come in."""
    lists = [("", "api/v1")] + [
        (group["name"], f"apis/{group['preferredVersion']['groupVersion']}")
        for group in bed.ask("GET", "apis")["groups"]
    ]
    found = {
        (group, resource["name"])
        for group, path in lists
        for resource in bed.ask("GET", path)["resources"]
    }
    # Anybody may ask what they themselves may do.
    own = {pair for pair in found if pair[0] == "authorization.k8s.io" and "self" in pair[1]}
    return (found - own) | {("kubeflow.org", "pytorchjobs"), ("ray.io", "rayclusters")}


WRITING = ("create", "patch", "delete", "update", "deletecollection")


@pytest.mark.kubernetes
@pytest.mark.slow
def test_the_accounts_may_do_their_part_and_nothing_else(bed: KubernetesBed) -> None:
    """Of everything that the API serves: the reader writes nothing, the others a little."""
    for entry in placed(rendered(EVERYTHING)):
        bed.apply(entry)
    resources = sorted(served(bed))
    assert len(resources) > 80
    granted: dict[str, set[tuple[str, str]]] = {}
    for account in ("reader", "applier", "submitter"):
        granted[account] = {
            (verb, resource)
            for verb, (group, resource) in itertools.product(
                WRITING if account == "reader" else WRITING[:3], resources
            )
            if may(bed, account, verb, group, resource, "search")
        }
    assert granted["reader"] == set()
    assert granted["applier"] == {
        ("patch", "deployments"),
        ("patch", "statefulsets"),
        ("patch", "jobs"),
        ("patch", "pytorchjobs"),
        ("patch", "rayclusters"),
        ("patch", "horizontalpodautoscalers"),
        ("patch", "nodes"),
        ("create", "events"),
    }
    assert granted["submitter"] == {("create", "jobs"), ("create", "services")} | {
        ("create", "pytorchjobs")
    }
    for account in granted:
        assert not may(bed, account, "get", "", "secrets", "trimtab")
    assert may(bed, "reader", "list", "", "pods", "search")
    assert not may(bed, "applier", "patch", "apps", "deployments", "default")
    assert not may(bed, "submitter", "create", "batch", "jobs", "vision")
