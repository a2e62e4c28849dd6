"""What every job will need: quantile forecasts of demand, memory and power. Pure, no I/O."""
