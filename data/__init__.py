"""The words and the kept facts: records, columns, units, errors, settings, catalogue, store."""
