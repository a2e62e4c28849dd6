"""Everything that faces out: people (web, command line, report), time and the cluster."""
