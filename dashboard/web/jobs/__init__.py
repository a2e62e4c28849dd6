"""Pages Jobs and Job, Serving, Forecasts."""
