"""What newer Kubernetes servers publish about their objects: the OpenAPI schemas of 1.33 to 1.37.

The real server of the tests is 1.20.2, the newest that a registry offers. What concerns newer ones
is held to these schemas, strictly: an unknown field is refused, as `fieldValidation=Strict` does.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import kubernetes_validate

VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")

# The package parses all definitions of a version, 2 MB, for each object: 96 of 100 ms.
_files = kubernetes_validate.utils
_files.schema_contents = cache(_files.schema_contents)
_files.all_versions = cache(_files.all_versions)


def schema_refusal(document: Mapping[str, Any]) -> str | None:
    """Return why a published schema refuses an object, or None where all versions take it.

    Of a custom kind, which no server publishes, the pod templates inside it are checked.
    """
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(dict(document), version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            templates = list(pod_templates(document))
            refusals = (schema_refusal(template) for template in templates)
            return next((refusal for refusal in refusals if refusal is not None), None)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(str(part) for part in error.path)
            return f"Kubernetes {version}: {where or document.get('kind')}: {error.message}"
    return None


def pod_templates(value: object) -> Iterator[dict[str, Any]]:
    """Yield every pod template inside a value, as an object of kind PodTemplate."""
    if isinstance(value, Mapping):
        spec = value.get("spec")
        if isinstance(spec, Mapping) and "containers" in spec:
            metadata = {"name": "template"}
            yield {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": metadata,
                "template": {key: value[key] for key in ("metadata", "spec") if key in value},
            }
        for child in value.values():
            yield from pod_templates(child)
    elif isinstance(value, list):
        for child in value:
            yield from pod_templates(child)
