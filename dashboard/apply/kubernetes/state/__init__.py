"""Objects as they are: paths, pod spec, quotas, field owners, rollout."""
