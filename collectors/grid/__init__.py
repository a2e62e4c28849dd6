"""Carbon and price forecasts from providers."""
