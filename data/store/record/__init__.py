"""Findings, commands, journal, audit chain, outbox, tokens, submissions."""
