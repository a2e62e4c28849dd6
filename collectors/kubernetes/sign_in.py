"""Signing in to a Kubernetes API, as the official client does: kubeconfig, plugins, in-cluster."""

from pathlib import Path
from typing import Any

from yaml import YAMLError

from data.base.errors import SettingsError, SourceNotConfiguredError, scrub
from data.base.extras import require_extra
from data.settings.sources import KubernetesSettings


def configuration_of(settings: KubernetesSettings, *, personal: bool, section: str) -> Any:
    """Return the official client's configuration: host, certificates, and a token that renews.

    Without `personal` the kubeconfig of this user is never the way out: who changes a cluster does
    it with the account that was named. `section` is that of the settings, for hints. Errors:
    SourceNotConfiguredError when the package or every way to sign in is missing.
    """
    try:
        require_extra("kubernetes", "Kubernetes is to be asked")
    except SettingsError as error:
        raise SourceNotConfiguredError(error.message, error.hint) from error
    from kubernetes import client, config

    configuration: Any = client.Configuration()
    try:
        _load(settings, config, configuration, personal=personal)
    except (config.ConfigException, OSError, ValueError, TypeError, YAMLError) as error:
        raise SourceNotConfiguredError(
            f"no Kubernetes to sign in to: {scrub(str(error))[:160]}", _way_in(settings, section)
        ) from error
    return configuration


def _way_in(settings: KubernetesSettings, section: str) -> str:
    """Return the next step after a sign-in that failed: no setting that is there already."""
    file, context = settings.kubeconfig, settings.context
    if file and not Path(file).expanduser().is_file():
        return f"There is no file {scrub(file)!r}: correct {section}.kubeconfig."
    if context:
        where = scrub(file) or "the kubeconfig"
        return f"Does {where} have the context {scrub(context)!r}? `kubectl config get-contexts`."
    if file:
        return f"Is {scrub(file)!r} a kubeconfig that `kubectl --kubeconfig` takes?"
    return f"Set {section}.kubeconfig, or run in a pod with a service account."


def transport(configuration: Any) -> dict[str, Any]:
    """Return the request options for trust in both directions, from the client's configuration.

    Errors: SourceNotConfiguredError when a token that has to be renewed cannot be.
    """
    from kubernetes.config import ConfigException

    try:
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except (ConfigException, OSError, ValueError) as error:
        raise SourceNotConfiguredError(
            f"the token of the kubeconfig or the pod cannot be renewed: {scrub(str(error))[:160]}",
            "Sign in again with kubectl; in a pod, is its service account mounted?",
        ) from error
    trusted = (configuration.ssl_ca_cert or True) if configuration.verify_ssl else False
    signed = (configuration.cert_file, configuration.key_file)
    proxy = configuration.proxy
    return {
        "headers": {"Accept": "application/json"} | ({"Authorization": token} if token else {}),
        "verify": trusted,
        "cert": signed if configuration.cert_file else None,
        "proxies": {"http": proxy, "https": proxy} if proxy else None,
    }


def _load(settings: KubernetesSettings, config: Any, configuration: Any, *, personal: bool) -> None:
    """Load the kubeconfig of the settings, else what a pod is given, else that of this user."""
    if settings.kubeconfig or settings.context:
        config.load_kube_config(
            config_file=settings.kubeconfig or None,
            context=settings.context or None,
            client_configuration=configuration,
        )
        return
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        if not personal:
            raise
        config.load_kube_config(client_configuration=configuration)
