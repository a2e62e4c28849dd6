"""Boards, pools, host CPU and memory, quotas, tenants."""
