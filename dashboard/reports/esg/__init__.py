"""The energy and ESG statement: one value, made once, shown by page, command and weekly report."""
