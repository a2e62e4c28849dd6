"""A proposal with evidence, savings, guardrails, wording, portfolio."""
