"""Pictures as pure functions from frames and records to plotly figures."""
