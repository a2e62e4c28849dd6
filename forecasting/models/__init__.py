"""The model contract, naive, seasonal naive, cold start, backtest, comparison."""
